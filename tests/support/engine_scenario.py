"""Scenarios of the engine's fuzz: a configuration and actions, drawn from a seed and printable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from random import Random
from typing import Any

from tests.support.shadow import VOCAB

from camelid.engine.programs import Limits
from camelid.engine.request import Overflow
from camelid.plan.plan import StateSpec
from camelid.sampling.params import SamplingParams

PAGE_ROWS = 4
GROUPS = {
    "kv": StateSpec("kv", "paged", (0,), (("k", 1),), PAGE_ROWS),
    "window": StateSpec("window", "window", (1,), (("k", 1),), PAGE_ROWS, window=6),
    "recurrent": StateSpec("recurrent", "recurrent", (2,), (("state", 2),), 1),
    "tokens": StateSpec("tokens", "ring", (), (("id", 1),), 32),
}
MODELS = (
    ("kv", "tokens"),
    ("kv", "window", "tokens"),
    ("window", "tokens"),
    ("kv", "recurrent", "tokens"),
    ("recurrent", "tokens"),
    ("kv", "window", "recurrent", "tokens"),
)
STEMS = 4  # prompt beginnings that requests share
PENALTIES = {"repeat_penalty": 1.25, "repeat_last_n": 8}
# More biases than a device accepts, and large ones: the winner is often outside a row's candidates.
BIASES = tuple((50 * i, 10.0 + 12 * (i % 7)) for i in range(20))
# Sampling options without a seed. The host samples for the names in HOSTED.
SAMPLINGS: Mapping[str, Mapping[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 0.75},
    "penalised": {"temperature": 0.75, **PENALTIES},
    "greedy penalised": {"temperature": 0.0, **PENALTIES},
    "biased": {"temperature": 0.0, "logit_bias": ((5, 1.5), (900, -2.0))},
    "shown": {"temperature": 0.0, "logprobs": 3},
    "hosted": {"temperature": 0.0, "top_n_sigma": 2.0},
    "many biases": {"temperature": 0.0, "logit_bias": BIASES},
}
HOSTED = {"hosted", "many biases"}
FALTERING = 20  # proposers whose seed is a multiple of this fail after a while


@dataclass(frozen=True, kw_only=True)
class Config:
    """One engine: its model's groups, its bounds, and the delay of its device."""

    model: tuple[str, ...] = ("kv", "tokens")
    context: int = 48
    parallel: int = 3
    chunk: int = 8
    n_pages: int = 24
    drafts: int = 3
    depth: int = 2
    late: int | None = None  # seed
    row_buckets: tuple[int, ...] = ()
    first_checkpoint: int = PAGE_ROWS
    slots: int = 2  # of adapters
    n_stages: int = 1  # a drawn id returns through the host if there are several

    @property
    def states(self) -> tuple[StateSpec, ...]:
        return tuple(GROUPS[name] for name in self.model)

    @property
    def limits(self) -> Limits:
        return Limits(self.chunk, self.parallel, self.context, drafts=self.drafts)

    @property
    def most_rows(self) -> int:
        """Most state rows of one request."""
        return min(self.context, self.n_pages * PAGE_ROWS) if "kv" in self.model else self.context


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request. `ends_at` makes the answer's token at that index an end token."""

    prompt: tuple[int, ...]
    max_tokens: int = 8
    ends_at: int | None = None
    sampling: str = "greedy"
    seed: int = 0
    guided: int = 0  # a grammar that allows multiples of this id
    guesses: int | None = None  # seed of a mostly correct proposer; multiples of FALTERING fail after a while
    all_logits: bool = False
    overflow: Overflow = "error"
    n_keep: int = 0
    priority: int = 0
    queue_timeout_s: float | None = None
    timeout_s: float | None = None
    is_atomic: bool = False
    reuses: bool = True
    salt: str = ""
    adapter: int = 0
    invocation: int = 0  # tokens before the prompt's end from which the adapter acts; 0: from the first on

    @property
    def params(self) -> SamplingParams:
        return SamplingParams(seed=self.seed, **SAMPLINGS[self.sampling])

    @property
    def falters(self) -> bool:
        return self.guesses is not None and self.guesses % FALTERING == 0

    @property
    def is_hosted(self) -> bool:
        """True if the host samples, or the device draws greedily in a program with further outputs."""
        return self.guided > 0 or self.sampling in HOSTED


@dataclass(frozen=True)
class Action:
    """`verb` on live request number `at`, modulo the number of live requests."""

    verb: str
    at: int = 0
    n: int = 0
    ask: Ask | None = None

    def __str__(self) -> str:
        numbers = "".join(f" {name}={value}" for name, value in (("at", self.at), ("n", self.n)) if value)
        return f"{self.verb}{numbers}" + (f" {changed(self.ask)}" if self.ask else "")


@dataclass(frozen=True)
class Scenario:
    """All that one engine runs."""

    config: Config
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        lines = [f"config {changed(self.config)}", *(f"{i:3d} {a}" for i, a in enumerate(self.actions))]
        return "\n".join(lines)


