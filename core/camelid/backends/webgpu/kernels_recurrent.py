"""Kernel rows of recurrent ops, whose state is one slot per sequence."""

from __future__ import annotations

from camelid.backends.webgpu.kernel import Constants, Context, Kernel, width_grid
from camelid.backends.webgpu.kernels_basic import ACTS
from camelid.plan.op_rows_recurrent import SLOT_TENSORS
from camelid.plan.plan import Op, Plan


def _slot_constants(op: Op, c: Context) -> Constants:
    """Constants of slots.wgsl."""
    spec = c.plan.state(op.state("state").group)
    return {"GROUP": c.plan.group(spec.name), "SLOT_FLOATS": dict(spec.tensors)[SLOT_TENSORS[op.name]]}


def _refuses_slots(op: Op, plan: Plan) -> str:
    spec, tensor = plan.state(op.state("state").group), SLOT_TENSORS[op.name]
    if spec.kind == "recurrent" and spec.kv_type == "f32" and tensor in dict(spec.tensors):
        return ""
    return (
        f"state {spec.name!r} of kind {spec.kind} and type {spec.kv_type}; recurrent slots of type f32 "
        f"with a tensor {tensor!r} are required"
    )


def _conv_constants(op: Op, c: Context) -> Constants:
    n_channels, n_taps = op.weight("weight").shape
    return {"C": n_channels, "HELD": n_taps - 1} | _slot_constants(op, c)


KERNELS: dict[str, Kernel] = {
    "conv1d": Kernel(("slots", "conv1d"), ("y", "x", "weight", "bias?", "state.conv+"), _conv_constants,
                     width_grid("y"), acts={**ACTS, "none": ("act_none",)}, refuses=_refuses_slots),
}  # fmt: skip
