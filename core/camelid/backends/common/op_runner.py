"""Runs a single op on any backend, for the parity gate and for authors of kernels.

`OpCase` is the op with its inputs. `run_case` builds a plan of this op, writes keys and values to scattered
pages, runs the plan, and returns everything that the op has written.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from camelid.backends.base import Backend, OutputRow, PoolSize
from camelid.backends.common.codecs import decode, encode
from camelid.backends.common.codecs.activations import load, of_bytes, store
from camelid.formats.quants import row_bytes
from camelid.plan.op_rows_fused import KV_OPS
from camelid.plan.op_rows_recurrent import SLOT_TENSORS
from camelid.plan.ops import make_op, row_of
from camelid.plan.plan import PAGE_ROWS, Attr, Buffer, Op, Operand, Plan, Stage, StateRef, StateSpec, View
from camelid.plan.step import (
    FROM_ID,
    FROM_RING,
    Capacity,
    ProgramKey,
    Step,
    StepRow,
    StepSampling,
    StepSequence,
    encode_step,
)
from camelid.plan.tiers import TAIL_WINDOW, first_tail_row, tail_of
from camelid.plan.weights import INLINE, LoadOp, Part, Weight

F32 = npt.NDArray[np.float32]
RING_ROWS = 128
ADAPTERS = "adapters"  # state group and role of adapters
OTHER, KV, TOKENS, TAIL = 0, 1, 2, 3  # indices of the state groups of a case
PAGED = ("paged", "window")  # state kinds with page tables
MARGIN = 7.0  # value of the margins of inputs
# Views with one row per output.
OUTPUT_ROLES = {"sample": {"logits": "O"}, "gather_rows": {"y": "O"}, "pool": {"y": "O"}, "emit": {"x": "O"}}
ANSWERS = ("sample", "emit")  # ops that return rows of results
KEPT = (*KV_OPS, "copy", *SLOT_TENSORS)  # ops that change state


@dataclass(frozen=True, slots=True)
class Quantized:
    """A weight as its file stores it, with its load ops."""

    type: str
    shape: tuple[int, ...]
    raw: bytes
    load_ops: tuple[LoadOp, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCase:
    """One op with its inputs.

    - `views` are float32 `[rows, cols]` by role; for a written role only the shape is used. `dtypes` are the
      dtypes of their buffers by role (default f32); values are rounded to them. `weights` are by role.
    - `keys` and `values` `[n, K*D]` are the sequence's KV cache before the step, stored as `kv_type`; rows
      before `first_kept` have been freed. Without `values`, the values are the first columns of the keys.
      With `has_tail`, a float16 tail holds them too, with NaN before `tail_kept` (default: the first row of
      the tail that a row of the case reads). `copies` are copies of pages.
    - A second group of the same form comes before the KV group, with `other_copies` in the same step. A
      kernel that addresses the wrong group then fails.
    - Row t is at `positions[t]`; of several `channels`, each next one is at a position less. Views are in
      buffers with `margins` more columns before and after, and the plan has capacity for `spare` more rows
      than the step. Results depend on neither.
    - The ring has the ids of `history` from position 0. A negative token id means the id in the ring. Outputs
      are at position `first_output` and the following positions.
    - With one entry in `sampling`, all outputs are of one sequence; with more, each is of its own sequence
      with the same history. `lengths` splits the rows among sequences; without it each sequence has all rows.
    - `slots` [n, cols] is the recurrent state of each sequence before the step; a sequence that starts at
      position 0 must ignore it.
    - `adapters` [n, cols] are the slots 1 to n of adapters as tensor 1 of layer 1, float32 or (stored in
      uint16) f16; `adapter_slots` the slot of each sequence (default: 0, none).
    - Views of the roles in `joined` are columns of one buffer, in this order.
    - `of_outputs`: each view has one row per output of a step of one token row, as for a row-wise op that
      runs on output rows only.
    """

    op: str
    views: Mapping[str, F32]
    weights: Mapping[str, Quantized] = field(default_factory=dict[str, Quantized])
    attrs: Mapping[str, Attr] = field(default_factory=dict[str, Attr])
    dtypes: Mapping[str, str] = field(default_factory=dict[str, str])
    keys: F32 | None = None
    values: F32 | None = None
    positions: Sequence[int] = ()
    first_kept: int = 0
    kv_type: str = "f32"
    has_tail: bool = False
    tail_kept: int | None = None  # a whole number of pages
    token_ids: Sequence[int] = ()
    output_rows: Sequence[int] = ()
    sampling: Sequence[StepSampling] = (StepSampling(),)
    history: Sequence[int] = ()
    first_output: int = 1
    copies: Sequence[tuple[int, int, int]] = ()  # page index, page index, rows
    other_copies: Sequence[tuple[int, int, int]] = ()
    lengths: Sequence[int] = ()
    slots: F32 | None = None
    adapters: F32 | npt.NDArray[np.uint16] | None = None
    adapter_slots: Sequence[int] = ()
    features: frozenset[str] = frozenset()
    joined: tuple[str, ...] = ()
    of_outputs: bool = False
    channels: int = 1
    margins: tuple[int, int] = (0, 0)
    spare: int = 0

    @property
    def n_sequences(self) -> int:
        return len(self.lengths or self.sampling)


@dataclass(frozen=True, slots=True)
class OpResult:
    """The results of an op.

    - `views`: written views by role, with their margins.
    - `rows`: rows of results.
    - `state`: decoded state after the step: `k` and `v` (or the slots of recurrent state, one row per
      sequence), the second group's as `other.k`, `other.v`, and a tail's as `tail.k`, `tail.v`.
    - `rings`: the ids in each sequence's ring.
    """

    views: Mapping[str, F32]
    rows: Sequence[OutputRow]
    state: Mapping[str, F32]
    rings: Sequence[memoryview[int]] = ()


async def run_case(backend: Backend, case: OpCase) -> OpResult:
    """Runs a case on an opened backend, with newly allocated state."""
    plan, roles = case_plan(case)
    await backend.load(list(plan.weights().values()), {})
    pages = _pages(case)
    paged = PoolSize(len(pages) + 2, 2, len(pages))
    slots = range(1, 1 + case.n_sequences)
    pools = {"ring": PoolSize(1 + len(slots)), "recurrent": PoolSize(1 + 2 * len(slots))}
    pools["adapter"] = PoolSize(1 + (0 if case.adapters is None else len(case.adapters)))
    await backend.allocate(plan.states, {s.name: pools.get(s.kind, paged) for s in plan.states})
    await _fill_state(backend, case, pages)
    for slot in slots:
        await backend.write_state("tokens", slot, _ring(case.history))
    program = await backend.compile(plan)
    step = encode_step(_case_step(case, pages), plan.layout)
    row = row_of(case.op)
    whole = {r: replace(view, offset=0, cols=view.stride) for r, view in roles.items()}
    arrays = {whole[r]: _with_margins(case, r) for r in case.views if r not in row.writes}
    inputs = {view: store(a, view.dtype).tobytes() for view, a in arrays.items()}
    written = (*row.writes, *row.updates)
    ticket, raw = await backend.run_buffers(program, step, inputs, [whole[r] for r in written])
    stored = {r: of_bytes(data, roles[r].buffer) for r, data in zip(written, raw, strict=True)}
    views = {r: load(a[: len(case.views[r])], roles[r].dtype) for r, a in stored.items()}
    rows: Sequence[OutputRow] = await backend.read(ticket) if case.op in ANSWERS else ()
    state = await _read_states(backend, case, pages) if case.op in KEPT else {}
    ids = [memoryview(await backend.read_state("tokens", slot)).cast("I") for slot in slots]
    return OpResult(views, rows, state, ids)


def case_plan(case: OpCase) -> tuple[Plan, dict[str, View]]:
    """The plan of the single op, and its views by role."""
    n_rows, n_outputs = _counts(case)
    row = row_of(case.op)
    roles = {role: _view(case, role) for role in case.views}
    operands: dict[str, Operand] = {**roles, **{r: _inline(r, q) for r, q in case.weights.items()}}
    states = _states(case)
    places = dict(zip(("other", "state", "tokens", "tail"), states, strict=False))
    operands |= {r: StateRef(state.name) for r, state in places.items() if r in row.roles}
    operands |= {} if case.adapters is None else {ADAPTERS: StateRef(ADAPTERS, 1)}
    op = make_op(case.op, operands, case.attrs)
    paged = [number for number, state in enumerate(states) if state.kind in PAGED]
    n_copies = len(case.copies) + len(case.other_copies)
    counts = {"updates": len(paged) * len(_pages(case)), "copies": n_copies}
    room = {"rows": n_rows + case.spare, "outputs": max(n_outputs, 1) + case.spare}
    counts |= {"sequences": case.n_sequences, "biases": sum(len(how.biases) for how in case.sampling)}
    capacity = Capacity(**room, **counts)
    key = ProgramKey(entry=f"op-{case.op}", capacity=capacity, features=case.features)
    tables = [Op("tables", (("state", StateRef(states[number].name)),)) for number in paged]
    more = [make_op("candidates", roles, {})] if "candidates" in case.features else []
    more += [make_op("copy", {"state": StateRef(states[OTHER].name)}, {})] if case.op == "copy" else []
    stages = (Stage("main", (*tables, op, *more)),)
    return Plan(key=key, stages=stages, states=states, n_channels=case.channels), roles


def _view(case: OpCase, role: str) -> View:
    """The columns of a role in its buffer, which is named by its first role."""
    peers, rows = _peers(case, role), _output_roles(case).get(role, "T")
    widths = [case.views[peer].shape[1] for peer in peers]
    buffer = Buffer(peers[0], rows, sum(case.margins) + sum(widths), case.dtypes.get(role, "f32"))
    at = peers.index(role)
    return View(buffer, widths[at], case.margins[0] + sum(widths[:at]))


def _peers(case: OpCase, role: str) -> tuple[str, ...]:
    """Roles of the views in the role's buffer."""
    return case.joined if role in case.joined else (role,)


