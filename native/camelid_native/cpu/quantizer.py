"""Quantization of rows in C, with the bits of camelid/backends/common/quantizers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from camelid.backends.common.codecs import check_finite
from camelid.backends.common.quantizers.rows import NumpyQuantizer, searches
from camelid.formats.quants import row_bytes
from camelid_native.cpu.api import Library


class CpuQuantizer:
    """Quantizes on the calling thread, without Python's lock: callers with several threads use all cores.

    Raises BackendError if the library is missing or this machine does not support the variant.
    """

    def __init__(self, variant: str = "") -> None:
        self._library = Library(variant)

    def rows(
        self, name: str, values: npt.NDArray[np.float32], importance: npt.NDArray[np.float32] | None = None
    ) -> npt.NDArray[np.uint8]:
        """Quantizes `values` [rows, cols] to uint8 [n_bytes]; see `quantizers.RowQuantizer.rows`."""
        values = np.ascontiguousarray(values, np.float32)
        check_finite(name, values)
        n_rows, cols = values.shape
        blocks = np.empty(n_rows * row_bytes(name, cols), np.uint8)
        if searches(name, importance):
            weights = None if importance is None else np.ascontiguousarray(importance, np.float32)
            at = None if weights is None else weights.ctypes.data
            done = self._library.quantize(name, values.ctypes.data, at, cols, values.size, blocks.ctypes.data)
        else:
            done = self._library.encode(name, values.ctypes.data, values.size, blocks.ctypes.data)
        return blocks if done else NumpyQuantizer().rows(name, values, importance)
