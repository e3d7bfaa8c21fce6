"""Counters of an engine, statistics of its steps, and hooks that receive them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(slots=True)
class Counters:
    """What an engine has done. Tests assert on these, so that a feature that never engaged cannot pass."""

    requests: int = 0
    steps_submitted: int = 0
    steps_retired: int = 0
    max_in_flight: int = 0
    decode_rows: int = 0
    retired_decode_rows: int = 0
    prefill_rows: int = 0
    unused_rows: int = 0  # rows of programs beyond those of their steps
    ring_rows: int = 0  # rows whose id the host had not read yet: run-ahead really happened
    discarded_rows: int = 0  # rows whose result came after their sequence had ended
    failed_steps: int = 0
    hosted_rows: int = 0  # rows whose token the host drew
    guided_rows: int = 0  # of these, rows whose token a grammar had to let through
    redrawn_rows: int = 0  # of these, rows whose token is not what the device drew
    full_logits_rows: int = 0  # rows that ran again, since their candidates proved no draw
    prefix_hits: int = 0  # times that a sequence found its first rows computed
    cached_rows: int = 0  # rows that were found
    preemptions: int = 0  # times that a running sequence was sent back to wait
    evicted_units: int = 0  # units that held what nobody had asked for again
    copied_units: int = 0  # units copied since two held them and one wrote
    forks: int = 0
    shifted: int = 0  # times that a full context dropped tokens
    drafted: int = 0  # tokens proposed by speculation
    accepted: int = 0  # of these, tokens that the model drew itself
    timeouts: int = 0


@dataclass(frozen=True, slots=True)
class StepStats:
    """A step that has retired: its program, how many sequences and rows it had, and the seconds it took."""

    program: str
    n_sequences: int
    n_rows: int
    seconds: float


StepHook: TypeAlias = Callable[[StepStats], object]


def notify(hooks: Iterable[StepHook], facts: StepStats) -> None:
    """Calls the hooks. What one raises is the event loop's to report, as with any callback of it."""
    for hook in hooks:
        try:
            hook(facts)
        except Exception as error:
            context = {"message": "a hook that was told of a step failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """How an engine is doing now. Bytes are of state: held by requests, kept for prefixes, and in all."""

    n_running: int
    n_waiting: int
    held_bytes: int
    cached_bytes: int
    total_bytes: int
