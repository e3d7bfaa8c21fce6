"""One op on its own, on any backend: for the parity gate and for people who write kernels.

`OpCase` says what goes in; `run_case` builds a one-op plan around it, puts keys and values into scattered
pages, runs it, and returns everything the op wrote.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from camelid.backends.base import Backend, OutputRow, Pool, Program, Ticket
from camelid.backends.codecs import decode, encode
from camelid.formats.quants import row_bytes
from camelid.plan.ops import OPS, make_op
from camelid.plan.plan import Attr, Buffer, Op, Operand, Plan, Stage, StateRef, StateSpec, View
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
PAGE_ROWS, RING_ROWS = 16, 128
OTHER, KV, TOKENS, TAIL = 0, 1, 2, 3  # the state groups of a case
MARGIN = 7.0  # what fills the margins of inputs
OUTPUT_ROLES = {"sample": {"logits": "O"}, "gather_rows": {"y": "O"}}  # views with a row for each output


@dataclass(frozen=True, slots=True)
class Quantized:
    """A weight as its file holds it, and what is done to it while loading."""

    type: str
    shape: tuple[int, ...]
    raw: bytes
    load_ops: tuple[LoadOp, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCase:
    """One op with its inputs.

    `views` are float32 `[rows, cols]` by role (written roles give only their shape), `weights` by role,
    `keys` and `values` `[n, K*D]` what the sequence's state holds as `kv_type`, those before `first_kept`
    given up; without `values` the keys' first columns are those. With `has_tail` a tail of float16 holds them
    too, NaN before `tail_kept`, which unless given is the first row that one of the case reads there. Another
    group of the same form stands before it, with `other_copies` in the same step. Row t sits at
    `positions[t]`. Views lie in buffers with `margins` more columns before and after them, and the plan has
    room for `spare` more rows than the step has: results depend on neither.

    The ring holds `history` from position 0 on, and a negative token id stands for the ring's. Outputs are at
    `first_output` and the positions after it. With one way of `sampling` all are of one sequence, with more
    each is of its own, which has the same history.
    """

    op: str
    views: Mapping[str, F32]
    weights: Mapping[str, Quantized] = field(default_factory=dict[str, Quantized])
    attrs: Mapping[str, Attr] = field(default_factory=dict[str, Attr])
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
    features: frozenset[str] = frozenset()
    margins: tuple[int, int] = (0, 0)
    spare: int = 0


@dataclass(frozen=True, slots=True)
class OpResult:
    """What the op wrote: views by role with their margins, rows of results, the state's `k` and `v` after,
    and the other group's as `other.k`, as the values that they stand for; the ids in each sequence's ring."""

    views: Mapping[str, F32]
    rows: Sequence[OutputRow]
    state: Mapping[str, F32]
    rings: Sequence[memoryview[int]] = ()


class BufferRunner(Backend, Protocol):
    """A backend that can also run with given bytes in some views and return the bytes of others."""

    async def run_buffers(
        self, program: Program, step: bytes, inputs: Mapping[View, bytes], outputs: Sequence[View]
    ) -> tuple[Ticket, list[bytes]]: ...


async def run_case(backend: BufferRunner, case: OpCase) -> OpResult:
    """Runs the case on an opened backend, in fresh state."""
    plan, roles = _case_plan(case)
    weights = plan.weights()
    await backend.load(list(weights.values()), {})
    pages = _pages(case)
    paged = Pool(len(pages) + 2, 2, len(pages))
    slots = range(1, 1 + len(case.sampling))
    rings = Pool(1 + len(slots))
    await backend.allocate(plan.states, {s.name: rings if s.kind == "ring" else paged for s in plan.states})
    await _fill_state(backend, case, pages)
    for slot in slots:
        await backend.write_state("tokens", slot, _ring(case.history))
    program = await backend.compile(plan)
    step = encode_step(_case_step(case, pages), plan.layout)
    row = OPS[case.op]
    whole = {r: replace(view, offset=0, cols=view.stride) for r, view in roles.items()}
    inputs = {whole[r]: _bytes(_inside(a, case)) for r, a in case.views.items() if r not in row.writes}
    written = (*row.writes, *row.updates)
    ticket, raw = await backend.run_buffers(program, step, inputs, [whole[r] for r in written])
    arrays = [np.frombuffer(data, np.float32) for data in raw]
    views = {r: a.reshape(-1, whole[r].cols) for r, a in zip(written, arrays, strict=True)}
    views = {r: a[: len(case.views[r])] for r, a in views.items()}
    rows: Sequence[OutputRow] = await backend.read(ticket) if case.op == "sample" else ()
    state = await _read_states(backend, case, pages) if case.op in ("kv_write", "copy") else {}
    ids = [memoryview(await backend.read_state("tokens", slot)).cast("I") for slot in slots]
    return OpResult(views, rows, state, ids)


def _case_plan(case: OpCase) -> tuple[Plan, dict[str, View]]:
    n_rows, n_outputs = _counts(case)
    row = OPS[case.op]
    symbols = OUTPUT_ROLES.get(case.op, {})
    roles = {
        role: View(
            Buffer(role, symbols.get(role, "T"), sum(case.margins) + a.shape[1]), a.shape[1], case.margins[0]
        )
        for role, a in case.views.items()
    }
    operands: dict[str, Operand] = {**roles, **{r: _inline(r, q) for r, q in case.weights.items()}}
    states = _states(case)
    places = dict(zip(("other", "state", "tokens", "tail"), states, strict=False))
    operands |= {r: StateRef(state.name) for r, state in places.items() if r in row.roles}
    op = make_op(case.op, operands, case.attrs)
    paged = [number for number, state in enumerate(states) if state.kind != "ring"]
    n_copies = len(case.copies) + len(case.other_copies)
    counts = {"updates": len(paged) * len(_pages(case)), "copies": n_copies}
    room = {"rows": n_rows + case.spare, "outputs": max(n_outputs, 1) + case.spare}
    counts |= {"sequences": len(case.sampling), "biases": sum(len(how.biases) for how in case.sampling)}
    capacity = Capacity(**room, **counts)
    key = ProgramKey(entry=f"op-{case.op}", capacity=capacity, features=case.features)
    tables = [Op("tables", (("state", StateRef(states[number].name)),)) for number in paged]
    more = [make_op("candidates", roles, {})] if "candidates" in case.features else []
    more += [make_op("copy", {"state": StateRef(states[OTHER].name)}, {})] if case.op == "copy" else []
    return Plan(key=key, stages=(Stage("main", (*tables, op, *more)),), states=states), roles


def _states(case: OpCase) -> tuple[StateSpec, ...]:
    tensors = _tensors(case)
    kv = StateSpec("kv", "paged", (0,), tensors, PAGE_ROWS, case.kv_type)
    other, tokens = replace(kv, name="other"), StateSpec("tokens", "ring", (), (("id", 1),), RING_ROWS)
    tail = StateSpec(tail_of(kv.name), "window", (0,), tensors, PAGE_ROWS, "f16", TAIL_WINDOW)
    return other, kv, tokens, *([tail] if case.has_tail else [])


def _tensors(case: OpCase) -> tuple[tuple[str, int], ...]:
    held = {"k": (case.keys, case.views.get("k")), "v": (case.values, case.views.get("v"))}
    if case.keys is not None and case.values is None:
        del held["v"]
    return tuple((n, next((a.shape[1] for a in both if a is not None), 4)) for n, both in held.items())


def _counts(case: OpCase) -> tuple[int, int]:
    roles = OUTPUT_ROLES.get(case.op, {})
    outputs = len(case.views["logits"]) if case.op == "sample" else len(case.output_rows)
    return max([1, *(len(a) for role, a in case.views.items() if role not in roles)]), outputs


def _pages(case: OpCase) -> list[int]:
    """Units of the sequence, last page first, so that no kernel passes by reading in pool order."""
    top = max([len(case.keys) - 1 if case.keys is not None else 0, *case.positions])
    return list(range(top // PAGE_ROWS + 1, 0, -1))


def _case_step(case: OpCase, pages: list[int]) -> Step:
    _, n_outputs = _counts(case)
    outputs = [
        (row, i % len(case.sampling), case.first_output + i)
        for i, row in enumerate(case.output_rows or range(n_outputs))
    ]
    paged = (OTHER, KV, TAIL) if case.has_tail else (OTHER, KV)
    made = ((KV, case.copies), (OTHER, case.other_copies))
    return Step(
        rows=_case_rows(case),
        sequences=_case_sequences(case),
        outputs=outputs,
        sampling=list(case.sampling[::-1]),
        updates=[(group, 1, i, unit) for group in paged for i, unit in enumerate(_units(pages, group))],
        copies=[(group, pages[a], pages[b], n) for group, copies in made for a, b, n in copies],
    )


def _case_rows(case: OpCase) -> list[StepRow]:
    n_rows, _ = _counts(case)
    pairs = zip(case.token_ids or [0] * n_rows, case.positions or range(n_rows), strict=True)
    return [
        StepRow(
            source=FROM_RING if i < 0 else FROM_ID, value=max(i, 0), sequence=0, state_row=p, positions=(p,)
        )
        for i, p in pairs
    ]


def _case_sequences(case: OpCase) -> list[StepSequence]:
    """Their rows of sampling are not in order, so that no kernel passes by taking them so."""
    n_rows, _ = _counts(case)
    held = case.positions[0] if case.positions else 0
    kv, tail = (1, case.first_kept, held), (1, _tail_kept(case), held)
    return [
        StepSequence(
            first_row=0,
            rows=n_rows,
            groups=(kv, kv, (1 + i, 1 + i, held), *([tail] if case.has_tail else [])),
            sampling=len(case.sampling) - 1 - i,
        )
        for i in range(len(case.sampling))
    ]


def _inline(name: str, weight: Quantized) -> Weight:
    part = Part(INLINE, 0, len(weight.raw), base64.b64encode(weight.raw).decode("ascii"))
    return Weight(name=name, type=weight.type, shape=weight.shape, parts=(part,), load_ops=weight.load_ops)


def _inside(array: F32, case: OpCase) -> F32:
    """The view's buffer; what lies around it no kernel may take for its own."""
    return np.pad(array, ((0, 0), case.margins), constant_values=MARGIN)