def _states(case: OpCase) -> tuple[StateSpec, ...]:
    tensors = _tensors(case)
    kv = StateSpec("kv", "paged", (0,), tensors, PAGE_ROWS, case.kv_type)
    if case.slots is not None:
        kv = replace(kv, kind="recurrent", unit_rows=1)
    other, tokens = replace(kv, name="other"), StateSpec("tokens", "ring", (), (("id", 1),), RING_ROWS)
    tail = StateSpec(tail_of(kv.name), "window", (0,), tensors, PAGE_ROWS, "f16", TAIL_WINDOW)
    return other, kv, tokens, *([tail] if case.has_tail else []), *_adapter_states(case)


def _adapter_states(case: OpCase) -> list[StateSpec]:
    each = [] if case.adapters is None else [(case.adapters.shape[1], f"f{8 * case.adapters.itemsize}")]
    return [StateSpec(ADAPTERS, "adapter", (0, 1), (("0", 4), ("1", n)), 1, kv_type) for n, kv_type in each]


def _tensors(case: OpCase) -> tuple[tuple[str, int], ...]:
    if case.slots is not None:
        return ((SLOT_TENSORS[case.op], case.slots.shape[1]),)
    held = {"k": (case.keys, case.views.get("k")), "v": (case.values, case.views.get("v"))}
    if case.keys is not None and case.values is None:
        del held["v"]
    return tuple((n, next((a.shape[1] for a in both if a is not None), 4)) for n, both in held.items())


