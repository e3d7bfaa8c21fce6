"""What the engine's fuzz does: a configuration and a list of actions, drawn from a seed and printable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, replace
from random import Random

from tests.shadow import VOCAB

from camelid.plan.plan import StateSpec

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
STEMS = 4  # beginnings that prompts share


@dataclass(frozen=True, kw_only=True)
class Config:
    """One engine: its model's groups, its bounds, how late its device is."""

    model: tuple[str, ...] = ("kv", "tokens")
    context: int = 48
    parallel: int = 3
    chunk: int = 8
    n_pages: int = 24
    depth: int = 2
    late: int | None = None  # seed

    @property
    def states(self) -> tuple[StateSpec, ...]:
        return tuple(GROUPS[name] for name in self.model)

    @property
    def most_rows(self) -> int:
        """Of one request."""
        paged = any(s.kind in ("paged", "window") for s in self.states)
        return min(self.context, self.n_pages * PAGE_ROWS) if paged else self.context


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request. `ends_at` makes the token that comes there (from 0) an end token."""

    prompt: tuple[int, ...]
    max_tokens: int = 8
    ends_at: int | None = None
    temperature: float = 0.0
    seed: int = 0
    guided: int = 0  # a grammar that allows every so-manieth token
    all_logits: bool = False


@dataclass(frozen=True)
class Action:
    """`verb` on live request number `at`, modulo how many there are."""

    verb: str
    at: int = 0
    n: int = 0
    ask: Ask | None = None

    def __str__(self) -> str:
        numbers = "".join(f" {name}={value}" for name, value in (("at", self.at), ("n", self.n)) if value)
        return f"{self.verb}{numbers}" + (f" {changed(self.ask)}" if self.ask else "")


@dataclass(frozen=True)
class Scenario:
    """What one engine goes through."""

    config: Config
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        lines = [f"config {changed(self.config)}", *(f"{i:3d} {a}" for i, a in enumerate(self.actions))]
        return "\n".join(lines)


def changed(value: Config | Ask) -> str:
    """The fields that are not as by default."""
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
        depth=draw.randint(1, 3),
        late=draw.choice((None, draw.randrange(1 << 16))),
    )


def draw_prompt(draw: Random, n: int) -> tuple[int, ...]:
    """Often the beginning of a stem, and a tail of its own."""
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
    return ask


Change = Callable[[Ask, Random], Ask]
OPTIONS: tuple[tuple[float, Change], ...] = (
    (0.3, lambda ask, draw: replace(ask, ends_at=draw.randrange(ask.max_tokens))),
    (0.3, lambda ask, draw: replace(ask, temperature=0.75, seed=draw.randrange(1 << 40))),
    (0.1, lambda ask, draw: replace(ask, guided=draw.choice((2, 7)), temperature=0.0)),
    (0.05, lambda ask, draw: Ask(prompt=ask.prompt, all_logits=True)),
)
# Verbs besides submit, each with how often it comes.
VERBS = {
    "step": 30, "read": 20, "gather": 8, "finish": 8, "cancel": 6, "close": 5, "drop": 6, "interrupt": 4,
    "lose": 1, "break": 1,
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
