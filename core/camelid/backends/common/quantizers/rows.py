"""Quantization of rows by name of the type, in C where it is built, else in NumPy."""

from __future__ import annotations

from array import array
from importlib import import_module
from typing import Protocol

import numpy as np

from camelid.backends.common.codecs import check_finite, encode
from camelid.backends.common.codecs.bits import Bytes, Floats
from camelid.backends.common.quantizers import QUANTIZERS, search
from camelid.errors import BackendError

IN_C = "camelid_native.cpu.quantizer"
LEAST, MOST = 2.0**-20, 2.0**20  # of an importance relative to its mean, so that no sum of a fit overflows
# Types whose usual encoder needs no search; importance makes it search.
PLAIN = ("q4_0", "q4_1", "q5_0", "q5_1")


class RowQuantizer(Protocol):
    """Quantizes rows; any thread may call it."""

    def rows(self, name: str, values: Floats, importance: Floats | None = None) -> Bytes:
        """Quantizes `values` [rows, cols] to uint8 [n_bytes]. `importance` [cols] weights the squared
        errors of a column; it is from 2**-20 to 2**20. Raises ModelFormatError for an infinite value or NaN.
        """
        ...


class NumpyQuantizer:
    """The definition: slow, on every machine."""

    def rows(self, name: str, values: Floats, importance: Floats | None = None) -> Bytes:
        """See `RowQuantizer.rows`."""
        if not searches(name, importance):
            return encode(name, values)
        check_finite(name, values)
        return search(name, values, importance)


def searches(name: str, importance: Floats | None) -> bool:
    """False for types that the codec's encoder writes."""
    return name in QUANTIZERS and (name not in PLAIN or importance is not None)


def open_quantizer() -> tuple[RowQuantizer, str]:
    """The quantizer in C, or NumPy's and the reason why there is none in C."""
    try:
        return import_module(IN_C).CpuQuantizer(), ""
    except ImportError as error:
        return NumpyQuantizer(), str(error)
    except BackendError as error:
        return NumpyQuantizer(), error.message


def relative_importance(means: array[float], cols: int) -> Floats:
    """[matrices, cols] with mean 1 in each row, and bounded; 1 where all are 0."""
    rows = np.frombuffer(means, np.float32).reshape(-1, cols).astype(np.float64)
    average = rows.mean(axis=1, keepdims=True)
    relative = np.where(average > 0, rows / np.where(average > 0, average, 1.0), 1.0)
    return relative.clip(LEAST, MOST).astype(np.float32)
