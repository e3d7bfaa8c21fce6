"""What a row of the kernel table is, and the constants and grids that rows share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from camelid.backends.base import PoolSize
from camelid.backends.webgpu.tape import GridEntry
from camelid.plan.plan import Op, Plan
from camelid.plan.step import StepLayout

Constants = dict[str, float]
Grid = tuple[GridEntry, GridEntry, GridEntry]
Files = tuple[str, ...]

LANES = 64
GPU_LANES, SOFTWARE_LANES = 16, 2  # that share a weight row; see matvec.wgsl
TOKENS = 8  # rows, prompt or generated, that share one reading of the weights; matvec.wgsl has room for these
ROW_WORDS = {"T": StepLayout.header_word("rows"), "O": StepLayout.header_word("outputs")}


@dataclass(frozen=True, slots=True)
class Context:
    """What a kernel's constants may depend on besides its op."""

    plan: Plan
    pools: dict[str, PoolSize]
    lanes: int = GPU_LANES

    def tokens(self, op: Op, role: str) -> int:
        """Token rows that a workgroup takes; the bits of a row do not depend on it."""
        return min(TOKENS, self.plan.rows[op.view(role).rows])


@dataclass(frozen=True, slots=True)
class Kernel:
    """One op on webgpu.

    `bindings` follow the step: a view, a weight, `state.<tensor>` (of a layer; `*`: all that it has),
    `state.tables` (of all groups) or `result`. A trailing `+` marks state that is written, a trailing `?` an
    operand that may be absent (the step stands in for it, and the constant HAS_<ROLE> says so), `a|b` a place
    for one of two. `codec` names the weight whose codec is joined, `state_codec` the files of each type of
    state, `acts` those of each activation. `attrs` are the attributes that the kernel obeys; of those in
    `words` it knows these values, and the number beside each goes in as a constant. `vec4` lists views that
    it reads four floats at a time. `refuses` gives the reason why an op cannot run, or "".
    """

    files: Files
    bindings: tuple[str, ...]
    constants: Callable[[Op, Context], Constants]
    grid: Callable[[Op, Context], Grid]
    codec: str = ""
    state_codec: Mapping[str, Files] = field(default_factory=dict[str, Files])
    acts: Mapping[str, Files] = field(default_factory=dict[str, Files])
    attrs: tuple[str, ...] = ()
    words: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    vec4: tuple[str, ...] = ()
    refuses: Callable[[Op, Plan], str] = lambda op, plan: ""

    @property
    def operands(self) -> frozenset[str]:
        """Every role that the kernel obeys."""
        return frozenset(role for binding in self.bindings for role in roles_of(binding))

    @property
    def optional(self) -> tuple[str, ...]:
        """The roles that may be absent."""
        return tuple(role for b in self.bindings if b.endswith("?") for role in roles_of(b))


def roles_of(binding: str) -> list[str]:
    return binding.rstrip("+?").partition(".")[0].split("|")


def rows_of(op: Op, role: str, per: int = 1) -> GridEntry:
    """As many workgroups as the step has rows of this view, `per` rows each."""
    return (ROW_WORDS[op.view(role).rows], per)


def tiles(n: int, per: int = LANES) -> int:
    return -(-n // per)


def width_grid(role: str) -> Callable[[Op, Context], Grid]:
    """A lane a float."""
    return lambda op, c: (tiles(op.view(role).cols), rows_of(op, role), 1)


def row_grid(role: str) -> Callable[[Op, Context], Grid]:
    """A workgroup a row."""
    return lambda op, c: (rows_of(op, role), 1, 1)


def width(role: str) -> Callable[[Op, Context], Constants]:
    """C is the view's columns."""
    return lambda op, c: {"C": op.view(role).cols}
