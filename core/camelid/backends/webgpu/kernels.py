"""Kernels as rows: which shader files an op joins, what it binds, its constants and its grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from camelid.backends.base import Pool
from camelid.backends.webgpu.layouts import LAYOUTS, scales_at
from camelid.backends.webgpu.tape import GridEntry
from camelid.errors import BackendError
from camelid.plan.plan import Op, Plan
from camelid.plan.step import StepLayout

Constants = dict[str, float]
Grid = tuple[GridEntry, GridEntry, GridEntry]

LANES = 64
MAX_HEAD_DIM = 256  # attention.wgsl keeps a query of this size
GPU_LANES, SOFTWARE_LANES = 16, 2  # that share a weight row; see matvec.wgsl
PROMPT_TOKENS = 8  # token rows that share one decoding of a weight, where a plan may hold many
TILES_X = 32768
ROW_WORDS = {"T": StepLayout.header_word("rows"), "O": StepLayout.header_word("outputs")}
UPDATES_WORD, COPIES_WORD = StepLayout.header_word("updates"), StepLayout.header_word("copies")


@dataclass(frozen=True, slots=True)
class Context:
    """What a kernel's constants may depend on besides its op."""

    plan: Plan
    pools: dict[str, Pool]
    lanes: int = GPU_LANES

    def tokens(self, op: Op, role: str) -> int:
        """Token rows a workgroup takes: 1 where rows are generated, more where they are prompt."""
        return (
            min(PROMPT_TOKENS, self.plan.rows[op.view(role).rows]) if self.plan.key.entry != "decode" else 1
        )


@dataclass(frozen=True, slots=True)
class Kernel:
    """One op on webgpu. `bindings` follow the step: a view, a weight, `state.<tensor>`, `state.table` or
    `result`; a trailing `+` marks state that is written. `codec` names the weight whose codec is joined."""

    files: tuple[str, ...]
    bindings: tuple[str, ...]
    constants: Callable[[Op, Context], Constants]
    grid: Callable[[Op, Context], Grid]
    codec: str = ""
    act: bool = False


def shader_files(op: Op) -> tuple[str, ...]:
    """The files that make this op's module, prelude first."""
    kernel = KERNELS[op.name]
    codec = (LAYOUTS[op.weight(kernel.codec).type].codec,) if kernel.codec else ()
    act = (f"act_{op.word('act')}",) if kernel.act else ()
    return ("prelude", *codec, *act, *kernel.files)


def view_constants(op: Op) -> Constants:
    """`<ROLE>_STRIDE` and `<ROLE>_OFFSET` in floats for every view."""
    strides: Constants = {f"{role.upper()}_STRIDE": view.stride for role, view in op.views()}
    return strides | {f"{role.upper()}_OFFSET": view.offset for role, view in op.views()}


def codec_constants(op: Op, role: str) -> Constants:
    weight = op.weight(role)
    return {"SCALES_AT": scales_at(weight)} if LAYOUTS[weight.type].repack else {}


def _rows(op: Op, role: str, per: int = 1) -> GridEntry:
    return (ROW_WORDS[op.view(role).rows], per)


