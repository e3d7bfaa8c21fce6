"""The plan: the program of one engine step, a flat list of typed ops over named buffers and declared state.

Backends see plans only, never models. `Plan.text` prints the architecture (`camelid explain`); tests compare
it with golden files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from camelid.formats.quants import row_bytes
from camelid.plan.dtypes import F32, element_bytes
from camelid.plan.step import ProgramKey, StepLayout
from camelid.plan.weights import Weight

Attr = int | float | str

PAGE_ROWS = 16  # rows of a KV cache page, unless a backend chooses others


@dataclass(frozen=True, slots=True)
class Buffer:
    """An activation `[rows, cols]`, stored as `dtype` (a key of `DTYPES`).

    `rows` is a row symbol: T token rows or O output rows, up to the program's capacity.
    """

    name: str
    rows: str
    cols: int
    dtype: str = F32

    @property
    def element_bytes(self) -> int:
        return element_bytes(self.dtype)

    @property
    def row_bytes(self) -> int:
        return self.cols * self.element_bytes


@dataclass(frozen=True, slots=True)
class View:
    """Columns `offset .. offset + cols` of a buffer; the row stride is the buffer's width."""

    buffer: Buffer
    cols: int
    offset: int = 0

    @property
    def rows(self) -> str:
        return self.buffer.rows

    @property
    def stride(self) -> int:
        return self.buffer.cols

    @property
    def dtype(self) -> str:
        return self.buffer.dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of the view's columns in one row."""
        return self.cols * self.buffer.element_bytes

    @property
    def offset_bytes(self) -> int:
        """Bytes of a row before the view's first column."""
        return self.offset * self.buffer.element_bytes

    def slice(self, offset: int, cols: int) -> View:
        return replace(self, offset=self.offset + offset, cols=cols)

    def __str__(self) -> str:
        is_whole = self.cols == self.buffer.cols
        columns = f"{self.cols}" if is_whole else f"{self.offset}:{self.offset + self.cols}"
        dtype = "" if self.dtype == F32 else f":{self.dtype}"
        return f"{self.buffer.name}[{self.rows},{columns}]{dtype}"


def whole(buffer: Buffer) -> View:
    """All columns of a buffer."""
    return View(buffer, buffer.cols)


