"""The kernel of each op: the functions `op_NAME` of the modules `ops_*.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType

from camelid.plan.plan import Op
from camelid_native.mlx import (
    ops_adapters,
    ops_basic,
    ops_encoder,
    ops_experts,
    ops_matrix,
    ops_metal,
    ops_recurrent,
    ops_sampling,
    ops_state,
    ops_streams,
)
from camelid_native.mlx.trace import Trace

Kernel = Callable[[Op, Trace], None]
PREFIX = "op_"
MODULES = (
    ops_basic, ops_matrix, ops_experts, ops_adapters, ops_state, ops_recurrent, ops_streams, ops_encoder,
    ops_sampling,
)  # fmt: skip


def _kernels(module: ModuleType) -> dict[str, Kernel]:
    own = {name: f for name, f in vars(module).items() if name.startswith(PREFIX)}
    return {name.removeprefix(PREFIX): f for name, f in own.items() if f.__module__ == module.__name__}


KERNELS: dict[str, Kernel] = {name: f for module in MODULES for name, f in _kernels(module).items()}
# Of a GPU: Metal's kernels, and MLX's own ops for the others.
GPU_KERNELS: dict[str, Kernel] = KERNELS | _kernels(ops_metal)


def kernels_of(is_gpu: bool) -> Mapping[str, Kernel]:
    return GPU_KERNELS if is_gpu else KERNELS