def _tiles(n: int, per: int = LANES) -> int:
    return -(-n // per)


def _matvec_grid(op: Op, c: Context, per: int) -> Grid:
    tiles = _tiles(op.view("y").cols, per)
    return (min(tiles, TILES_X), _rows(op, "y", c.tokens(op, "y")), _tiles(tiles, TILES_X))


def _matvec_constants(op: Op, c: Context) -> Constants:
    sizes: Constants = {"K": op.view("x").cols, "N": op.view("y").cols}
    row = {"LANES": c.lanes, "TOKENS": c.tokens(op, "y"), "ROWS_WORD": ROW_WORDS[op.view("y").rows]}
    return sizes | row | codec_constants(op, "weight")


def _width_grid(role: str) -> Callable[[Op, Context], Grid]:
    return lambda op, c: (_tiles(op.view(role).cols), _rows(op, role), 1)


def _row_grid(role: str) -> Callable[[Op, Context], Grid]:
    return lambda op, c: (_rows(op, role), 1, 1)


def _width(role: str) -> Callable[[Op, Context], Constants]:
    return lambda op, c: {"C": op.view(role).cols}


def _norm_constants(op: Op, _: Context) -> Constants:
    return {"C": op.view("x").cols, "EPS": op.number("eps")}


def _group(op: Op, c: Context, role: str = "state") -> int:
    return c.plan.group(op.state(role).group)


def _paged_constants(op: Op, c: Context) -> Constants:
    spec = c.plan.state(op.state("state").group)
    return {
        "GROUP": _group(op, c),
        "TABLE_COLS": c.pools[spec.name].table_cols,
        "UNIT_ROWS": spec.unit_rows,
        "WIDTH": spec.tensors[0][1],
    }


def _attention_constants(op: Op, c: Context) -> Constants:
    head_dim = op.view("q").cols // op.integer("n_heads")
    if head_dim > MAX_HEAD_DIM:
        raise BackendError(
            f"webgpu: heads of {head_dim} floats, the attention kernel takes {MAX_HEAD_DIM}; "
            "use the reference backend",
            backend="webgpu",
        )
    heads = op.integer("n_heads") // op.integer("n_kv_heads")
    sizes: Constants = {
        "HEADS_PER_KV": heads,
        "HEAD_DIM": head_dim,
        "SCALE": op.number("scale"),
    }
    return sizes | _paged_constants(op, c)


def _rope_constants(op: Op, _: Context) -> Constants:
    pairs, is_adjacent = op.integer("dim") // 2, op.word("style") == "norm"
    return {
        "HEADS": op.view("x").cols // op.integer("head_dim"),
        "HEAD_DIM": op.integer("head_dim"),
        "PAIRS": pairs,
        "NEXT": 1 if is_adjacent else pairs,
        "PITCH": 2 if is_adjacent else 1,
        "FINE_ROWS": op.weight("fine").rows,
    }


def _rope_grid(op: Op, _: Context) -> Grid:
    pairs = op.view("x").cols // op.integer("head_dim") * op.integer("dim") // 2
    return (_tiles(pairs), _rows(op, "x"), 1)


def _ring_constants(op: Op, c: Context) -> Constants:
    spec = c.plan.state(op.state("tokens").group)
    return {"GROUP": _group(op, c, "tokens"), "RING_ROWS": spec.unit_rows}


def _embed_constants(op: Op, c: Context) -> Constants:
    weight = op.weight("weight")
    return {"K": weight.cols, "VOCAB": weight.rows} | _ring_constants(op, c) | codec_constants(op, "weight")


def _sample_constants(op: Op, c: Context) -> Constants:
    return {"V": op.view("logits").cols} | _ring_constants(op, c)


def _copy_grid(op: Op, c: Context) -> Grid:
    spec = c.plan.state(op.state("state").group)
    return (_tiles(spec.unit_rows * spec.tensors[0][1]), (COPIES_WORD, 1), 1)


MATVEC_BINDINGS = ("y", "x", "weight")
KERNELS: dict[str, Kernel] = {
    "tables": Kernel(("tables",), ("state.table+",), _paged_constants,
                     lambda op, c: ((UPDATES_WORD, LANES), 1, 1)),
    "copy": Kernel(("copy",), ("state.*+",), _paged_constants, _copy_grid),
    "embed": Kernel(("embed",), ("y", "weight", "tokens.id"), _embed_constants, _row_grid("y"),
                    codec="weight"),
    "norm": Kernel(("reduce", "norm"), ("y", "x", "gain"), _norm_constants, _row_grid("y")),
    "add": Kernel(("add",), ("x", "r"), _width("x"), _width_grid("x")),
    "add_norm": Kernel(("reduce", "add_norm"), ("y", "x", "r", "gain"), _norm_constants, _row_grid("y")),
    "linear": Kernel(("matvec", "linear"), MATVEC_BINDINGS, _matvec_constants,
                     lambda op, c: _matvec_grid(op, c, LANES // c.lanes), codec="weight"),
    "linear_glu": Kernel(("matvec", "linear_glu"), MATVEC_BINDINGS, _matvec_constants,
                         lambda op, c: _matvec_grid(op, c, LANES // c.lanes // 2), codec="weight", act=True),
    "rope": Kernel(("rope",), ("x", "fine", "coarse"), _rope_constants, _rope_grid),
    "kv_write": Kernel(("kv_write",), ("k", "v", "state.k+", "state.v+", "state.table"), _paged_constants,
                       _width_grid("k")),
    "attention": Kernel(("attention",), ("y", "q", "state.k", "state.v", "state.table"), _attention_constants,
                        lambda op, c: (op.integer("n_heads"), _rows(op, "q"), 1)),
    "glu": Kernel(("glu",), ("y", "gate", "up"), _width("y"), _width_grid("y"), act=True),
    "gather_rows": Kernel(("gather_rows",), ("y", "x"), _width("y"), _width_grid("y")),
    "sample": Kernel(("sample",), ("logits", "tokens.id+", "result+"),
                     _sample_constants, _row_grid("logits")),
}  # fmt: skip
