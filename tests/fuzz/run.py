"""Runs one case and judges it: its error, its time and its memory."""

from __future__ import annotations

import time
import traceback
import tracemalloc
from dataclasses import dataclass
from random import Random

from tests.fuzz.targets import Target

from camelid.errors import ModelFormatError, UnsupportedModelError

MAX_SECONDS = 2.0  # processor time of this thread
MAX_WAIT = 60.0  # wall-clock time, for a reader that blocks; longer than the work on a busy machine
MAX_PEAK = 64 << 20
MAX_MESSAGE = 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """`kind` is "read", an error's class, or "finding"; `why` describes a finding."""

    kind: str
    seconds: float
    peak: int
    size: int
    why: str = ""


def run_case(target: Target, rng: Random) -> tuple[bytes, Outcome]:
    """Makes a file and reads it. tracemalloc must be tracing."""
    data = target.make(rng)
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    begun, clock = time.thread_time(), time.perf_counter()
    kind, why = judge(target, data)
    seconds, waited = time.thread_time() - begun, time.perf_counter() - clock
    peak = tracemalloc.get_traced_memory()[1] - before
    limits = {
        f"{seconds:.1f} s of the processor": seconds > MAX_SECONDS,
        f"{waited:.1f} s": waited > MAX_WAIT,
        f"{peak >> 20} MiB": peak > MAX_PEAK,
    }
    over = [text for text, is_over in limits.items() if is_over]
    if over and kind != "finding":
        kind, why = "finding", f"a file of {len(data)} bytes took {over[0]}"
    return data, Outcome(kind, seconds, peak, len(data), why)


def judge(target: Target, data: bytes) -> tuple[str, str]:
    try:
        target.parse(data)
    except (ModelFormatError, UnsupportedModelError) as error:
        fault = bad_message(str(error))
        return ("finding", fault) if fault else (type(error).__name__, "")
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return "finding", f"{type(error).__name__} at {place.name}:{place.lineno}: {error!s:.200}"
    return "read", ""


def bad_message(message: str) -> str:
    """The fault of a message: terminals show errors, so they must be short and free of control characters."""
    if len(message) > MAX_MESSAGE:
        return f"a message of {len(message)} characters: {message[:80]!r}"
    return "" if message.isprintable() else f"a message that holds control characters: {message[:200]!r}"
