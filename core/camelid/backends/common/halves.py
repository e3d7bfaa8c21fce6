"""Float32 values as float16 bits and a power of two, for slots of adapters."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

EXPONENT = 15  # of the largest value's bound: 2**15 keeps a rounded value below the largest of float16, 65504


def halve(values: memoryview[float]) -> tuple[memoryview[int], float]:
    """The values divided by a power of two, as bits of float16, and the power.

    The largest value uses float16's range, so that the values of float16 files, and small ones, are exact.
    """
    floats: npt.NDArray[np.float32] = np.frombuffer(values.tobytes(), np.float32)
    largest = float(np.abs(floats).max(initial=0.0))
    exponent = int(np.frexp(largest)[1]) - EXPONENT
    halves = np.ldexp(floats, -exponent).astype(np.float16)
    return memoryview(halves.tobytes()).cast("H"), 2.0**exponent
