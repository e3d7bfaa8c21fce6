"""Kernel rows of ops with positions or state: page tables, copies, RoPE, keys and values, attention."""

from __future__ import annotations

from dataclasses import replace

from camelid.backends.webgpu.kernel import (
    LANES,
    TOKENS,
    Constants,
    Context,
    Files,
    Grid,
    Kernel,
    Split,
    rows_of,
    tiles,
    width_grid,
)
from camelid.backends.webgpu.state_buffers import KV_TYPES, regions, row_words, table_at
from camelid.plan.plan import Op, Plan, StateSpec
from camelid.plan.step import StepLayout
from camelid.plan.tiers import BATCH, TAIL

MAX_HEAD_DIM = 1024  # of queries and keys: 4 KB of workgroup memory
SIDE = 256  # floats of a value in a workgroup of attend.wgsl
RUN_KEYS, MOST_RUNS = 128, 64  # keys of a run of attention, at least; runs of a row, at most
VECTOR = 4  # values of a state row that attend.wgsl reads at once
READ_STATE = {kv_type: (f"kv_{kv_type}", "pages") for kv_type in KV_TYPES}
WRITE_STATE: dict[str, Files] = {
    "f32": ("kv_write_f32", "pages"),
    "f16": ("half_bits", "kv_write_f16", "pages"),
    "q8_0": ("half_bits", "kv_write_q8_0", "pages"),
    "q4_0": ("half_bits", "kv_write_q4_0", "pages"),
}
UPDATES_WORD, COPIES_WORD = StepLayout.header_word("updates"), StepLayout.header_word("copies")
STYLES = {"norm": 0, "neox": 1}
MASKS = {"causal": 0, "held": 1, "chunked": 2}


def spec_of(op: Op, plan: Plan, role: str = "state") -> StateSpec:
    return plan.state(op.state(role).group)


def paged_constants(op: Op, c: Context, role: str = "state") -> Constants:
    """Constants of pages.wgsl."""
    spec = spec_of(op, c.plan, role)
    return {
        "GROUP": c.plan.group(spec.name),
        "TABLE_AT": table_at(c.plan.states, c.pools, spec.name),
        "TABLE_COLS": c.pools[spec.name].table_cols,
        "UNIT_ROWS": spec.unit_rows,
    }


def _copy_grid(op: Op, c: Context) -> Grid:
    spec = spec_of(op, c.plan)
    words = max(row_words(spec.kv_type, cols) for _, cols in spec.tensors)
    return (tiles(spec.unit_rows * words), (COPIES_WORD, 1), 1)


def _kv_constants(op: Op, c: Context) -> Constants:
    widths = dict(spec_of(op, c.plan).tensors)
    return {"WIDTH": widths["k"], "V_WIDTH": widths.get("v", widths["k"])} | paged_constants(op, c)


def _kv_grid(op: Op, _: Context) -> Grid:
    widths = [op.view(role).cols for role in ("k", "v") if op.has(role)]
    return (tiles(max(widths)), rows_of(op, "k"), len(widths))


def _kv_form(both: Kernel, op: Op) -> Kernel:
    """The kernel of keys and values, or of keys alone, with the step bound in place of values."""
    alone = ("k", "v?", "state.k+", "v?", "state.tables")
    return both if op.has("v") else replace(both, files=("kv_alone", "kv_write"), bindings=alone)


def _refuses_state(op: Op, plan: Plan) -> str:
    spec = spec_of(op, plan)
    tensors = tuple(name for name, _ in spec.tensors)
    if tensors != ("k", "v") and (tensors != ("k",) or op.has("v")):
        return f"state {spec.name!r} of tensors {tensors}; separate tensors k and v, or k alone, are required"
    if spec.kv_type not in KV_TYPES:
        return f"state {spec.name!r} of type {spec.kv_type}; supported: {', '.join(KV_TYPES)}"
    odd = [cols for _, cols in spec.tensors if cols % VECTOR]
    return f"state {spec.name!r} with rows of {odd[0]} values, not a multiple of {VECTOR}" if odd else ""


