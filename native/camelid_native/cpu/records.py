"""Records of `c/abi.h`, filled from a plan: operands stand in the order of the op's row in OPS.

`api.py` refuses a library whose records have other sizes; a test compares the offset of each field.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from camelid.backends.base import reason_against_dtypes
from camelid.errors import BackendError
from camelid.formats.quants import quant, row_bytes
from camelid.plan.dtypes import F32
from camelid.plan.op_rows_adapters import LOW_RANK
from camelid.plan.op_rows_recurrent import SLOT_TENSORS
from camelid.plan.ops import row_of
from camelid.plan.plan import Attr, Op, Plan, StateRef, StateSpec, View
from camelid.plan.weights import Weight

ABI = 6
STATE_TENSORS = 2
MOST_RUNS = 8  # one running, seven queued
ROWS = {"T": 0, "S": 1, "O": 2}
FORM_F32, FORM_ROWS, FORM_PANELS, FORM_GATED = range(4)
TURNS = {FORM_PANELS: 1, FORM_GATED: 2}  # form -> parts of the rows whose panels alternate
AS_BF16 = frozenset({"mxfp8"})  # 8-bit floats, whose values bf16 has, in panels of bf16
FLAG_SAME_X, FLAG_JOINED = 1, 2
PANEL_ROWS = 16
FEATURES = {"all_logits": 1, "candidates": 2}
KV_TYPES = ("f32", "f16", "q8_0", "q4_0")  # state types of the attention and kv_write kernels
PRODUCTS = ("linear", "linear_experts", "linear_heads", "linear_exact", "linear_back")
QUANTIZING = ("linear", "linear_glu")  # ops that can reuse the x quantized by the op before
JOINED_ATTRS = ("rank", "n_in", "deferred", "eps")  # equal in terms that one kernel computes
ACTS = ("silu", "gelu", "gelu_erf", "relu", "relu2", "sigmoid", "tanh")
# (op, attribute) -> values that the kernel distinguishes; the kernel does not detect any other value.
KERNEL_WORDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("attend_rows", "mask"): ("full", "causal", "symmetric"),
    ("attention", "mask"): ("causal", "held", "chunked"),
    ("conv1d", "act"): ("none", *ACTS),
    ("glu", "act"): ("none", *ACTS, "swiglu_oai"),
    ("glu_back", "act"): ("none", *ACTS, "swiglu_oai"),
    ("linear_glu", "act"): ("none", *ACTS, "swiglu_oai"),
    ("norm", "kind"): ("rms", "layer", "l2"),
    ("norm_back", "kind"): ("rms", "layer", "l2"),
    ("pool", "kind"): ("mean", "cls", "last"),
    ("rope", "style"): ("norm", "neox"),
    ("rope_back", "style"): ("norm", "neox"),
    ("router", "gate"): ("softmax", "sigmoid", "topk_softmax", "sparsemixer"),
    ("unary", "act"): ("none", *ACTS),
    ("unary_back", "act"): ("none", *ACTS),
}
FORMS = {
    ("embed", "weight"): FORM_ROWS,
    ("embed_position", "weight"): FORM_ROWS,
    **{(op, "weight"): FORM_PANELS for op in PRODUCTS},
    ("linear_glu", "weight"): FORM_GATED,
}


class ViewRecord(ctypes.Structure):
    _fields_ = (
        ("at", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("cols", "stride", "rows", "reserved")),
    )


class WeightRecord(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("at", "stack_bytes")),
        *((name, ctypes.c_uint32) for name in ("form", "type", "stack", "rows", "cols", "reserved")),
    )


class StateRecord(ctypes.Structure):
    _fields_ = (
        ("at", ctypes.c_uint64 * 2),
        ("table", ctypes.c_uint64),
        *((name, ctypes.c_uint32 * 2) for name in ("row_bytes", "cols")),
        *(
            (name, ctypes.c_uint32)
            for name in ("group", "type", "unit_rows", "table_cols", "n_layers", "n_units")
        ),
    )


class OpRecord(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("kind", "flags")),
        ("views", ViewRecord * 8),
        ("weights", WeightRecord * 3),
        ("states", StateRecord * 2),
        ("attrs", ctypes.c_double * 6),
    )


OFFSETS = (
    "rows_at", "row_words", "sequences_at", "sequence_words", "outputs_at", "sampling_at", "biases_at",
    "updates_at", "copies_at",
)  # fmt: skip


class ProgramRecord(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("ops", "n_ops", "scratch", "scratch_bytes")),
        *((name, ctypes.c_uint32) for name in (*OFFSETS, "features", "capacity_rows", "capacity_outputs")),
    )


RECORDS = (ViewRecord, WeightRecord, StateRecord, OpRecord, ProgramRecord)


@dataclass(frozen=True, slots=True)
class Placed:
    """Addresses of a plan's operands, and the library's numbers of op names and attribute words."""

    view: Callable[[View], int]  # view -> address
    weight: Callable[[Weight, int], WeightRecord]  # (weight, form) -> record
    state: Callable[[StateRef, str], StateRecord]
    kinds: Mapping[str, int]
    words: Mapping[str, int]


def op_records(plan: Plan, placed: Placed) -> ctypes.Array[OpRecord]:
    """Records of all ops of a plan. Raises BackendError if the kernels cannot run the plan."""
    reason = reason_against_dtypes(plan, frozenset({F32})) or refusal(plan, placed.words)
    if reason:
        raise BackendError(f"backend 'cpu' cannot run this plan: {reason}", backend="cpu")
    records = (OpRecord * len(plan.ops))()
    gated, flags = gated_weights(plan), zip(_same_x(plan.ops), _joined(plan.ops), strict=True)
    for record, op, (same_x, joined) in zip(records, plan.ops, flags, strict=True):
        _fill(record, op, placed, gated)
        record.flags = same_x * FLAG_SAME_X | joined * FLAG_JOINED
    return records


def refusal(plan: Plan, words: Mapping[str, int]) -> str:
    """Reason why the kernels cannot run the plan although each op has a kernel; empty if they can.

    `words` are the library's attribute words.
    """
    return next(chain(_unknown_words(plan, words), _unknown_types(plan)), "")


def _unknown_words(plan: Plan, words: Mapping[str, int]) -> Iterator[str]:
    for op in plan.ops:
        for name, value in op.attrs:
            if isinstance(value, str) and value not in words.keys() & {
                *KERNEL_WORDS.get((op.name, name), ())
            }:
                yield f"it has no kernel for the op {op.name} with {name} = {value!r}"


def _unknown_types(plan: Plan) -> Iterator[str]:
    for state in plan.states:
        if state.kv_type not in KV_TYPES:
            known = ", ".join(KV_TYPES)
            yield f"it has no kernel for state {state.name!r} of type {state.kv_type}; supported: {known}"


def program_record(plan: Plan, ops: ctypes.Array[OpRecord]) -> ProgramRecord:
    """Program record over these op records; `scratch` is left 0."""
    offsets = {name: getattr(plan.layout, name) for name in OFFSETS}
    return ProgramRecord(
        ops=ctypes.addressof(ops),
        n_ops=len(ops),
        **offsets,
        features=sum(FEATURES.get(name, 0) for name in plan.key.features),
        capacity_rows=plan.key.capacity.rows,
        capacity_outputs=plan.key.capacity.outputs,
    )


@dataclass(frozen=True, slots=True)
class PlacedState:
    """Address of a state group: rows of all layers are contiguous, layer by layer, tensor by tensor."""

    spec: StateSpec
    group: int  # index in the group words of a sequence in the step
    at: int
    n_units: int
    table_at: int = 0
    table_cols: int = 0

    def record(self, ref: StateRef, first: str = "") -> StateRecord:
        """Record of one layer. `first` names the tensor to put first, for ops that read one tensor only."""
        spec = self.spec
        layer = spec.layers.index(ref.layer) if ref.layer in spec.layers else 0
        at = self.at + layer * self.n_units * spec.unit_rows * spec.row_bytes
        tensors: list[tuple[str, int, int]] = []
        for name, cols in spec.tensors:
            tensors.append((name, at, cols))
            at += self.n_units * spec.unit_rows * row_bytes(spec.kv_type, cols)
        tensors.sort(key=lambda tensor: tensor[0] != first if first else 0)
        del tensors[STATE_TENSORS:]  # a slot of an adapter has one for each matrix
        return StateRecord(
            at=(ctypes.c_uint64 * STATE_TENSORS)(*(at for _, at, _ in tensors)),
            table=self.table_at,
            row_bytes=(ctypes.c_uint32 * STATE_TENSORS)(
                *(row_bytes(spec.kv_type, cols) for _, _, cols in tensors)
            ),
            cols=(ctypes.c_uint32 * STATE_TENSORS)(*(cols for _, _, cols in tensors)),
            group=self.group,
            type=quant(spec.kv_type).id,
            unit_rows=spec.unit_rows,
            table_cols=self.table_cols,
            n_layers=max(len(spec.layers), 1),
            n_units=self.n_units,
        )


def stacked(weight: Weight) -> tuple[int, int, int]:
    """Shape [stack, rows, cols] of a vector, a matrix or a stack of matrices."""
    *outer, cols = weight.shape
    return (outer[0], outer[1], cols) if len(outer) == 2 else (1, weight.rows, cols)


def panel_type(weight_type: str) -> str:
    """The type of a weight's panels."""
    return "bf16" if weight_type in AS_BF16 else weight_type