def _bytes(array: F32) -> bytes:
    return np.ascontiguousarray(array, np.float32).tobytes()


async def _fill_state(backend: Backend, case: OpCase, pages: list[int]) -> None:
    tensors = [tensor for tensor in (case.keys, case.values) if tensor is not None]
    if not tensors:
        return
    for group, state in enumerate(_states(case)):
        for index, unit in enumerate(_units(pages, group) if state.kind != "ring" else ()):
            rows = slice(index * PAGE_ROWS, (index + 1) * PAGE_ROWS)
            held = [_padded(tensor[rows]) for tensor in tensors]
            if state.kind == "window" and rows.start < _tail_kept(case):
                data = [np.full_like(a, np.nan, np.float16).tobytes() for a in held]
            else:
                data = [encode(state.kv_type, a).tobytes() for a in held]
            await backend.write_state(state.name, unit, b"".join(data))


def _units(pages: list[int], group: int) -> list[int]:
    """Each group's pages come in another order, so that no kernel passes with the table of another."""
    return {OTHER: [*pages[1:], *pages[:1]], KV: pages, TAIL: pages[::-1]}[group]


def _tail_kept(case: OpCase) -> int:
    """What no row of the case reads from its tail, unless it gave up more: a whole number of pages."""
    read = first_tail_row(min(case.positions, default=0))
    return read if case.tail_kept is None else case.tail_kept


