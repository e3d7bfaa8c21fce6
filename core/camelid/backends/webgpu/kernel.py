"""The row of the kernel table (`Kernel`), and the constants and grids that rows share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from camelid.backends.base import PoolSize
from camelid.backends.webgpu.layouts import PACKED
from camelid.backends.webgpu.limits import DEFAULTS
from camelid.backends.webgpu.tape import GridEntry
from camelid.plan.op_rows_fused import QUAD  # also the weight rows of a quad in matvec.wgsl
from camelid.plan.plan import Op, Plan
from camelid.plan.step import StepLayout

Constants = dict[str, float]
Grid = tuple[GridEntry, GridEntry, GridEntry]
Files = tuple[str, ...]

LANES = 64
GPU_LANES, SOFTWARE_LANES = 16, 2  # lanes that share a weight row; see matvec.wgsl
TOKENS, TILE_TOKENS = 8, 64  # token rows that share one read of the weights in matvec.wgsl, matmul.wgsl
MAX_QUADS = 4  # quads of weight rows of a lane; see matvec_wide.wgsl
MIN_GROUPS = 2  # workgroups of one token row, for the processors of a software adapter
# Weights of a product with several quads per lane, whose pipeline SwiftShader compiles for longer; the second
# for one token row, since a page's first answer waits for these pipelines.
MIN_WIDE = 1 << 18
MIN_WIDE_ROW = 1 << 19
# Files in place of these where activations are rounded to 8 bits.
ROUNDED_FILES: Mapping[str, Files] = {
    "product": ("product", "rounded"),
    "matvec": ("matvec_q8",),
    "matmul": ("matmul_q8",),
}
ROW_WORDS = {"T": StepLayout.header_word("rows"), "O": StepLayout.header_word("outputs")}


@dataclass(frozen=True, slots=True)
class Context:
    """Inputs of a kernel's constants and grid besides its op."""

    plan: Plan
    pools: dict[str, PoolSize]
    lanes: int = GPU_LANES
    limits: Mapping[str, int] = field(default_factory=lambda: DEFAULTS)
    activations: str = "f32"
    most_tokens: int = TOKENS  # token rows per workgroup of matvec.wgsl

    @property
    def is_software(self) -> bool:
        return self.lanes == SOFTWARE_LANES

    def is_tiled(self, op: Op) -> bool:
        """True if the op's rows fill tiles of matmul.wgsl; its 256 lanes and barriers suit GPUs only."""
        return not self.is_software and self.plan.rows[op.view("y").rows] > TOKENS

    def is_rounded(self, op: Op, role: str = "weight") -> bool:
        """True if this weight of the op multiplies rounded activations."""
        return self.activations == "q8" and op.weight(role).type in PACKED

    def tokens(self, op: Op, role: str) -> int:
        """Token rows per workgroup; the bits of a row do not depend on this number."""
        rows = self.plan.rows[op.view(role).rows]
        return min(TILE_TOKENS, 16 * tiles(rows, 16)) if self.is_tiled(op) else min(self.most_tokens, rows)

    def quads(self, op: Op, role: str = "weight") -> int:
        """Quads of rows of this weight per lane; the bits of a row do not depend on this number.

        With one token row, at least MIN_GROUPS workgroups remain.
        """
        weight, is_one = op.weight(role), self.tokens(op, "y") == 1
        is_small = weight.rows * weight.cols < (MIN_WIDE_ROW if is_one else MIN_WIDE)
        if not self.is_software or self.is_rounded(op, role) or is_small:
            return 1
        if not is_one:
            return MAX_QUADS
        groups = tiles(weight.rows, QUAD * LANES // self.lanes)
        return next((n for n in (MAX_QUADS, 2) if groups >= n * MIN_GROUPS), 1)


ConstantsOf = Callable[[Op, Context], Constants]


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel of one op on webgpu.

    - `files` are the shader files that are joined to the module.
    - `bindings` follow the binding of the step: a view, a weight (a second binding of it is `weight.words`),
      `state.<tensor>` (a tensor of a layer; `*`: all tensors), `state.tables` (page tables of all groups),
      `result` or `scratch`. A trailing `+` marks a written one of the last four, a trailing `?` an optional
      operand (if absent, the step is bound in its place and the constant HAS_<ROLE> is 0); `a|b` is a binding
      for either of two operands.
    - `constants` and `grid` compute the override constants and the dispatch grid.
    - `tiled` are the files in place of `files` for more than TOKENS token rows of y, on GPUs; `wide` those
      for several quads per lane, on software adapters.
    - `codec` names the weight whose codec is joined; `state_codec` has the files by kv_type, `acts` the files
      by activation function.
    - `attrs` are the attributes that the kernel supports with all values; `words` maps other attributes to
      their supported values, each with the number of its constant.
    - `plain` names a weight that is read number by number, in one of the types of `load.MOVABLE`.
    - `vec4` lists views that are read four floats at a time.
    - `access` is "read" if the kernel only reads its views; they may then be views of one buffer.
    - `split` has the kernels that replace this one where they are faster; `within` replaces this
      kernel where two views are of one buffer, since no dispatch binds twice a buffer that it writes.
    - `form` makes the kernel for the operands of an op: keys without values, a weight of few columns, weights
      of two types (`halves.py`). For two types, `second` names the weight of the second half, and `unbound`
      are variables of the shaders without a binding.
    - `parts` are the ops that the op consists of; `lower` chooses the ops that run in its place: itself, its
      parts, or others with kernels of their own.
    - `refuses` returns the reason why an op cannot run, or "".
    """

    files: Files
    bindings: tuple[str, ...]
    constants: ConstantsOf
    grid: Callable[[Op, Context], Grid]
    tiled: Files = ()
    wide: Files = ()
    codec: str = ""
    plain: str = ""
    state_codec: Mapping[str, Files] = field(default_factory=dict[str, Files])
    acts: Mapping[str, Files] = field(default_factory=dict[str, Files])
    attrs: tuple[str, ...] = ()
    words: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    vec4: tuple[str, ...] = ()
    access: str = "write"
    refuses: Callable[[Op, Plan], str] = lambda op, plan: ""
    split: Split | None = None
    within: Kernel | None = None
    form: Callable[[Kernel, Op], Kernel] = lambda kernel, op: kernel
    second: str = ""
    unbound: tuple[str, ...] = ()
    parts: Callable[[Op], tuple[Op, ...]] | None = None
    lower: Callable[[Op, Context], tuple[Op, ...]] = lambda op, context: (op,)

    @property
    def operands(self) -> frozenset[str]:
        """Roles of all operands that the kernel supports."""
        return frozenset(role for binding in self.bindings for role in roles_of(binding))

    @property
    def optional(self) -> tuple[str, ...]:
        """Roles of optional operands."""
        return tuple(role for b in self.bindings if b.endswith("?") for role in roles_of(b))


@dataclass(frozen=True, slots=True)
class Split:
    """Kernels that run one after the other, with partial results in the binding `scratch` of `n_bytes` bytes.

    They have the constants, attributes and refusals of the kernel that they replace. With 0 bytes that kernel
    runs itself.
    """

    kernels: tuple[Kernel, ...]
    n_bytes: Callable[[Op, Context], int]


def roles_of(binding: str) -> list[str]:
    return binding.rstrip("+?").partition(".")[0].split("|")


def rows_of(op: Op, role: str, per: int = 1) -> GridEntry:
    """A grid entry: one workgroup per `per` rows that the step has of this view."""
    return (ROW_WORDS[op.view(role).rows], per)


def tiles(n: int, per: int = LANES) -> int:
    return -(-n // per)


def width_grid(role: str) -> Callable[[Op, Context], Grid]:
    """A grid with one lane per float of the view."""
    return lambda op, c: (tiles(op.view(role).cols), rows_of(op, role), 1)


def row_grid(role: str) -> Callable[[Op, Context], Grid]:
    """A grid with one workgroup per row of the view."""
    return lambda op, c: (rows_of(op, role), 1, 1)


def width(role: str) -> Callable[[Op, Context], Constants]:
    """The constant C: the number of columns of the view."""
    return lambda op, c: {"C": op.view(role).cols}