def weight_record(weight: Weight, form: int, at: int, stack_bytes: int = 0) -> WeightRecord:
    """Record of a weight at address `at`."""
    stack, rows, cols = stacked(weight)
    type_id = quant(panel_type(weight.type) if form in TURNS else weight.type).id if form else 0
    return WeightRecord(
        at=at, stack_bytes=stack_bytes, form=form, type=type_id, stack=stack, rows=rows, cols=cols
    )


def _fill(record: OpRecord, op: Op, placed: Placed, gated: Collection[str]) -> None:
    row = row_of(op.name)
    record.kind = placed.kinds[op.name]
    slots: Counter[str] = Counter()
    for role in row.roles:
        kind, number = row.kind(role), slots[row.kind(role)]
        slots[kind] += 1
        if not op.has(role):
            continue
        if kind == "View":
            record.views[number] = _view(op.view(role), placed)
        elif kind == "Weight":
            record.weights[number] = placed.weight(op.weight(role), form_of(op, role, gated))
        else:
            record.states[number] = placed.state(op.state(role), _first_tensor(op))
    for number, (_, value) in enumerate(op.attrs):
        record.attrs[number] = _number(value, placed)


def _first_tensor(op: Op) -> str:
    """The tensor of its state that an op reads; "" if it reads all."""
    return str(op.integer("tensor")) if op.name in LOW_RANK else SLOT_TENSORS.get(op.name, "")


