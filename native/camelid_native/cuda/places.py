"""Arguments of kernels by name: the step, views, weights, state and results of an op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from camelid.plan.memory import Arena
from camelid.plan.op_rows_adapters import LOW_RANK
from camelid.plan.op_rows_recurrent import SLOT_TENSORS
from camelid.plan.ops import OPS
from camelid.plan.plan import Op, Plan, StateRef, View
from camelid.plan.step import StepLayout
from camelid.plan.weights import Weight
from camelid_native.cuda.kernel import OpKernels
from camelid_native.cuda.signature import Value, Values

ROW_WORDS = {"T": StepLayout.header_word("rows"), "O": StepLayout.header_word("outputs")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Addresses of a program: its arena and step, results by parameter, and functions for operands."""

    plan: Plan
    arena: Arena
    arena_at: int
    step_at: int
    results: Mapping[str, int]
    weight: Callable[[Weight], tuple[int, ...]]
    state: Callable[[StateRef, str], tuple[int, ...]]  # with the name of a slot's tensor
    regions: Callable[[str], int]  # the table of all tensors of a state group

    def values(self, op: Op, row: OpKernels) -> Values:
        """Values of the op's operands by role, 0 for absent ones, and the numbers of its word attributes."""
        layout = self.plan.layout
        found: dict[str, Value] = {"step": (self.step_at, layout.row_words, layout.sequence_words)}
        found |= dict.fromkeys(OPS[op.name].roles, 0) | dict(self.results)
        tensor = str(op.integer("tensor")) if op.name in LOW_RANK else SLOT_TENSORS.get(op.name, "")
        found |= {role: self._operand(operand, tensor) for role, operand in op.operands}
        if op.has("state"):
            found["regions"] = self.regions(op.state("state").group)
        return found | {name: known[op.word(name)] for name, known in row.words.items()}

    def _operand(self, operand: View | Weight | StateRef, tensor: str) -> tuple[int, ...]:
        if isinstance(operand, Weight):
            return self.weight(operand)
        if isinstance(operand, StateRef):
            return self.state(operand, tensor)
        at = self.arena_at + self.arena.offsets[operand.buffer.name] + operand.offset_bytes
        return (at, operand.stride, ROW_WORDS[operand.rows])
