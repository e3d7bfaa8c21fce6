"""Kernels that know of positions and state: page tables, copies, RoPE, keys and values, attention."""

from __future__ import annotations

from camelid.backends.webgpu.kernel import LANES, Constants, Context, Grid, Kernel, rows_of, tiles
from camelid.plan.plan import Op, Plan
from camelid.plan.step import StepLayout

MAX_HEAD_DIM = 256  # attention.wgsl keeps a query of this size
UPDATES_WORD, COPIES_WORD = StepLayout.header_word("updates"), StepLayout.header_word("copies")
STYLES = {"norm": 0, "neox": 1}
MASKS = {"causal": 0, "held": 1}


def _paged_constants(op: Op, c: Context) -> Constants:
    spec = c.plan.state(op.state("state").group)
    return {
        "GROUP": c.plan.group(spec.name),
        "TABLE_COLS": c.pools[spec.name].table_cols,
        "UNIT_ROWS": spec.unit_rows,
    }


def _copy_grid(op: Op, c: Context) -> Grid:
    spec = c.plan.state(op.state("state").group)
    return (tiles(spec.unit_rows * max(cols for _, cols in spec.tensors)), (COPIES_WORD, 1), 1)


def _kv_constants(op: Op, c: Context) -> Constants:
    widths = dict(c.plan.state(op.state("state").group).tensors)
    return {"WIDTH": widths["k"], "V_WIDTH": widths["v"]} | _paged_constants(op, c)


def _kv_grid(op: Op, _: Context) -> Grid:
    return (tiles(max(op.view("k").cols, op.view("v").cols)), rows_of(op, "k"), 1)


def _refuses_state(op: Op, plan: Plan) -> str:
    spec = plan.state(op.state("state").group)
    tensors = tuple(name for name, _ in spec.tensors)
    if tensors != ("k", "v"):
        return f"state {spec.name!r} of tensors {tensors}; keys and values apart are needed"
    return "" if spec.kv_type == "f32" else f"state {spec.name!r} of type {spec.kv_type}; f32 is needed"


def _head_dims(op: Op) -> tuple[int, int]:
    n_heads = op.integer("n_heads")
    return op.view("q").cols // n_heads, op.view("y").cols // n_heads


def _refuses_heads(op: Op, plan: Plan) -> str:
    if max(_head_dims(op)) > MAX_HEAD_DIM:
        return f"heads of {max(_head_dims(op))} floats, at most {MAX_HEAD_DIM}"
    return _refuses_state(op, plan)


def _attention_constants(op: Op, c: Context) -> Constants:
    head_dim, v_dim = _head_dims(op)
    constants = _kv_constants(op, c)
    return constants | {
        "HEADS_PER_KV": op.integer("n_heads") // op.integer("n_kv_heads"),
        "HEAD_DIM": head_dim,
        "V_DIM": v_dim,
        "V_HEAD": constants["V_WIDTH"] // op.integer("n_kv_heads"),
        "SCALE": op.number("scale"),
        "SOFTCAP": op.number("softcap"),
        "WINDOW": op.integer("window"),
        "HEADS": op.integer("n_heads"),
        "BIAS_ROWS": op.weight("bias").rows if op.has("bias") else 1,
    }


def _rope_constants(op: Op, _: Context) -> Constants:
    pairs, is_adjacent = op.integer("dim") // 2, op.word("style") == "norm"
    return {
        "HEADS": op.view("x").cols // op.integer("head_dim"),
        "HEAD_DIM": op.integer("head_dim"),
        "OFFSET": op.integer("offset"),
        "PAIRS": pairs,
        "NEXT": 1 if is_adjacent else pairs,
        "PITCH": 2 if is_adjacent else 1,
        "FINE_ROWS": op.weight("fine").rows,
    }


def _rope_grid(op: Op, _: Context) -> Grid:
    pairs = op.view("x").cols // op.integer("head_dim") * op.integer("dim") // 2
    return (tiles(pairs), rows_of(op, "x"), 1)


KERNELS: dict[str, Kernel] = {
    "tables": Kernel(("tables",), ("state.table+",), _paged_constants,
                     lambda op, c: ((UPDATES_WORD, LANES), 1, 1)),
    "copy": Kernel(("copy",), ("state.*+",), _paged_constants, _copy_grid),
    "rope": Kernel(("rope",), ("x", "fine", "coarse"), _rope_constants, _rope_grid,
                   attrs=("head_dim", "dim", "offset"), words={"style": STYLES}),
    "kv_write": Kernel(("kv_write",), ("k", "v", "state.k+", "state.v+", "state.table"), _kv_constants,
                       _kv_grid, refuses=_refuses_state),
    "attention": Kernel(("smooth_tanh", "attention"),
                        ("y", "q", "state.k", "state.v", "state.table", "sinks?", "bias?"),
                        _attention_constants, lambda op, c: (op.integer("n_heads"), rows_of(op, "q"), 1),
                        attrs=("n_heads", "n_kv_heads", "scale", "window", "softcap"),
                        words={"mask": MASKS}, refuses=_refuses_heads),
}  # fmt: skip