def _view(view: View, placed: Placed) -> ViewRecord:
    at = placed.view(view) + view.offset_bytes
    return ViewRecord(at=at, cols=view.cols, stride=view.stride, rows=ROWS[view.rows])


def _number(value: Attr, placed: Placed) -> float:
    """Attribute as a float; a word becomes its number in the library."""
    return float(placed.words[value]) if isinstance(value, str) else float(value)


def form_of(op: Op, role: str, gated: Collection[str]) -> int:
    """Form (FORM_*) in which an op reads its weight; `gated` are the plan's `gated_weights`."""
    is_gated = op.name == "linear" and role == "weight" and op.weight(role).name in gated
    return FORM_GATED if is_gated else FORMS.get((op.name, role), FORM_F32)


def gated_weights(plan: Plan) -> frozenset[str]:
    """Weights of linear maps to a gate and its up side by side, whose product a glu is.

    They have the form that `linear_glu` reads in plans without adapters, so that memory has it once.
    """
    halves = {op.view("gate").buffer: op for op in plan.ops if op.name == "glu"}
    maps = ((op, halves.get(op.view("y").buffer)) for op in plan.ops if op.name == "linear")
    return frozenset(op.weight("weight").name for op, glu in maps if glu and _is_beside(op.view("y"), glu))


def _is_beside(y: View, glu: Op) -> bool:
    gate, up = glu.view("gate"), glu.view("up")
    is_whole = (y.offset, y.cols, gate.offset) == (0, 2 * gate.cols, 0) and gate.cols % PANEL_ROWS == 0
    return is_whole and up == replace(gate, offset=gate.cols)


def _same_x(ops: Sequence[Op]) -> Iterator[bool]:
    """True for each op that quantizes the same x as the op directly before it."""
    before: View | None = None
    for op in ops:
        x = op.view("x") if op.name in QUANTIZING else None
        yield x is not None and x == before
        before = x


def _joined(ops: Sequence[Op]) -> Iterator[bool]:
    """True for each low-rank term that the kernel of the term before it computes: one x, columns apart."""
    sites: list[Op] = []
    for op in ops:
        is_joined = op.name == "low_rank" and bool(sites) and all(_are_apart(op, site) for site in sites)
        yield is_joined
        sites = [*(sites if is_joined else ()), op] if op.name == "low_rank" else []


def _are_apart(op: Op, site: Op) -> bool:
    """True if two terms share all but their slots, scales and columns, which may not overlap."""
    y, other = op.view("y"), site.view("y")
    shares = all(op.number(name) == site.number(name) for name in JOINED_ATTRS)
    is_apart = y.offset >= other.offset + other.cols or other.offset >= y.offset + y.cols
    return shares and op.view("x") == site.view("x") and (y.buffer != other.buffer or is_apart)
