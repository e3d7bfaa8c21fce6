"""The kernel table of cuda, and the reason why an op cannot run."""

from __future__ import annotations

from collections.abc import Iterator

from camelid.plan.dtypes import F32
from camelid.plan.ops import OPS
from camelid.plan.plan import Op, Plan
from camelid_native.cuda import (
    kernels_adapters,
    kernels_attention,
    kernels_basic,
    kernels_experts,
    kernels_matrix,
    kernels_qkv,
    kernels_rows,
    kernels_sampling,
    kernels_state,
)
from camelid_native.cuda.kernel import OpKernels

MOST_ROWS = 65535
KERNELS: dict[str, OpKernels] = {
    **kernels_basic.KERNELS,
    **kernels_matrix.KERNELS,
    **kernels_experts.KERNELS,
    **kernels_qkv.KERNELS,
    **kernels_state.KERNELS,
    **kernels_attention.KERNELS,
    **kernels_sampling.KERNELS,
    **kernels_rows.KERNELS,
    **kernels_adapters.KERNELS,
}


def refusal(op: Op, plan: Plan) -> str:
    """The reason why this backend cannot run the op, "" if it can. Nothing is ignored."""
    if op.name not in KERNELS:
        return f"there is no cuda kernel for the op {op.name!r}"
    row = KERNELS[op.name]
    parts = row.lower(op, plan)
    if parts != (op,):
        return next(filter(None, (refusal(part, plan) for part in parts)), "")
    reason = next(_reasons(op, row), "") or row.refuses(op, plan)
    return f"the cuda kernel of {op.name} does not support {reason}" if reason else ""


def plan_refusal(plan: Plan) -> str:
    """The first reason why an op of the plan cannot run, or ""."""
    reasons = (refusal(op, plan) for op in plan.ops)
    return _rows_refusal(plan) or next(filter(None, reasons), "")


def _rows_refusal(plan: Plan) -> str:
    """A reason against more rows than the second extent of a grid can have, or ""."""
    most = max(plan.rows.values())
    return f"steps of {most} rows, at most {MOST_ROWS}; use a smaller chunk" if most > MOST_ROWS else ""


def _reasons(op: Op, row: OpKernels) -> Iterator[str]:
    for name, value in op.attrs:
        if name in row.words and value not in row.words[name]:
            yield f"{name} = {value!r}; supported: {', '.join(row.words[name])}"
        elif name not in (*row.attrs, *row.words) and value != OPS[op.name].defaults.get(name):
            yield f"{name} = {value!r}"
    yield from (f"{role} = {view}: it is not float32" for role, view in op.views() if view.dtype != F32)