def _ring(history: Sequence[int]) -> bytes:
    ids = np.zeros(RING_ROWS, np.uint32)
    for position, token_id in enumerate(history):
        ids[position % RING_ROWS] = token_id
    return ids.tobytes()


def _padded(rows: F32) -> F32:
    return np.pad(rows, ((0, PAGE_ROWS - len(rows)), (0, 0)))


async def _read_states(backend: Backend, case: OpCase, pages: list[int]) -> dict[str, F32]:
    own, other = [await _read_state(backend, case, name, pages) for name in ("kv", "other")]
    return own | {f"other.{name}": rows for name, rows in other.items()}


async def _read_state(backend: Backend, case: OpCase, group: str, pages: list[int]) -> dict[str, F32]:
    units = [await backend.read_state(group, unit) for unit in pages]
    state: dict[str, F32] = {}
    at = 0
    for name, width in _tensors(case):
        end = at + PAGE_ROWS * row_bytes(case.kv_type, width)
        rows = [decode(case.kv_type, unit[at:end], PAGE_ROWS * width) for unit in units]
        state[name] = np.concatenate(rows).reshape(-1, width)  # [pages * PAGE_ROWS, width]
        at = end
    return state


async def run_op(
    backend: BufferRunner, name: str, arrays: Mapping[str, Any], attrs: Mapping[str, Any]
) -> Mapping[str, Any]:
    """`arrays` by role (float32 views, `Quantized` weights) or field of `OpCase`. Returns views by role."""
    names = {"keys", "values", "positions", "token_ids", "output_rows"}
    extra = {k: v for k, v in arrays.items() if k in names}
    weights = {k: v for k, v in arrays.items() if isinstance(v, Quantized)}
    views = {k: v for k, v in arrays.items() if k not in names and k not in weights}
    case = OpCase(op=name, views=views, weights=weights, attrs=attrs, **extra)
    return (await run_case(backend, case)).views
