"""Ops of training plans with inputs, for comparisons of their gradients with finite differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from camelid.backends.base import PoolSize
from camelid.backends.reference.backend import KERNELS
from camelid.backends.reference.frame import ExactFrame, StatePools
from camelid.backends.reference.store import WeightStore
from camelid.plan.op_rows_training import TRAINED
from camelid.plan.ops import row_of
from camelid.plan.plan import Attr, Buffer, Op, Operand, Plan, Stage, StateRef, StateSpec, View, whole
from camelid.plan.step import Capacity, ProgramKey, Step, StepRow, StepSequence
from camelid.plan.training_forward import Forward, used_by
from camelid.plan.vjp import VJP, Gradients
from camelid.plan.weights import Weight, inline_f32

F64 = NDArray[np.float64]
SEQUENCES = (5, 3)  # rows of each
OUTPUTS = (1, 4, 6, 6)  # rows; one twice
N_TRAINED = 64
STATES = (StateSpec(TRAINED, "trained", (), (("value", N_TRAINED), ("gradient", N_TRAINED)), 1),)


@dataclass(frozen=True)
class VjpCase:
    """A forward op. `views` are the columns of its views by role; `rows` the row symbols other than T."""

    op: str
    views: Mapping[str, int]
    weights: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    attrs: Mapping[str, Attr] = field(default_factory=dict[str, Attr])
    rows: Mapping[str, str] = field(default_factory=dict[str, str])
    has_state: bool = False
    fixed: tuple[str, ...] = ("acts",)  # inputs without a gradient
    wide: bool = False  # inputs spread beyond the limits of clamps

    def __str__(self) -> str:
        words = [str(value) for value in self.attrs.values() if isinstance(value, str)]
        flags = [
            f"{name}{value:g}" for name, value in self.attrs.items() if name in ("window", "softcap", "size")
        ]
        return "-".join([self.op, *words, *flags])


def _rope(style: str, offset: int = 0) -> VjpCase:
    tables = {"fine": (4, 4), "coarse": (2, 4)}
    attrs: dict[str, Attr] = {"head_dim": 6, "dim": 4, "style": style, "offset": offset}
    return VjpCase("rope", {"x": 12}, tables, attrs)


def _attend(**attrs: Attr) -> VjpCase:
    views = {"y": 12, "stats": 8, "q": 8, "k": 4, "v": 6}
    return VjpCase("attend_causal", views, attrs={"n_heads": 4, "n_kv_heads": 2, "scale": 0.6, **attrs})


ACTS = ("silu", "gelu", "gelu_erf", "relu", "relu2", "sigmoid", "tanh")
XY = {"y": 8, "x": 8}
CASES: tuple[VjpCase, ...] = (
    VjpCase("copy_rows", XY),
    VjpCase("linear_exact", {"y": 6, "x": 8}, {"weight": (6, 8), "bias": (6,)}),
    VjpCase("shrink", {"u": 3, "x": 8, "acts": 1}, attrs={"at": 5, "scale": 1.5}, has_state=True),
    VjpCase("expand", {"y": 8, "u": 3}, attrs={"at": 7, "scale": 0.5}, has_state=True),
    VjpCase("norm", XY, {"gain": (8,)}, {"eps": 1e-2}),
    VjpCase("norm", XY, {"gain": (4,)}, {"eps": 1e-2, "size": 4}),
    VjpCase("norm", XY, {"gain": (2, 4), "bias": (4,)}, {"eps": 1e-2, "kind": "layer", "size": 4}),
    VjpCase("norm", XY, {}, {"eps": 1e-2, "kind": "layer"}),
    VjpCase("norm", XY, {}, {"eps": 1e-6, "kind": "l2"}),
    VjpCase("norm", XY, {}, {"eps": 100.0, "kind": "l2", "size": 4}),
    VjpCase("add", {"x": 8, "r": 8}, attrs={"scale": 0.7}),
    VjpCase("mul", {"x": 8, "r": 8}),
    VjpCase("mul", {"x": 8, "r": 2}),
    VjpCase("scale", {"x": 8}, attrs={"by": -0.4}),
    VjpCase("softcap", {"x": 8}, attrs={"cap": 1.5}),
    VjpCase("clamp", {"x": 8}, attrs={"limit": 1.0}),
    VjpCase("temperature", {"x": 8}, attrs={"by": 0.3, "length": 2}),
    VjpCase("affine", XY, {"weight": (8,), "bias": (8,)}),
    *(VjpCase("unary", {"x": 8}, attrs={"act": act}) for act in ACTS),
    *(VjpCase("glu", {"y": 8, "gate": 8, "up": 8}, attrs={"act": act}) for act in ACTS),
    VjpCase("glu", {"y": 8, "gate": 8, "up": 8}, attrs={"act": "swiglu_oai"}, wide=True),
    _rope("norm"),
    _rope("neox", offset=2),
    _attend(),
    _attend(window=2),
    _attend(softcap=0.8),
    VjpCase("gather_rows", XY, rows={"y": "O"}),
)


def step() -> Step:
    made = Step()
    for number, n in enumerate(SEQUENCES):
        made.sequences.append(StepSequence(first_row=len(made.rows), rows=n, groups=((0, 0, 0),)))
        made.rows += [
            StepRow(source=0, value=0, sequence=number, state_row=i, positions=(i,)) for i in range(n)
        ]
    made.outputs = [(row, 0 if row < SEQUENCES[0] else 1, 0) for row in OUTPUTS]
    return made


N_ROWS = {"T": sum(SEQUENCES), "O": len(OUTPUTS)}


class Differentiated:
    """A case's ops with random inputs: the loss `sum(weights * outputs)`, and its gradients."""

    def __init__(self, case: VjpCase, seed: int = 1) -> None:
        self.rng, self.case = np.random.default_rng(seed), case
        self.forward = Forward(None, {}, {})
        views = {role: self._view(role, cols) for role, cols in case.views.items()}
        weights = {role: self._weight(role, shape) for role, shape in case.weights.items()}
        state: dict[str, Operand] = {TRAINED: StateRef(TRAINED)} if case.has_state else {}
        self.forward.add_op(case.op, {**views, **weights, **state}, case.attrs)
        self.op = self.forward.ops[-1]
        self.inputs = {b: self._random(b) for b in self._input_buffers()}
        self.state = self.rng.normal(size=N_TRAINED)
        made = {
            name: view for name, view in self.op.views() if name in ("y", "u", "x") and self._is_made(view)
        }
        self.outputs = {
            view.buffer: self.rng.normal(size=(N_ROWS[view.rows], view.cols)) for view in made.values()
        }

    def _view(self, role: str, cols: int) -> View:
        return whole(Buffer(role, self.case.rows.get(role, "T"), cols))

    def _weight(self, role: str, shape: tuple[int, ...]) -> Weight:
        n = int(np.prod(shape))
        if role in ("fine", "coarse"):  # turns of any length
            angles = self.rng.uniform(0, 6, n // 2)
            pairs = 1.3 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
            return inline_f32(role, pairs.ravel().tolist(), shape)
        return inline_f32(role, self.rng.normal(size=n).tolist(), shape)

    def _is_made(self, view: View) -> bool:
        read = {buffer for op in self.forward.ops for buffer in _read(op)}
        return view.buffer not in read or view.buffer in self.forward.before

    def _input_buffers(self) -> list[Buffer]:
        made = {view.buffer for op in self.forward.ops for view in _written(op)}
        return [v.buffer for op in self.forward.ops for _, v in op.views() if v.buffer not in made]

    def _random(self, buffer: Buffer) -> F64:
        shape = N_ROWS[buffer.rows], buffer.cols
        return self.rng.normal(size=shape) * (6.0 if self.case.wide else 1.0)

    def run(self, ops: list[Op], values: Mapping[Buffer, F64], state: F64) -> tuple[ExactFrame, F64]:
        """The frame after these ops, and the gradient of the trained values."""
        capacity = Capacity(rows=N_ROWS["T"], sequences=2, outputs=N_ROWS["O"], updates=0)
        plan = Plan(
            key=ProgramKey(entry="train", capacity=capacity),
            stages=(Stage("train", tuple(ops)),),
            states=STATES,
        )
        pools = StatePools.allocate(STATES, {TRAINED: PoolSize(units=1)}, exact=True)
        pools.tensor(StateRef(TRAINED), "value")[0, 0] = state
        held: dict[str, Any] = {buffer.name: value.copy() for buffer, value in values.items()}
        frame = ExactFrame(plan, step(), WeightStore(), pools, held, [])
        for op in ops:
            KERNELS[op.name](op, frame)
        return frame, pools.tensor(StateRef(TRAINED), "gradient")[0, 0]

    def loss(self, values: Mapping[Buffer, F64], state: F64) -> float:
        frame, _ = self.run(self.forward.ops, values, state)
        return sum(float((w * frame.values[b.name]).sum()) for b, w in self.outputs.items())

    def backward(self) -> tuple[list[Op], Gradients]:
        held = {b: Buffer(f"d.{b.name}", b.rows, b.cols) for b in self.outputs}
        gradients = Gradients(self.forward.before, held=dict(held))
        for op in reversed(self.forward.ops):
            VJP[op.name](op, gradients)
        return gradients.ops, gradients

    def gradients(self) -> dict[str, F64]:
        """By input's name; of the trained values under TRAINED."""
        ops, found = self.backward()
        values = {
            **self.inputs,
            **{Buffer(f"d.{b.name}", b.rows, b.cols): w for b, w in self.outputs.items()},
        }
        frame, trained = self.run([*self.forward.ops, *ops], values, self.state)
        views = {b: found.of(whole(b)) for b in self.inputs if b.name not in self.case.fixed}
        own = {b.name: frame.values[view.buffer.name] for b, view in views.items() if view}
        return {**own, **({TRAINED: trained} if self.case.has_state else {})}

    def differences(self, width: float = 1e-4) -> dict[str, F64]:
        """The same gradients by central differences of fourth order."""
        found = {b.name: self._by_entry(b, width) for b in self.inputs if b.name not in self.case.fixed}
        if self.case.has_state:
            found[TRAINED] = _slopes(lambda s: self.loss(self.inputs, s), self.state, width)
        return found

    def _by_entry(self, buffer: Buffer, width: float) -> F64:
        return _slopes(
            lambda x: self.loss({**self.inputs, buffer: x}, self.state), self.inputs[buffer], width
        )


def _slopes(loss: Any, at: F64, width: float) -> F64:
    found = np.zeros_like(at)
    for i in np.ndindex(at.shape):
        ends = []
        for by in (width, 2 * width):
            up, down = at.copy(), at.copy()
            up[i] += by
            down[i] -= by
            ends.append(loss(up) - loss(down))
        found[i] = (8.0 * ends[0] - ends[1]) / (12.0 * width)
    return found


def _written(op: Op) -> list[View]:
    return [op.view(role) for role in row_of(op.name).writes]


def _read(op: Op) -> set[Buffer]:
    return {*used_by(op)}


def error(found: Mapping[str, F64], wanted: Mapping[str, F64]) -> float:
    """Largest difference, relative to the largest gradient of its input."""
    assert found.keys() == wanted.keys(), (sorted(found), sorted(wanted))
    return max(float(np.abs(found[n] - w).max() / max(np.abs(w).max(), 1e-9)) for n, w in wanted.items())
