"""A limit on the processor time of one thread, which no other thread or process lengthens."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

REFERENCE_S = 0.08  # of `slowness`' loop on the machine that the limits are for


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fails if the block takes this thread longer; linear work is far below a limit, quadratic far above.

    The seconds are those of a reference machine: a slower one has more.
    """
    gc.collect()
    gc.freeze()  # else full collections look at the objects of all earlier tests
    begun = time.thread_time()
    try:
        yield
        took = time.thread_time() - begun
    finally:
        gc.unfreeze()
    if took >= seconds:
        took /= slowness()
    assert took < seconds, f"{took:.2f} s of the processor, expected less than {seconds:g} s"


def slowness() -> float:
    """The time of this machine for a loop, in multiples of the reference machine's; at least 1."""
    begun = time.thread_time()
    assert sum(i * i for i in range(1_000_000)) > 0
    return max(1.0, (time.thread_time() - begun) / REFERENCE_S)