def _counts(case: OpCase) -> tuple[int, int]:
    roles = _output_roles(case)
    outputs = max([len(case.output_rows), *(len(case.views[role]) for role in roles)])
    return max([1, *(len(a) for role, a in case.views.items() if role not in roles)]), outputs


def _output_roles(case: OpCase) -> Mapping[str, str]:
    return dict.fromkeys(case.views, "O") if case.of_outputs else OUTPUT_ROLES.get(case.op, {})


def _pages(case: OpCase) -> list[int]:
    """Units of the sequence, last page first, so that a kernel that reads in pool order fails."""
    top = max([len(case.keys) - 1 if case.keys is not None else 0, *case.positions])
    return list(range(top // PAGE_ROWS + 1, 0, -1))


def _case_step(case: OpCase, pages: list[int]) -> Step:
    n_rows, n_outputs = _counts(case)
    outputs = [
        (row, i % case.n_sequences, case.first_output + i)
        for i, row in enumerate(case.output_rows or [i % n_rows for i in range(n_outputs)])
    ]
    paged = () if case.slots is not None else (OTHER, KV, TAIL) if case.has_tail else (OTHER, KV)
    made = ((KV, case.copies), (OTHER, case.other_copies))
    return Step(
        rows=_case_rows(case),
        sequences=_case_sequences(case),
        outputs=outputs,
        sampling=([*case.sampling] * (case.n_sequences // len(case.sampling)))[::-1],
        updates=[(group, 1, i, unit) for group in paged for i, unit in enumerate(_units(pages, group))],
        copies=[(group, pages[a], pages[b], n) for group, copies in made for a, b, n in copies],
    )


def _case_rows(case: OpCase) -> list[StepRow]:
    n_rows, _ = _counts(case)
    owners = [number for number, n in enumerate(case.lengths or [n_rows]) for _ in range(n)]
    rows = zip(case.token_ids or [0] * n_rows, case.positions or range(n_rows), owners, strict=True)
    return [
        StepRow(source=FROM_RING if i < 0 else FROM_ID, value=max(i, 0), sequence=number, state_row=p,
                positions=tuple(max(p - channel, 0) for channel in range(case.channels)))
        for i, p, number in rows
    ]  # fmt: skip


def _case_sequences(case: OpCase) -> list[StepSequence]:
    """The sequences, with sampling rows in reverse order, so that a kernel that assumes their order fails."""
    n_rows, _ = _counts(case)
    n = case.n_sequences
    starts = list(accumulate(case.lengths, initial=0)) if case.lengths else [0] * n
    return [
        StepSequence(
            first_row=start, rows=rows, sampling=n - 1 - i,
            groups=_groups(case, i, case.positions[start] if case.positions else 0),
            adapter=case.adapter_slots[i] if case.adapter_slots else 0,
        )
        for i, start, rows in zip(range(n), starts, case.lengths or [n_rows] * n, strict=False)
    ]  # fmt: skip


def _groups(case: OpCase, i: int, held: int) -> tuple[tuple[int, int, int], ...]:
    """Group words of sequence i with `held` rows. Recurrent slots are read in order, written in reverse."""
    n = case.n_sequences
    kv = (1, case.first_kept, held) if case.slots is None else (1 + i, 2 * n - i, held)
    tail = (1, _tail_kept(case), held)
    return (kv, kv, (1 + i, 1 + i, held), *([tail] if case.has_tail else []))


def _inline(name: str, weight: Quantized) -> Weight:
    part = Part(INLINE, 0, len(weight.raw), base64.b64encode(weight.raw).decode("ascii"))
    return Weight(name=name, type=weight.type, shape=weight.shape, parts=(part,), load_ops=weight.load_ops)


def _with_margins(case: OpCase, role: str) -> F32:
    """The buffer of a role. A kernel that reads the margins gives wrong results."""
    columns = np.hstack([case.views[peer] for peer in _peers(case, role)])
    return np.pad(columns, ((0, 0), case.margins), constant_values=MARGIN)


def _bytes(array: F32) -> bytes:
    return np.ascontiguousarray(array, np.float32).tobytes()


async def _fill_state(backend: Backend, case: OpCase, pages: list[int]) -> None:
    for number, slot in enumerate(() if case.slots is None else case.slots, 1):
        await backend.write_state("kv", number, _bytes(slot))
        await backend.write_state("other", number, _bytes(slot[::-1]))
    for number, slot in enumerate(() if case.adapters is None else case.adapters, 1):
        others = np.full(slot.size + 8, MARGIN).astype(slot.dtype)  # layer 0, and tensor 0 of layer 1
        await backend.write_state(ADAPTERS, number, np.concatenate([others, slot]).tobytes())
    if case.keys is None:
        return
    for group, state in enumerate(_states(case)):
        if state.kind in PAGED:
            for unit, data in zip(_units(pages, group), _held(case, state, len(pages)), strict=True):
                await backend.write_state(state.name, unit, data)


def _held(case: OpCase, state: StateSpec, n_pages: int) -> list[bytes]:
    """Bytes of each page of a state group."""
    tensors = [_padded(tensor, n_pages) for tensor in (case.keys, case.values) if tensor is not None]
    stored = [encode(state.kv_type, rows).reshape(n_pages, -1) for rows in tensors]
    for rows in stored if state.kind == "window" else ():
        rows[: _tail_kept(case) // PAGE_ROWS].view(np.float16)[:] = np.nan
    return [b"".join(page) for page in zip(*stored, strict=True)]


def _units(pages: list[int], group: int) -> list[int]:
    """Units of a group's pages, in another order per group: a kernel with a wrong page table fails."""
    return {OTHER: [*pages[1:], *pages[:1]], KV: pages, TAIL: pages[::-1]}[group]


def _tail_kept(case: OpCase) -> int:
    """First row of the tail (a multiple of PAGE_ROWS): `tail_kept`, or the first row that the case reads."""
    read = first_tail_row(min(case.positions, default=0))
    return read if case.tail_kept is None else case.tail_kept


def _ring(history: Sequence[int]) -> bytes:
    ids = np.zeros(RING_ROWS, np.uint32)
    for position, token_id in enumerate(history):
        ids[position % RING_ROWS] = token_id
    return ids.tobytes()


def _padded(rows: F32, n_pages: int) -> F32:
    pages = np.zeros((n_pages * PAGE_ROWS, rows.shape[1]), rows.dtype)  # ten times faster than np.pad
    pages[: len(rows)] = rows
    return pages


async def _read_states(backend: Backend, case: OpCase, pages: list[int]) -> dict[str, F32]:
    units = pages if case.slots is None else range(2 * case.n_sequences, case.n_sequences, -1)
    own, other = [await _read_state(backend, case, name, units, case.kv_type) for name in ("kv", "other")]
    name = tail_of("kv")
    tail = await _read_state(backend, case, name, pages[::-1], "f16") if case.has_tail else {}
    more = {"other": other, "tail": tail}
    return own | {f"{of}.{name}": rows for of, state in more.items() for name, rows in state.items()}


async def _read_state(
    backend: Backend, case: OpCase, group: str, numbers: Sequence[int], kv_type: str
) -> dict[str, F32]:
    units = [await backend.read_state(group, unit) for unit in numbers]
    state: dict[str, F32] = {}
    at, n_rows = 0, PAGE_ROWS if case.slots is None else 1
    for name, width in _tensors(case):
        end = at + n_rows * row_bytes(kv_type, width)
        rows = [decode(kv_type, unit[at:end], n_rows * width) for unit in units]
        state[name] = np.concatenate(rows).reshape(-1, width)  # [units * n_rows, width]
        at = end
    return state


async def run_op(
    backend: Backend, name: str, arrays: Mapping[str, Any], attrs: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Runs an op, and returns its written views by role.

    `arrays` are by role (float32 views, `Quantized` weights) or by field of `OpCase`.
    """
    names = {"keys", "values", "positions", "token_ids", "output_rows", "dtypes"}
    extra = {k: v for k, v in arrays.items() if k in names}
    weights = {k: v for k, v in arrays.items() if isinstance(v, Quantized)}
    views = {k: v for k, v in arrays.items() if k not in names and k not in weights}
    case = OpCase(op=name, views=views, weights=weights, attrs=attrs, **extra)
    return (await run_case(backend, case)).views
