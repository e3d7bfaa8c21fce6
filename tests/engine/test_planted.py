"""Bugs planted in the engine, one at a time: each must fail a guard that passes without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.support.engine_fakes import HashBackend
from tests.support.engine_fuzz import Failure, attempt
from tests.support.engine_scenario import Action, Ask, Config, Scenario

from camelid.engine import engine
from camelid.engine.adapters import AdapterSlots, RowKeys
from camelid.engine.allocation import UnitPool
from camelid.engine.checkpoints import RecurrentSlots
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.prefix_cache import PrefixCache, PrefixReuse
from camelid.engine.scheduler import Scheduler
from camelid.engine.sequence import Sequence
from camelid.errors import PlanError
from camelid.sampling.params import SamplingParams

PROMPT = tuple(range(100, 113))
OTHER = tuple(range(300, 311))
MASKED = tuple(range(100, 115))  # the masks of a guided request wait for 3 looks, as 15 is 4n + 3


def submit(prompt: Iterable[int] = PROMPT, /, **more: Any) -> Action:
    return Action("submit", ask=Ask(prompt=tuple(prompt), **more))


def scenario(*actions: Action, **config: Any) -> Scenario:
    return Scenario(Config(**config), actions)


READ, FINISH = Action("read", n=3), Action("finish", n=20)
FEW: dict[str, Any] = {"n_pages": 6, "context": 24}  # pages for one request
LONG: dict[str, Any] = {"max_tokens": 11}
# Guards pass without a bug. A bug shows in the oracle's ids or as unfreed units of an idle engine.
GUARDS = {
    "two at once": scenario(submit(), submit(OTHER), Action("gather", n=20)),
    "second turn": scenario(submit(), FINISH, Action("again", n=3)),
    "evicted, then again": scenario(submit(), FINISH, submit(OTHER), FINISH, submit(), parallel=1, **FEW),
    "dropped": scenario(submit(), Action("step", n=2), Action("drop"), submit(OTHER)),
    "window": scenario(submit(**LONG), submit(OTHER), model=("window", "tokens"), parallel=2),
    "fork": scenario(submit(sampling="drawn", **LONG), READ, Action("fork", n=1)),
    "turn taken back": scenario(
        submit(max_tokens=6), FINISH, Action("again", n=2), Action("step", n=1), Action("again", n=4), depth=1
    ),
    "two second turns": scenario(
        submit(range(100, 136)), submit(range(300, 336)), FINISH, Action("finish", 1, 20),
        Action("again", n=1), Action("again", 1, 1), n_pages=40,
    ),
    "lost": scenario(submit(), Action("lose", n=1), FINISH, submit()),
    "vanished": scenario(submit(sampling="drawn", **LONG), READ, Action("vanish"), READ, submit(), depth=2),
    "fork, parent gone": scenario(
        submit(**LONG), READ, Action("fork", n=1), Action("cancel"), submit(OTHER), submit(OTHER[1:]), **FEW
    ),
    "fork with penalties": scenario(submit(sampling="penalised", **LONG), READ, Action("fork", n=1)),
    "guesses": scenario(submit(guesses=1, **LONG)),
    "guesses, recurrent": scenario(submit(guesses=1, **LONG), model=("kv", "recurrent", "tokens")),
    "begun alike, recurrent": scenario(
        submit(range(100, 128)), FINISH, submit((*range(100, 118), 7, 8), **LONG), FINISH,
        submit((*range(100, 118), 9), **LONG), model=("kv", "recurrent", "tokens"), parallel=1,
    ),
    "shift": scenario(submit(overflow="shift", sampling="drawn", max_tokens=30), context=20),
    "preempted": scenario(submit(), READ, submit(OTHER, priority=1), **FEW),
    "found, with penalties": scenario(
        submit(), FINISH, submit(OTHER), FINISH, submit((*PROMPT, 5), sampling="penalised"), parallel=1
    ),
    "adapters in turn": scenario(
        submit(adapter=1), FINISH, submit(adapter=2), FINISH, submit(adapter=1), FINISH, submit(), slots=1,
    ),
    "adapters at once": scenario(submit(adapter=1), submit(adapter=2), submit(), Action("gather", n=20)),
    "activated": scenario(
        submit(), FINISH, submit(adapter=1, invocation=6), FINISH, submit(adapter=2, invocation=6), FINISH,
        submit(), parallel=1,
    ),
    "activated at first": scenario(submit(adapter=1, invocation=6), submit(OTHER)),
    "adapter, vanished": scenario(submit(adapter=1), READ, Action("vanish"), READ, submit(adapter=1)),
    "fork, mask late": scenario(
        submit(MASKED, guided=5, **LONG), Action("read", n=1), Action("step", n=1), Action("fork", n=1)
    ),
}  # fmt: skip
Plant = Callable[[pytest.MonkeyPatch], None]


def patched(owner: object, name: str, wrap: Callable[[Any], Any]) -> Plant:
    """Replaces a function by `wrap` of it."""
    return lambda monkeypatch: monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))


def nothing(right: object) -> Callable[..., None]:
    return lambda *args: None


def no_history(write: object) -> Callable[..., Any]:
    async def wrong(*args: Any) -> None:
        """The ring holds another request's tokens."""

    return wrong