@dataclass(frozen=True, slots=True)
class StateSpec:
    """A declared state group, shared by all plans of a model.

    - `kind` is paged, window, recurrent, static, ring or adapter. A paged unit (a page) holds `unit_rows`
      rows of each tensor of `tensors` (name, floats per row) for each layer of `layers`. A recurrent unit is
      one slot of one row. A ring unit holds the last `unit_rows` token ids of one sequence as u32. An adapter
      unit is a slot (op_rows_adapters.py), which a sequence names by the adapter word of the step.
    - `kv_type` is the storage type of tensor rows: f32, f16, q8_0 or q4_0, in GGUF's blocks along the
      columns.
    - `window` > 0: a query reads at most `window` - 1 rows before its own, so older pages can be freed.
    - `matrices` are the names of the matrices of an adapter unit's tensors, with {} for the layer.
    """

    name: str
    kind: str
    layers: tuple[int, ...]
    tensors: tuple[tuple[str, int], ...]
    unit_rows: int
    kv_type: str = "f32"
    window: int = 0
    matrices: tuple[str, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of one layer.

        Raises ModelFormatError if a tensor is not a whole number of blocks.
        """
        return sum(row_bytes(self.kv_type, cols) for _, cols in self.tensors)

    @property
    def unit_bytes(self) -> int:
        """Bytes of one unit as `Backend.read_state` returns it: by layer, by tensor, `unit_rows` rows."""
        return self.row_bytes * self.unit_rows * max(len(self.layers), 1)


@dataclass(frozen=True, slots=True)
class StateRef:
    """One layer of a state group."""

    group: str
    layer: int = 0

    def __str__(self) -> str:
        return f"{self.group}.{self.layer}"


Operand = View | Weight | StateRef


@dataclass(frozen=True, slots=True)
class Op:
    """One op of a plan: its name, operands by role, and attributes."""

    name: str
    operands: tuple[tuple[str, Operand], ...]
    attrs: tuple[tuple[str, Attr], ...] = ()

    def view(self, role: str) -> View:
        operand = dict(self.operands)[role]
        assert isinstance(operand, View), f"{self.name}.{role} is not a view"
        return operand

    def weight(self, role: str) -> Weight:
        operand = dict(self.operands)[role]
        assert isinstance(operand, Weight), f"{self.name}.{role} is not a weight"
        return operand

    def state(self, role: str) -> StateRef:
        operand = dict(self.operands)[role]
        assert isinstance(operand, StateRef), f"{self.name}.{role} is not state"
        return operand

    def number(self, name: str) -> float:
        return float(dict(self.attrs)[name])

    def integer(self, name: str) -> int:
        return int(dict(self.attrs)[name])

    def word(self, name: str) -> str:
        return str(dict(self.attrs)[name])

    def has(self, role: str) -> bool:
        return role in dict(self.operands)

    def views(self) -> Iterator[tuple[str, View]]:
        return ((role, o) for role, o in self.operands if isinstance(o, View))

    def weights(self) -> Iterator[Weight]:
        return (o for _, o in self.operands if isinstance(o, Weight))


@dataclass(frozen=True, slots=True)
class Stage:
    """The ops of one device, with the boundary buffers that they read (`inputs`) and write (`outputs`)."""

    name: str
    ops: tuple[Op, ...]
    inputs: tuple[Buffer, ...] = ()
    outputs: tuple[Buffer, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One entry of a model at given capacities. No slots: `cached_property` needs a `__dict__`."""

    key: ProgramKey
    stages: tuple[Stage, ...]
    states: tuple[StateSpec, ...]
    n_channels: int = 1

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        return tuple(op for stage in self.stages for op in stage.ops)

    @property
    def given(self) -> tuple[Buffer, ...]:
        """Buffers that each run receives: inputs of the first stage."""
        return self.stages[0].inputs if self.stages else ()

    @property
    def made(self) -> tuple[Buffer, ...]:
        """Buffers that each run returns: outputs of the last stage."""
        return self.stages[-1].outputs if self.stages else ()

    @cached_property
    def layout(self) -> StepLayout:
        n_groups = sum(state.kind != "adapter" for state in self.states)  # adapter groups come last
        return StepLayout(self.key.capacity, n_groups, self.n_channels)

    @cached_property
    def _groups(self) -> Mapping[str, int]:
        return {state.name: number for number, state in enumerate(self.states)}

    @property
    def rows(self) -> Mapping[str, int]:
        """Capacity by row symbol."""
        c = self.key.capacity
        return {"T": c.rows, "S": c.sequences, "O": c.outputs}

    def weights(self) -> dict[str, Weight]:
        """Weights that the ops read, by name, in order of first use."""
        return {w.name: w for op in self.ops for w in op.weights()}

    def group(self, name: str) -> int:
        """Index of a state group in `states` and in the step's words of each sequence."""
        return self._groups[name]

    def state(self, name: str) -> StateSpec:
        return self.states[self.group(name)]

    def text(self) -> str:
        """The plan as text, one op per line. Equal plans have equal text."""
        lines = [f"plan {self.key}", *(_state_line(s) for s in self.states)]
        for stage in self.stages:
            lines.append(_stage_line(stage))
            lines += [f"{i:4d}  {_op_line(op)}" for i, op in enumerate(stage.ops)]
        return "\n".join(lines) + "\n"

    def hash(self) -> str:
        return hashlib.sha256(self.text().encode()).hexdigest()[:16]


def _stage_line(stage: Stage) -> str:
    """The stage's name, and its boundary buffers if it has any."""
    sides = (("takes", stage.inputs), ("makes", stage.outputs))
    buffers = [f"  {word} {' '.join(map(str, map(whole, side)))}" for word, side in sides if side]
    return f"stage {stage.name}{''.join(buffers)}"


def _state_line(s: StateSpec) -> str:
    tensors = " ".join(f"{name}[{cols}]" for name, cols in s.tensors)
    window = f" window={s.window}" if s.window else ""
    kind = f"{s.kind} {s.kv_type}{window}"
    return f"state {s.name} {kind} layers={len(s.layers)} unit={s.unit_rows} rows  {tensors}"


def _op_line(op: Op) -> str:
    operands = "  ".join(f"{role}={_operand_text(o)}" for role, o in op.operands)
    attrs = "".join(
        f"  {name}={value:g}" if isinstance(value, float) else f"  {name}={value}" for name, value in op.attrs
    )
    return f"{op.name:<11} {operands}{attrs}"


def _operand_text(operand: Operand) -> str:
    if isinstance(operand, Weight):
        return f"{operand.name}{list(operand.shape)}:{operand.type}".replace(", ", ",")
    return str(operand)
