"""Kernel rows of encoders: attention over the rows of the step, pooling, floats as results."""

from __future__ import annotations

from camelid.backends.webgpu.kernel import Constants, Context, Kernel, row_grid, width, width_grid
from camelid.backends.webgpu.kernels_state import head_constants, head_dims, head_grid, refuses_dims
from camelid.plan.plan import Op

ROW_MASKS = {"full": 0, "causal": 1, "symmetric": 2}
POOLINGS = {"mean": 0, "cls": 1, "last": 2}


def _attend_constants(op: Op, c: Context) -> Constants:
    bias_rows = op.weight("bias").rows if op.has("bias") else 1
    sizes: Constants = {"V_HEAD": head_dims(op)[1], "WINDOW": op.integer("window"), "BIAS_ROWS": bias_rows}
    return head_constants(op, c) | sizes


KERNELS: dict[str, Kernel] = {
    "attend_rows": Kernel(("smooth_tanh", "softmax", "attend_rows", "attend"), ("y", "q", "k", "v", "bias?"),
                          _attend_constants, head_grid,
                          attrs=("n_heads", "n_kv_heads", "scale", "window"), words={"mask": ROW_MASKS},
                          vec4=("k", "v"), refuses=refuses_dims),
    "pool": Kernel(("pool",), ("y", "x"), width("y"), width_grid("y"), words={"kind": POOLINGS}),
    "emit": Kernel(("reduce", "emit"), ("x", "result+", "floats+"), width("x"), row_grid("x")),
}  # fmt: skip
