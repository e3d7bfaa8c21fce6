"""The numbers of slots: which choice takes which, and what a slot remembers."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from camelid.engine.adapters import NO_ADAPTER, RowKeys
from camelid.requests.output_text import Event
from camelid.server.service.host import Batch
from camelid.server.service.slots import IDLE_TAG, Slots, n_common


@dataclass(eq=False)
class Job:
    """The parts of a job that slots read."""

    n: int = 1
    id_slot: int = -1


@dataclass(eq=False)
class Request:
    """The parts of a request that slots read."""

    prompt_ids: tuple[int, ...] = (1, 2)
    salt: str = ""
    row_keys: RowKeys = NO_ADAPTER


@dataclass(eq=False)
class Started:
    """A job under way."""

    job: Job = field(default_factory=Job)
    request: Request = field(default_factory=Request)
    slot_ids: dict[int, int] = field(default_factory=dict[int, int])


@dataclass
class Done:
    """A completion."""

    token_ids: list[int]
    finish_reason: str = "stop"


def start(slots: Slots, **job: int) -> Any:
    started: Any = Started(Job(**job))
    slots.submitted(started)
    return started


def end(slots: Slots, started: Any, choice: int = 0, *token_ids: int) -> None:
    done: Any = Done(list(token_ids))
    slots.advanced(started, Batch(choice, (Event("a\n", 1, 0.0),), done))


def test_the_lowest_free_number_or_the_wanted_one() -> None:
    slots = Slots(4)
    assert [start(slots).slot_ids[0] for _ in range(2)] == [0, 1]
    assert start(slots, id_slot=3).slot_ids == {0: 3}
    assert start(slots, id_slot=3).slot_ids == {0: 2}, "a wanted number that is taken is no reason to wait"


def test_choices_beyond_the_slots_wait_in_order() -> None:
    slots = Slots(2)
    first, second, third = start(slots, n=2), start(slots), start(slots)
    assert (first.slot_ids, second.slot_ids, third.slot_ids) == ({0: 0, 1: 1}, {}, {})
    end(slots, first, 1)
    assert (second.slot_ids, third.slot_ids) == ({0: 1}, {})
    slots.closed(second)
    assert third.slot_ids == {0: 1}
    slots.closed(first)
    slots.closed(third)
    assert not any(slot.holder for slot in slots)


def test_a_job_that_leaves_the_queue_gets_no_slot() -> None:
    slots = Slots(1)
    first, second = start(slots), start(slots)
    slots.closed(second)
    slots.closed(first)
    assert second.slot_ids == {}
    assert slots[0].holder is None


def test_a_slot_remembers_what_it_held() -> None:
    slots = Slots(1)
    started = start(slots)
    slots.advanced(started, Batch(0, (Event("x\n", 5, 0.0), Event("y", 6, 0.0))))
    assert slots[0].holder is not None
    assert (slots[0].holder.n_decoded, slots[0].holder.has_new_line) == (2, True)
    end(slots, started, 0, 5, 6, 7)
    assert slots[0].token_ids == (1, 2, 5, 6, 7)
    slots.closed(started)
    assert slots[0].token_ids == (1, 2, 5, 6, 7), "its end is no second end"
    slots.closed(start(slots))
    assert slots[0].token_ids == (1, 2), "a cancelled one leaves its prompt"


def test_shared_tokens_count_within_a_salt_only() -> None:
    slots = Slots(3)
    slots[0].remember((1, 2, 3, 4), "a")
    slots[1].remember((1, 2, 9), "a")
    slots[2].remember((1, 2, 3, 4), "b")
    assert slots.n_shared(slots[0]) == 2
    assert slots.n_shared(slots[2]) == 0
    assert n_common((), (1,)) == 0


def test_waiting_for_an_idle_slot() -> None:
    async def waits() -> bool:
        slots = Slots(1)
        started = start(slots)
        waiting = asyncio.ensure_future(slots[0].idle())
        await asyncio.sleep(0)
        was_done = waiting.done()
        end(slots, started)
        await asyncio.wait_for(waiting, 1)
        await asyncio.wait_for(slots[0].idle(), 1)
        return was_done

    assert asyncio.run(waits()) is False


def test_debug_lines_name_each_idle_slot_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "camelid.server")

    def lines() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    slots = Slots(2)
    end(slots, start(slots, id_slot=0), 0, 7)
    assert lines() == []
    end(slots, start(slots, id_slot=1), 0, 8)
    assert [IDLE_TAG in line and "slot 0 is idle" in line for line in lines()] == [True]
    end(slots, start(slots), 0, 7)
    assert [("updating prompt cache" in line, IDLE_TAG in line) for line in lines()] == [
        (True, False), (False, True)
    ]  # fmt: skip
    start(slots)
    assert not any(IDLE_TAG in line for line in lines()), "slot 1 was named before"
    quiet = Slots(2)
    quiet.logs_idle = False
    end(quiet, start(quiet, id_slot=0), 0, 7)
    start(quiet, id_slot=1)
    assert lines() == []