def changed(value: Config | Ask) -> str:
    """The fields that differ from their defaults."""
    named = ((f.name, getattr(value, f.name), f.default) for f in fields(value))
    return " ".join(f"{n}={v!r}" for n, v, default in named if default is MISSING or v != default)


def draw_config(draw: Random) -> Config:
    parallel = draw.randint(1, 4)
    context = draw.choice((16, 32, 48))
    return Config(
        model=draw.choice(MODELS),
        context=context,
        parallel=parallel,
        chunk=draw.randint(parallel + 1, 12),
        n_pages=draw.randint(context // PAGE_ROWS // 2, context // PAGE_ROWS * parallel),
        drafts=draw.randint(1, 4),
        depth=draw.choice((1, 2, 3, 8)),
        late=draw.choice((None, draw.randrange(1 << 16))),
        row_buckets=draw.choice(((), (1, 2, 4), (3,))),
        slots=draw.choice((1, 2, 3)),
        n_stages=draw.choice((1, 1, 1, 2, 3, 5)),
    )


def draw_prompt(draw: Random, n: int) -> tuple[int, ...]:
    """Mostly the beginning of a stem followed by a tail of its own."""
    stem, shared = draw.randrange(STEMS), draw.choice((0, n // 2, n - 1, n))
    beginning = [1 + (stem * 251 + i * i * 17) % (VOCAB - 1) for i in range(shared)]
    return (*beginning, *(draw.randrange(1, VOCAB) for _ in range(n - shared)))


def draw_ask(draw: Random, config: Config) -> Ask:
    n_prompt = draw.randint(1, config.most_rows - 1)
    n_tokens = draw.randint(1, min(config.most_rows - n_prompt, 14))
    ask = Ask(prompt=draw_prompt(draw, n_prompt), max_tokens=n_tokens)
    for chance, change in OPTIONS:
        if draw.random() < chance:
            ask = change(ask, draw)
    return fitted(ask, config)


def fitted(ask: Ask, config: Config) -> Ask:
    """The request without options that the engine refuses."""
    ask = replace(ask, invocation=min(ask.invocation, len(ask.prompt)) if ask.adapter else 0)
    if ask.all_logits:
        return Ask(prompt=ask.prompt, all_logits=True, adapter=ask.adapter, invocation=ask.invocation)
    if ask.guided:
        ask = replace(ask, sampling="greedy")
    if ask.is_hosted or ask.sampling == "shown":
        ask = replace(ask, guesses=None)
    fits = len(ask.prompt) <= config.chunk - config.parallel and not ask.invocation
    return replace(ask, is_atomic=ask.is_atomic and fits)


def _overflowing(ask: Ask, draw: Random) -> Ask:
    overflow: Overflow = draw.choice(("shift", "stop"))
    return replace(ask, overflow=overflow, n_keep=draw.randrange(6), max_tokens=draw.randint(1, 40))


Change = Callable[[Ask, Random], Ask]
OPTIONS: tuple[tuple[float, Change], ...] = (
    (0.3, lambda ask, draw: replace(ask, ends_at=draw.randrange(ask.max_tokens))),
    (
        0.5,
        lambda ask, draw: replace(ask, sampling=draw.choice(list(SAMPLINGS)), seed=draw.randrange(1 << 40)),
    ),
    (0.1, lambda ask, draw: replace(ask, guided=draw.choice((2, 7)))),
    (0.2, lambda ask, draw: replace(ask, guesses=draw.randrange(1 << 16))),
    (0.15, _overflowing),
    (0.3, lambda ask, draw: replace(ask, priority=draw.randint(-1, 2))),
    (0.1, lambda ask, draw: replace(ask, timeout_s=float(draw.randint(1, 9)))),
    (0.1, lambda ask, draw: replace(ask, queue_timeout_s=float(draw.randint(1, 4)))),
    (0.1, lambda ask, draw: replace(ask, is_atomic=True)),
    (0.1, lambda ask, draw: replace(ask, reuses=False)),
    (0.1, lambda ask, draw: replace(ask, salt="other")),
    (0.05, lambda ask, draw: replace(ask, all_logits=True)),
    (0.3, lambda ask, draw: replace(ask, adapter=draw.randint(1, 4), invocation=draw.choice((0, 1, 5)))),
)
# Verbs besides submit, with their weights.
VERBS = {
    "step": 30, "read": 20, "gather": 8, "finish": 8, "cancel": 6, "close": 5, "drop": 6, "interrupt": 4,
    "fork": 10, "again": 8, "tick": 6, "export": 3, "restore": 3, "crowd": 4, "lose": 1,
    "break": 1, "deny": 1, "vanish": 1,
}  # fmt: skip


def draw_actions(draw: Random, config: Config) -> Iterator[Action]:
    verbs, weights = list(VERBS), list(VERBS.values())
    for _ in range(draw.randint(2, 9)):
        yield Action("submit", ask=draw_ask(draw, config))
        for verb in draw.choices(verbs, weights, k=draw.randrange(4)):
            yield Action(verb, draw.randrange(8), draw.randint(1, 8))


def draw_scenario(seed: int) -> Scenario:
    draw = Random(seed)
    config = draw_config(draw)
    return Scenario(config, tuple(draw_actions(draw, config)))
