"""Bodies of small kernels with planted errors, for tests of the rig itself."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from tests.metal.rig import Rig

THREADS = 64
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
SHARED = "threadgroup float shared[64];"
SWAPPED = "simd_shuffle_xor(x[i], 1)"
BODIES: Mapping[str, str] = {
    "fine": f"{SHARED} shared[i] = x[i]; {BARRIER} y[i] = shared[63 - i] + simd_shuffle_xor(x[i], 1);",
    "half a barrier": f"if (i < 32) {BARRIER} y[i] = x[i];",
    "two barriers": f"if (i < 32) {BARRIER}\n else {BARRIER}\n y[i] = x[i];",
    "left before a barrier": f"if (i == 0) return; {BARRIER} y[i] = x[i];",
    "half a shuffle": "float v = x[i]; if (i % 32 < 16) v = simd_shuffle_xor(v, 1); y[i] = v;",
    "two shuffles": f"float v; if (i < 16) v = {SWAPPED};\n else v = {SWAPPED};\n y[i] = v;",
    "a write behind y": "y[i + 1] = x[i];",
    "a read before x": "y[i] = x[int(i) - 1];",
    "a write to x": "((device float *)x)[i] = 1.0f; y[i] = x[i];",
    "unwritten threadgroup memory": f"{SHARED} y[i] = shared[i];",
    "missing barrier": f"{SHARED} shared[i] = x[i]; y[i] = shared[63 - i];",
    "no text": "y[i] = nothing;",
}


def run(name: str, *, order: int = 0, is_traced: bool = False) -> npt.NDArray[np.float32]:  # [THREADS]
    """The values that a body writes to y; x counts from 0."""
    kernel = Rig(order=order, is_traced=is_traced).metal_kernel(
        name="planted_0",
        input_names=["x"],
        output_names=["y"],
        header="#include <metal_stdlib>\nusing namespace metal;\n",
        source=f"uint i = thread_index_in_threadgroup;\n{BODIES[name]}",
    )
    (y,) = kernel(
        inputs=[mx.arange(THREADS, dtype=mx.float32)],
        grid=(THREADS, 1, 1),
        threadgroup=(THREADS, 1, 1),
        output_shapes=[(THREADS,)],
        output_dtypes=[mx.float32],
    )
    return np.array(y)
