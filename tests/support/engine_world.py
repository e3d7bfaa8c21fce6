"""An engine over a shadow device, with the live requests of one fuzz scenario and their oracles."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from random import Random

from tests.support.engine_fakes import HashBackend, adapter_of, open_engine, open_slots
from tests.support.engine_leaks import leaks
from tests.support.engine_oracle import EveryNth, Guesses, Oracle, likeliest, until
from tests.support.engine_scenario import Action, Ask, Config, Scenario
from tests.support.shadow import VOCAB

from camelid.engine.engine import StepEngine
from camelid.engine.pace import BUSY_STEPS
from camelid.engine.request import Request
from camelid.engine.state_transfer import ExportedState
from camelid.engine.stream import Stream
from camelid.errors import BackendError, RequestError

ENDS = {"length", "stop"}
OF_ENGINE = {
    "step",
    "gather",
    "tick",
    "lose",
    "vanish",
    "break",
    "restore",
    "crowd",
    "deny",
}  # verbs that need no live request


@dataclass
class Live:
    """A live request: its expected answer, its events so far, and its submission time."""

    stream: Stream
    oracle: Oracle
    eos_ids: frozenset[int]
    want: list[int]
    got: list[int] = field(default_factory=list)
    is_over: bool = False
    since: float = 0.0

    @property
    def ask(self) -> Ask:
        return self.oracle.ask

    def check(self) -> None:
        assert self.got == self.want[: len(self.got)], f"answered {self.got}, expected {self.want}"


class World:
    """Runs one scenario. `seen` counts events, `now` is the engine's clock."""

    engine: StepEngine

    def __init__(self, config: Config) -> None:
        self.config = config
        late = None if config.late is None else Random(config.late)
        depth = config.depth if config.n_stages == 1 else config.n_stages
        self.backend = HashBackend(
            depth=depth, late=late, row_buckets=config.row_buckets, n_stages=config.n_stages
        )
        self.lives: list[Live] = []
        self.saved: list[tuple[tuple[int, ...], ExportedState]] = []
        self.seen: Counter[str] = Counter()
        self.is_faulty = False  # a fault was injected, so requests may fail
        self.now = 1.0

    async def run(self, scenario: Scenario) -> Counter[str]:
        c = self.config
        self.engine = await open_engine(
            self.backend,
            c.states,
            c.limits,
            n_pages=c.n_pages,
            clock=self._clock,
            first_checkpoint=c.first_checkpoint,
        )
        await open_slots(self.engine, c.slots)
        for action in scenario.actions:
            await self._act(action)
            self.check()
        await self.end()
        self.seen.update(asdict(self.engine.counters), slot_loads=self.engine.adapters.n_loads)
        return self.seen

    async def _act(self, action: Action) -> None:
        self.seen[action.verb] += 1
        if action.ask:
            self.submit(action.ask)
        elif action.verb in OF_ENGINE:
            await getattr(self, f"_{action.verb}")(action.n)
        elif self.lives:
            await getattr(self, f"_{action.verb}")(self.lives[action.at % len(self.lives)], action.n)

    def submit(self, ask: Ask) -> None:
        oracle = Oracle(self.config.states, ask, self.engine.context)
        answer = [] if ask.all_logits else oracle.answer()
        ends = ask.ends_at is not None and ask.ends_at < len(answer)
        eos_ids = frozenset({answer[ask.ends_at or 0]} if ends else ())
        self.is_faulty |= ask.falters
        stream = self.engine.submit(self._request(ask, eos_ids))
        self.lives.append(Live(stream, oracle, eos_ids, until(answer, eos_ids), since=self.now))

    def _request(self, ask: Ask, eos_ids: frozenset[int]) -> Request:
        states = self.config.states
        return Request(
            prompt_ids=ask.prompt,
            sampling=ask.params,
            max_tokens=None if ask.all_logits else ask.max_tokens,
            eos_ids=eos_ids,
            constraint=(lambda: EveryNth(ask.guided, late=len(ask.prompt) % 4)) if ask.guided else None,
            proposer=None if ask.guesses is None else lambda: Guesses(states, ask),
            all_logits=ask.all_logits,
            overflow=ask.overflow,
            n_keep=ask.n_keep,
            priority=ask.priority,
            queue_timeout_s=ask.queue_timeout_s,
            timeout_s=ask.timeout_s,
            is_atomic=ask.is_atomic,
            reuses=ask.reuses,
            salt=ask.salt,
            adapter=adapter_of(ask.adapter, Oracle(states, ask, 0).invocation) if ask.adapter else None,
        )

    async def _step(self, n: int) -> None:
        for _ in range(n):
            await self.engine.step()

    async def _read(self, live: Live, n: int) -> None:
        """Reads the next `n` events; drops a failed request."""
        try:
            for _ in range(n):
                event = await anext(live.stream)
                if event.token_id is not None:
                    live.got.append(event.token_id)
        except StopAsyncIteration:
            self._ended(live)
        except BackendError:
            assert self.is_faulty, "a request failed without an injected fault"
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
        if done.finish_reason == "timeout":
            bounds = [s for s in (live.ask.timeout_s, live.ask.queue_timeout_s) if s is not None]
            assert bounds, "a request without a timeout timed out"
            assert self.now >= live.since + min(bounds), "a request timed out early"
            if live.ask.timeout_s is None or self.now < live.since + live.ask.timeout_s:
                assert not done.timings.n_steps, "a running request timed out in the queue"

    def _check_logits(self, live: Live) -> None:
        if not live.ask.all_logits:
            return
        states, oracle = self.config.states, live.oracle
        ids = oracle.stored(live.ask.prompt, oracle.adapter_from(live.ask.prompt))
        want = [likeliest(states, ids[: i + 1]) for i in range(len(ids))]
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
        """Cancels a reading task after some turns of the event loop."""
        task = asyncio.create_task(self._finish(live, 1))
        for _ in range(n):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or not task.exception(), task.exception()

    async def _fork(self, live: Live, n: int) -> None:
        """Forks a request that has at least one token, with choice `n`."""
        await self._read(live, 1)
        try:
            stream = await self.engine.fork(live.stream.id, choice=n)
        except RequestError:
            self.seen["fork refused"] += 1
            return
        begun = self.engine._sequences[stream.id].answer_ids
        oracle = replace(live.oracle, choices=(*live.oracle.choices, (len(begun), n)))
        want = until(oracle.answer(), live.eos_ids)
        self.lives.append(Live(stream, oracle, live.eos_ids, want, list(begun), since=self.now))

    async def _again(self, live: Live, n: int) -> None:
        """Submits the next turn of a conversation: most or all of the tokens so far, and `n` more."""
        said = (*live.ask.prompt, *live.got)
        said = said[: max(len(said) - n % 4, 1)]
        prompt = (*said, *(1 + (997 * i + len(said)) % (VOCAB - 1) for i in range(n)))
        ask = replace(live.ask, prompt=prompt, max_tokens=4, all_logits=False, is_atomic=False, ends_at=None)
        ask = replace(ask, invocation=min(ask.invocation, len(prompt)))
        if len(prompt) + 4 <= self.config.most_rows:
            self.submit(ask)

    async def _tick(self, n: int) -> None:
        self.now += n

    async def _export(self, live: Live, n: int) -> None:
        token_ids = (*live.ask.prompt, *live.got)
        exported = await self.engine.export_rows(token_ids, live.ask.salt)
        self.seen["exported"] += exported.n_rows
        self.saved.append((token_ids[: exported.n_rows], exported))

    async def _restore(self, n: int) -> None:
        """Imports the first saved session, for requests that share no pages with its origin."""
        if not self.saved:
            return
        token_ids, exported = self.saved.pop(0)
        try:
            n_rows = await self.engine.import_rows(token_ids, exported, "other")
        except RequestError:
            self.seen["restore refused"] += 1
            return
        except BackendError:
            assert self.is_faulty, "the import met no denied write"
            return
        assert n_rows >= exported.n_rows, "the imported tokens are not in the prefix cache"
        self.seen["restored"] += n_rows

    async def _crowd(self, n: int) -> None:
        """Runs tasks concurrently: all requests read, while one forks, one saves and one closes."""
        lives = list(self.lives)
        others = (self._fork, self._export, self._close)
        beside = [act(lives[(n + i) % len(lives)], n) for i, act in enumerate(others) if lives]
        await asyncio.gather(*(self._read(live, n) for live in lives), *beside, self._restore(n))

    async def _lose(self, n: int) -> None:
        """Makes the read of a later step fail."""
        self._fault(self.backend.read_faults, n)

    async def _vanish(self, n: int) -> None:
        """Loses the device; no request fails."""
        self.backend.is_lost = True

    async def _deny(self, n: int) -> None:
        """Makes the next write to the state fail."""
        self.is_faulty, self.backend.denies_write = True, True

    async def _break(self, n: int) -> None:
        """Makes the submission of a later step fail."""
        self._fault(self.backend.run_faults, n)

    def _fault(self, faults: dict[int, Exception], n: int) -> None:
        self.is_faulty = True
        faults[len(self.backend.steps) + n] = BackendError("the device hiccupped", backend="hash")

    def _clock(self) -> float:
        """Advances little, so that steps look short and many run ahead."""
        self.now += 1e-6
        return self.now

    def check(self) -> None:
        for live in self.lives:
            live.check()

    async def end(self) -> None:
        """Runs every request to its end; the engine must be idle afterwards."""
        await asyncio.gather(*(self._finish(live, 3) for live in self.lives))
        self.check()
        self.lives.clear()
        while await self.engine.step():
            pass
        reads, most = self.backend.reads, (self.backend.depth + 1) // 2  # late reads, at most
        n_ahead, is_staged = self.engine.counters.max_in_flight, self.backend.n_stages > 1
        self.seen["staged" if is_staged else "ahead"] += n_ahead > BUSY_STEPS
        assert len(set(reads)) == len(reads), "a step was read twice"
        ranks = {number: rank for rank, number in enumerate(sorted(reads))}  # a failed step is never read
        late = [abs(at - ranks[number]) for at, number in enumerate(reads)]
        assert max(late, default=0) < most, "reads are out of order beyond steps that retire together"
        for complaint in leaks(self.engine):
            raise AssertionError(complaint)
