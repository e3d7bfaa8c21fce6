"""Counters of an engine, statistics of its steps, and hooks that receive them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from camelid.plan.step import FROM_RING, Capacity, Step

T = TypeVar("T")


@dataclass(slots=True)
class Counters:
    """Totals since the engine started.

    Tests assert on them, so that a feature that never engaged cannot pass.
    """

    requests: int = 0
    steps_submitted: int = 0
    steps_retired: int = 0
    max_in_flight: int = 0
    decode_rows: int = 0
    retired_decode_rows: int = 0
    prefill_rows: int = 0
    unused_rows: int = 0  # program capacity that steps left unused
    # rows that read their token id from the device's ring, so that a step really ran ahead
    ring_rows: int = 0
    discarded_rows: int = 0  # rows retired after their sequence had ended
    failed_steps: int = 0
    encoded: int = 0  # texts encoded
    hosted_rows: int = 0  # rows whose token the host drew
    guided_rows: int = 0  # host-drawn rows under a grammar
    redrawn_rows: int = 0  # grammar rows whose token differs from the device's draw
    late_masks: int = 0  # grammar rows that waited for their mask
    full_logits_rows: int = 0  # rows repeated with all logits, since their candidates proved no draw
    prefix_hits: int = 0  # sequences that started after a prefix-cache hit
    cached_rows: int = 0  # rows of prefix-cache hits
    preemptions: int = 0  # preempted sequences
    evicted_units: int = 0  # units evicted from the prefix cache
    copied_units: int = 0  # shared units copied before a write
    forks: int = 0
    shifted: int = 0  # context shifts
    drafted: int = 0  # draft tokens verified
    accepted: int = 0  # draft tokens accepted
    timeouts: int = 0
    lost_steps: int = 0  # in flight when the device was lost
    recoveries: int = 0  # lost devices that were opened again

    def count_step(self, step: Step, capacity: Capacity, *, n_decode: int, n_drafts: int) -> None:
        """Adds a submitted step of a program with this capacity."""
        self.steps_submitted += 1
        self.decode_rows += n_decode
        self.prefill_rows += len(step.rows) - n_decode
        self.unused_rows += capacity.rows - len(step.rows)
        self.ring_rows += sum(row.source == FROM_RING for row in step.rows)
        self.copied_units += len(step.copies)
        self.drafted += n_drafts


@dataclass(frozen=True, slots=True)
class StepStats:
    """A retired step: its program, its sequences and rows, and its seconds."""

    program: str
    n_sequences: int
    n_rows: int
    seconds: float


StepHook: TypeAlias = Callable[[StepStats], object]


def notify(hooks: Iterable[Callable[[T], object]], facts: T) -> None:
    """Calls the hooks. A hook's exception goes to the event loop's exception handler."""
    for hook in hooks:
        try:
            hook(facts)
        except Exception as error:
            context = {"message": "a hook failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """The present load of an engine.

    Bytes of state: referenced by requests, cached for prefixes, and in all. Names of the adapters of running
    and of waiting sequences.
    """

    n_running: int
    n_waiting: int
    held_bytes: int
    cached_bytes: int
    total_bytes: int
    running_adapters: tuple[str, ...] = ()
    waiting_adapters: tuple[str, ...] = ()