def head_dims(op: Op) -> tuple[int, int]:
    """Floats of a key and of a value of a head."""
    n_heads = op.integer("n_heads")
    return op.view("q").cols // n_heads, op.view("y").cols // n_heads


def refuses_dims(op: Op, _: Plan) -> str:
    """The reason why attend.wgsl cannot have keys and values of so many floats, or ""."""
    most = max(head_dims(op))
    if most > MAX_HEAD_DIM or any(dim % VECTOR for dim in head_dims(op)):
        return f"heads of {most} floats; at most {MAX_HEAD_DIM} and a multiple of {VECTOR} are required"
    return ""


def _n_sides(op: Op) -> int:
    """Sides of equal width of a head's values."""
    v_dim = head_dims(op)[1]
    return next(n for n in range(tiles(v_dim, SIDE), v_dim + 1) if v_dim % (VECTOR * n) == 0)


def head_grid(op: Op, _: Context) -> Grid:
    """A grid with one workgroup per side of a query head and row."""
    return (op.integer("n_heads") * _n_sides(op), rows_of(op, "q"), 1)


def head_constants(op: Op, c: Context) -> Constants:
    """Constants of softmax.wgsl and attend.wgsl."""
    head_dim, v_dim = head_dims(op)
    return {
        "HEADS": op.integer("n_heads"),
        "HEADS_PER_KV": op.integer("n_heads") // op.integer("n_kv_heads"),
        "HEAD_DIM": head_dim,
        "SIDES": _n_sides(op),
        "V_DIM": v_dim // _n_sides(op),
        "SCALE": op.number("scale"),
        "HAS_SHARED_KEYS": int(not c.is_software),  # software adapters pay for barriers
    }


def _refuses_heads(op: Op, plan: Plan) -> str:
    if reason := refuses_dims(op, plan):
        return reason
    if op.has("sinks") and op.has("bias"):
        return "both sinks and a bias"
    return _refuses_state(op, plan) or (_refuses_tail(op, plan) if op.has("tail") else "")


def _refuses_tail(op: Op, plan: Plan) -> str:
    store, tail = (spec_of(op, plan, role) for role in ("state", "tail"))
    if (tail.kv_type, tail.tensors, tail.unit_rows) == ("f16", store.tensors, store.unit_rows):
        return ""
    return f"a tail {tail.name!r} of type {tail.kv_type}; f16 in the form of {store.name!r} is required"


def _attention_constants(op: Op, c: Context) -> Constants:
    constants = _kv_constants(op, c)
    return constants | {
        **head_constants(op, c),
        "V_HEAD": constants["V_WIDTH"] // op.integer("n_kv_heads"),
        "SPLIT": _run_keys(op, c),
        "SPLITS": _n_runs(op, c),
        "SOFTCAP": op.number("softcap"),
        "WINDOW": op.integer("window"),
        "BIAS_ROWS": op.weight("bias").rows if op.has("bias") else 1,
        **(_tail_constants(op, c) if op.has("tail") else {}),
    }


def _context(op: Op, c: Context) -> int:
    spec = spec_of(op, c.plan)
    return c.pools[spec.name].table_cols * spec.unit_rows


def _run_keys(op: Op, c: Context) -> int:
    """Keys of a run, whose softmax sums are added in order: the same in every program of a deployment."""
    return RUN_KEYS * tiles(_context(op, c), RUN_KEYS * MOST_RUNS)


def _n_runs(op: Op, c: Context) -> int:
    return tiles(_context(op, c), _run_keys(op, c))


