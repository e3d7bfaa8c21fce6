"""Kernel rows of encoders: attention over the rows of the step, pooling, floats as results."""

from __future__ import annotations

from camelid.backends.webgpu.kernel import Constants, Context, Grid, Kernel, row_grid, width, width_grid
from camelid.backends.webgpu.kernels_state import head_constants, refuses_dims, side_grid
from camelid.plan.plan import Op, Plan

ROW_MASKS = {"full": 0, "causal": 1, "symmetric": 2}
POOLINGS = {"mean": 0, "cls": 1, "last": 2}


def _head_dims(op: Op) -> tuple[int, int]:
    """Columns of a head of q and of v."""
    return op.view("q").cols // op.integer("n_heads"), op.view("v").cols // op.integer("n_kv_heads")


def _attend_constants(op: Op, c: Context) -> Constants:
    head_dim, v_dim = _head_dims(op)
    bias_rows = op.weight("bias").rows if op.has("bias") else 1
    sizes: Constants = {"V_HEAD": v_dim, "WINDOW": op.integer("window"), "BIAS_ROWS": bias_rows}
    return head_constants(op, c, head_dim, v_dim) | sizes


def _attend_grid(op: Op, _: Context) -> Grid:
    return side_grid(op, _head_dims(op)[1])


def _refuses_heads(op: Op, _: Plan) -> str:
    return refuses_dims(*_head_dims(op))


KERNELS: dict[str, Kernel] = {
    "attend_rows": Kernel(("smooth_tanh", "softmax", "attend_rows", "attend"), ("y", "q", "k", "v", "bias?"),
                          _attend_constants, _attend_grid,
                          attrs=("n_heads", "n_kv_heads", "scale", "window"), words={"mask": ROW_MASKS},
                          vec4=("k", "v"), refuses=_refuses_heads),
    "pool": Kernel(("pool",), ("y", "x"), width("y"), width_grid("y"), words={"kind": POOLINGS}),
    "emit": Kernel(("reduce", "emit"), ("x", "result+", "floats+"), width("x"), row_grid("x")),
}  # fmt: skip