def later_rope(row: Any) -> Any:
    def wrong(self: Sequence, number: int, state_row: int) -> Any:
        return row(self, number, state_row)._replace(positions=(state_row + 1,))

    return wrong


def later_draw(build: Any) -> Any:
    def wrong(*args: Any) -> Any:
        step = build(*args)
        step.outputs = [(row, sequence, position + 1) for row, sequence, position in step.outputs]
        return step

    return wrong


def swapped_pages(grow: Any) -> Any:
    """The device receives two pages in swapped order."""

    def wrong(self: KVCacheManager, *args: Any) -> Any:
        change = grow(self, *args)
        if change is None or len(change.updates) < 2:
            return change
        (*first, unit), (*second, other), *rest = change.updates
        return replace(change, updates=[(*first, other), (*second, unit), *rest])

    return wrong


def page_of_another(grow: Any) -> Any:
    """Every second page is the one last allocated to another sequence."""
    units: list[int] = []

    def wrong(self: KVCacheManager, *args: Any) -> Any:
        change = grow(self, *args)
        if change is None or not change.updates:
            return change
        *first, unit = change.updates[-1]
        units.append(unit)
        return replace(change, updates=[*change.updates[:-1], (*first, units[-2:][0])])

    return wrong


def at_once(free: Any) -> Any:
    """A unit is freed at the first release; the last release does nothing."""

    def wrong(self: UnitPool, unit: int) -> None:
        if self._ref_counts[unit]:
            self._ref_counts[unit] = 1
            free(self, unit)

    return wrong


def one_page_early(free_pages: Any) -> Any:
    """A window frees a page that the next row still reads."""

    def wrong(self: KVCacheManager, allocation: Any, state: Any, first: int) -> None:
        free_pages(self, allocation, state, first + 1)

    return wrong


def in_place(make_writable: Any) -> Any:
    """A shared page is written without a copy."""

    def wrong(self: KVCacheManager, *args: Any) -> list[Any]:
        return []

    return wrong


def checkpoint_in_place(make_writable: Any) -> Any:
    """The next step writes a slot that the prefix cache still lists."""

    def wrong(self: RecurrentSlots, *args: Any) -> None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(RecurrentSlots, "_is_checkpoint", lambda *_: False)
            monkeypatch.setattr(PrefixReuse, "invalidate", nothing(None))
            make_writable(self, *args)

    return wrong


def one_short(rollback: Any) -> Any:
    def wrong(self: Sequence, n_rows: int) -> None:
        rollback(self, n_rows - 1)

    return wrong


def without(*names: str) -> Callable[[Any], Any]:
    """Sampling words that are the same for every choice, or after every shift."""

    def wrap(words: Any) -> Any:
        def wrong(self: SamplingParams, choice: int = 0, offset: int = 0) -> Any:
            given = {"choice": choice, "offset": offset}
            return words(self, **(given | dict.fromkeys(names, 0)))

        return wrong

    return wrap


def rows_kept(attach: Any) -> Any:
    """A preempted request continues as if its rows were still stored."""

    def wrong(self: Sequence, allocation: Any) -> None:
        attach(self, allocation)
        if self.n_steps:
            self.n_rows = self.n_retired = len(self.token_ids) - 1

    return wrong


def not_late(fork: Any) -> Any:
    """A fork has the row of its parent, but not the row's result."""

    def wrong(self: Sequence, *args: Any) -> Sequence:
        child = fork(self, *args)
        child.late = None
        return child

    return wrong


def uncounted(most_updates: object) -> Callable[..., int]:
    return lambda *args: 0


def not_retired(n_valid: property) -> property:
    """Rows of unfinished steps count as valid."""
    return property(lambda self: min(self.n_rows, len(self.token_ids)))