def _part_bytes(op: Op, c: Context) -> int:
    """Bytes of the sums of all runs, for few rows on a GPU, which their heads alone do not fill; else 0."""
    rows = c.plan.rows[op.view("q").rows]
    if c.is_software or rows > TOKENS or _n_runs(op, c) == 1:
        return 0
    # Each side: highest score and sum of weights, then its values.
    floats = VECTOR * _n_sides(op) + head_dims(op)[1]
    return 4 * rows * op.integer("n_heads") * _n_runs(op, c) * floats


def _part_grid(op: Op, c: Context) -> Grid:
    return (*head_grid(op, c)[:2], _n_runs(op, c))


def _tail_constants(op: Op, c: Context) -> Constants:
    spec = spec_of(op, c.plan, "tail")
    places: Constants = {f"TAIL_{name}": n for name, n in paged_constants(op, c, "tail").items()}
    layer = regions(spec, op.state("tail").layer, c.pools[spec.name].units)
    values = layer.get("v", layer["k"])
    return places | {"TAIL_VALUES_AT": values.offset // 4, "TAIL_ROWS": TAIL, "TAIL_BATCH": BATCH}


def _rope_constants(op: Op, _: Context) -> Constants:
    heads = op.view("x").cols // op.integer("head_dim")
    return {"HEADS": heads, "CHANNEL": op.integer("channel")} | turn_constants(op)


def turn_constants(op: Op) -> Constants:
    """Constants of the rotated pairs of a head."""
    pairs, is_adjacent = op.integer("dim") // 2, op.word("style") == "norm"
    return {
        "HEAD_DIM": op.integer("head_dim"),
        "OFFSET": op.integer("offset"),
        "PAIRS": pairs,
        "NEXT": 1 if is_adjacent else pairs,
        "PITCH": 2 if is_adjacent else 1,
        "FINE_ROWS": op.weight("fine").rows,
    }


def _temperature_constants(op: Op, _: Context) -> Constants:
    return {"C": op.view("x").cols, "BY": op.number("by"), "LENGTH": op.integer("length")}


def _rope_grid(op: Op, _: Context) -> Grid:
    pairs = op.view("x").cols // op.integer("head_dim") * op.integer("dim") // 2
    return (tiles(pairs), rows_of(op, "x"), 1)


FILES = ("smooth_tanh", "visible", "softmax", "cached")
INPUTS = ("q", "state.k", "state.v", "state.tables", "tail.*?", "sinks|bias?")
RUNS = Split(
    (
        Kernel((*FILES, "attention_part", "attend"), ("scratch+", *INPUTS),
               _attention_constants, _part_grid, state_codec=READ_STATE),
        Kernel(("pages", "visible", "softmax", "attention_join"), ("y", "scratch", "sinks|bias?"),
               _attention_constants, head_grid),
    ),
    _part_bytes,
)  # fmt: skip

KERNELS: dict[str, Kernel] = {
    "tables": Kernel(("tables",), ("state.tables+",), paged_constants,
                     lambda op, c: ((UPDATES_WORD, LANES), 1, 1)),
    "copy": Kernel(("copy",), ("state.*+",), paged_constants, _copy_grid),
    "rope": Kernel(("turn", "rope"), ("x", "fine", "coarse"), _rope_constants, _rope_grid,
                   attrs=("head_dim", "dim", "offset", "channel"), words={"style": STYLES}),
    "temperature": Kernel(("temperature",), ("x",), _temperature_constants, width_grid("x"),
                          attrs=("by", "length")),
    "kv_write": Kernel(("kv_both", "kv_write"), ("k", "v", "state.k+", "state.v+", "state.tables"),
                       _kv_constants, _kv_grid, state_codec=WRITE_STATE, access="read",
                       refuses=_refuses_state, form=_kv_form),
    "attention": Kernel((*FILES, "attention", "attend"), ("y", *INPUTS),
                        _attention_constants, head_grid,
                        attrs=("n_heads", "n_kv_heads", "scale", "window", "softcap"),
                        state_codec=READ_STATE, words={"mask": MASKS}, refuses=_refuses_heads, split=RUNS),
}  # fmt: skip
