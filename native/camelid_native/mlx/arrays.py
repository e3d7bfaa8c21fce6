"""MLX as the other modules see it: its module, the type of its arrays and the types of their elements.

All are `Any`: MLX's stubs leave most types unknown, and linting needs no MLX installed.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from camelid_native.mlx.library import keep_float32

keep_float32()
mx: Any = import_module("mlx.core")
Array: TypeAlias = Any
Dtype: TypeAlias = Any
U8, U32, U64 = mx.uint8, mx.uint32, mx.uint64
I8, I32 = mx.int8, mx.int32
F16, BF16, F32 = mx.float16, mx.bfloat16, mx.float32


@cache
def indices(n: int, dtype: Dtype = U32) -> Array:
    """0 to n - 1, as a constant of graphs. An arange would be one more primitive at each use."""
    return mx.array(np.arange(n), dtype=dtype)