def unhidden(make_writable: Any) -> Any:
    """The prefix cache still lists a page that its only holder writes."""

    def wrong(self: KVCacheManager, *args: Any) -> list[Any]:
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(PrefixReuse, "invalidate", nothing(None))
            monkeypatch.setattr(PrefixReuse, "n_rows_in", lambda *_: 0)  # as if nobody else read it
            return make_writable(self, *args)

    return wrong


@dataclass(frozen=True)
class Bug:
    """A bug, the guard that must detect it, and the patch that plants it."""

    name: str
    guard: str
    plant: Plant

    def __str__(self) -> str:
        return self.name


BUGS = (
    Bug("position off by one", "two at once", patched(Sequence, "row", later_rope)),
    Bug("position of a draw off by one", "two at once", patched(engine, "build_step", later_draw)),
    Bug("wrong page in the cache", "second turn", patched(KVCacheManager, "grow", swapped_pages)),
    Bug("wrong page of another", "two at once", patched(KVCacheManager, "grow", page_of_another)),
    Bug("stale freed page in the cache", "evicted, then again", patched(PrefixCache, "remove_unit", nothing)),
    Bug(
        "stale freed page in a window", "window",
        patched(KVCacheManager, "_free_window_pages", one_page_early),
    ),
    Bug("leaked stream", "dropped", patched(Scheduler, "remove", nothing)),
    Bug("unit reused before its reader finished", "fork, parent gone", patched(UnitPool, "free", at_once)),
    Bug("table changes not counted", "two second turns", patched(KVCacheManager, "most_updates", uncounted)),
    Bug("rows in the cache before they are computed", "lost", patched(Sequence, "n_valid", not_retired)),
    Bug(
        "cached unit written in place", "turn taken back",
        patched(KVCacheManager, "_make_writable", unhidden),
    ),
    Bug("shared unit written in place", "fork", patched(KVCacheManager, "_make_writable", in_place)),
    Bug("rollback one row short", "guesses", patched(Sequence, "rollback", one_short)),
    Bug("rollback one slot short", "guesses, recurrent", patched(KVCacheManager, "rollback", nothing)),
    Bug(
        "checkpoint written in place", "begun alike, recurrent",
        patched(RecurrentSlots, "make_writable", checkpoint_in_place),
    ),
    Bug("redraw with the same number, forked", "fork", patched(SamplingParams, "words", without("choice"))),
    Bug("redraw with the same number, shifted", "shift", patched(SamplingParams, "words", without("offset"))),
    Bug("preempted, and rows kept", "preempted", patched(Sequence, "attach", rows_kept)),
    Bug("fork of a late row", "fork, mask late", patched(Sequence, "fork", not_late)),
    Bug("a lost device's pages in the cache", "vanished", patched(KVCacheManager, "forget_all", nothing)),
    Bug("a lost device's steps in flight", "vanished", patched(Sequence, "lose_steps", nothing)),
    Bug("fork without history", "fork with penalties", patched(HashBackend, "write_state", no_history)),
    Bug("found without history", "found, with penalties", patched(HashBackend, "write_state", no_history)),
)  # fmt: skip


BUGS_OF_ADAPTERS = (
    Bug("rows of another adapter in the cache", "adapters in turn",
        patched(RowKeys, "salt", lambda right: lambda self, salt: salt)),
    Bug("an evicted slot is not written", "adapters in turn", patched(AdapterSlots, "write", no_history)),
    Bug("slots kept by finished requests", "adapters at once", patched(AdapterSlots, "release", nothing)),
    Bug("one slot for all", "adapters at once",
        patched(Sequence, "active_slot", lambda right: property(lambda self: 1))),
    Bug("activated from the first row on", "activated at first",
        patched(Sequence, "active_slot", lambda right: property(lambda self: self.adapter_slot))),
    Bug("rows behind the activation in the cache", "activated",
        patched(RowKeys, "ids", lambda right: lambda self, token_ids: token_ids)),
    Bug("a lost device's slots", "adapter, vanished", patched(AdapterSlots, "clear", nothing)),
)  # fmt: skip


@pytest.mark.parametrize("guard", GUARDS)
def test_guard_is_green(guard: str) -> None:
    outcome = attempt(GUARDS[guard])
    assert not isinstance(outcome, Failure), str(outcome)


@pytest.mark.parametrize("bug", (*BUGS, *BUGS_OF_ADAPTERS), ids=str)
def test_planted_bug_turns_its_guard_red(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    outcome = attempt(GUARDS[bug.guard])
    assert isinstance(outcome, Failure), f"{bug.guard} did not detect it"
    assert isinstance(outcome.error, AssertionError | PlanError), "the patched code never ran"
