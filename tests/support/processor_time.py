"""A limit on the processor time of one thread, which no other thread or process lengthens."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fails if the block takes this thread longer, also a block that raises.

    The collector leaves out the objects of earlier tests, of which a process has millions.
    """
    gc.freeze()
    begun = time.thread_time()
    try:
        yield
    finally:
        took = time.thread_time() - begun
        gc.unfreeze()
        assert took < seconds, f"{took:.2f} s of the processor, expected less than {seconds:g} s"
