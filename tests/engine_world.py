"""An engine over the shadow of a device, and the live requests of one fuzz scenario, each with its oracle."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from random import Random

from tests import shadow
from tests.engine_fakes import HashBackend, open_engine
from tests.engine_scenario import Action, Ask, Config, Scenario
from tests.shadow import VOCAB, drawn, views_of

from camelid.engine import StepEngine, Stream
from camelid.errors import BackendError
from camelid.plan.plan import StateSpec
from camelid.plan.step import StepSampling
from camelid.sampling import SamplingParams
from camelid.scheduler import Limits
from camelid.sequence import Request

ENDS = {"length", "stop"}


@dataclass
class EveryNth:
    """A grammar: each token is divisible by `n`."""

    n: int
    is_finished: bool = False

    def mask(self) -> bytes:
        bits = sum(1 << i for i in range(0, VOCAB, self.n))
        return bits.to_bytes(-(-VOCAB // 8), "little")

    def accept(self, token_id: int) -> bool:
        return token_id % self.n == 0


def guided_ids(states: tuple[StateSpec, ...], ask: Ask) -> list[int]:
    """Of the allowed tokens the likeliest: the next one up, round the vocabulary."""
    token_ids = list(ask.prompt)
    for _ in range(ask.max_tokens):
        likeliest = drawn(tuple(views_of(states, token_ids)))
        token_ids.append(next(i % VOCAB for i in range(likeliest, 2 * VOCAB) if i % VOCAB % ask.guided == 0))
    return token_ids[len(ask.prompt) :]


def oracle(states: tuple[StateSpec, ...], ask: Ask) -> list[int]:
    """The answer's ids without an end token."""
    if ask.guided:
        return guided_ids(states, ask)
    how = StepSampling(temperature=ask.temperature, seed=ask.seed)
    return shadow.expected_ids(states, ask.prompt, ask.max_tokens, how)


@dataclass
class Live:
    """A request: what it must answer, what came so far."""

    stream: Stream
    ask: Ask
    want: list[int]
    got: list[int] = field(default_factory=list)
    is_over: bool = False

    def check(self) -> None:
        assert self.got == self.want[: len(self.got)], f"answered {self.got}, expected {self.want}"


class World:
    """Runs one scenario. `seen` counts what happened."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.backend = HashBackend(
            depth=config.depth, late=None if config.late is None else Random(config.late)
        )
        self.engine: StepEngine
        self.lives: list[Live] = []
        self.seen: Counter[str] = Counter()
        self.is_faulty = False  # a step was made to fail, so that requests may

    async def run(self, scenario: Scenario) -> Counter[str]:
        c = self.config
        self.engine = await open_engine(
            self.backend, c.states, Limits(c.chunk, c.parallel), context=c.context, n_pages=c.n_pages
        )
        for action in scenario.actions:
            await self._act(action)
            self.check()
        await self.end()
        self.seen.update(asdict(self.engine.counters))
        return self.seen

    async def _act(self, action: Action) -> None:
        self.seen[action.verb] += 1
        if action.ask:
            self.submit(action.ask)
        elif action.verb in ("step", "gather", "lose", "break"):
            await getattr(self, f"_{action.verb}")(action.n)
        elif self.lives:
            await getattr(self, f"_{action.verb}")(self.lives[action.at % len(self.lives)], action.n)

    def submit(self, ask: Ask) -> None:
        want = [] if ask.all_logits else oracle(self.config.states, ask)
        eos_ids: frozenset[int] = frozenset()
        if ask.ends_at is not None and want:
            eos_ids = frozenset({want[ask.ends_at]})
            want = want[: want.index(want[ask.ends_at])]
        stream = self.engine.submit(self._request(ask, eos_ids))
        self.lives.append(Live(stream, ask, want))

    @staticmethod
    def _request(ask: Ask, eos_ids: frozenset[int]) -> Request:
        return Request(
            prompt_ids=ask.prompt,
            sampling=SamplingParams(temperature=ask.temperature, seed=ask.seed),
            max_tokens=None if ask.all_logits else ask.max_tokens,
            eos_ids=eos_ids,
            constraint=(lambda: EveryNth(ask.guided)) if ask.guided else None,
            all_logits=ask.all_logits,
        )

    async def _step(self, n: int) -> None:
        for _ in range(n):
            await self.engine.step()

    async def _read(self, live: Live, n: int) -> None:
        """The next `n` events; a request whose step failed is over."""
        try:
            for _ in range(n):
                event = await anext(live.stream)
                if event.token_id is not None:
                    live.got.append(event.token_id)
        except StopAsyncIteration:
            self._ended(live)
        except BackendError:
            assert self.is_faulty, "no step failed"
            self.seen["failed"] += not live.is_over
            live.is_over = True

    def _ended(self, live: Live) -> None:
        done = live.stream.completion
        assert done.token_ids == live.got, "the completion differs from the events"
        self.seen[done.finish_reason] += not live.is_over
        live.is_over = True
        if done.finish_reason in ENDS:
            assert live.got == live.want, f"ended early: {live.got}, expected {live.want}"
            self._check_logits(live)

    def _check_logits(self, live: Live) -> None:
        if not live.ask.all_logits:
            return
        ids, states = live.ask.prompt, self.config.states
        want = [drawn(tuple(views_of(states, ids[: i + 1]))) for i in range(len(ids))]
        assert [list(row).index(0.0) for row in live.stream.logits] == want, "wrong logits"

    async def _gather(self, n: int) -> None:
        await asyncio.gather(*(self._read(live, n) for live in self.lives))

    async def _finish(self, live: Live, n: int) -> None:
        while not live.is_over:
            await self._read(live, n)

    async def _cancel(self, live: Live, n: int) -> None:
        self.engine.cancel(live.stream.id)

    async def _close(self, live: Live, n: int) -> None:
        await live.stream.aclose()

    async def _drop(self, live: Live, n: int) -> None:
        self.lives.remove(live)

    async def _interrupt(self, live: Live, n: int) -> None:
        """A task that reads is cancelled after some turns of the loop; events that it had taken are lost."""
        task = asyncio.create_task(self._finish(live, 1))
        for _ in range(n):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or not task.exception(), task.exception()

    async def _lose(self, n: int) -> None:
        """The read of a later step fails."""
        self._fault(self.backend.read_faults, n)

    async def _break(self, n: int) -> None:
        """A later step cannot be submitted."""
        self._fault(self.backend.run_faults, n)

    def _fault(self, faults: dict[int, Exception], n: int) -> None:
        self.is_faulty = True
        faults[len(self.backend.steps) + n] = BackendError("the device hiccupped", backend="hash")

    def check(self) -> None:
        for live in self.lives:
            live.check()

    async def end(self) -> None:
        """Every request to its end, and the engine idle."""
        await asyncio.gather(*(self._finish(live, 3) for live in self.lives))
        self.check()
        self.lives.clear()
        while await self.engine.step():
            pass
        assert self.backend.reads == sorted(set(self.backend.reads)), "steps are read once, in order"
        for complaint in leaks(self.engine):
            raise AssertionError(complaint)


def leaks(engine: StepEngine) -> Iterator[str]:
    """What is not as it must be in an idle engine."""
    if not engine.is_idle:
        yield "the engine is not idle"
    counters = engine.counters
    if counters.steps_submitted != counters.steps_retired:
        yield f"{counters.steps_submitted} steps submitted, {counters.steps_retired} retired"
