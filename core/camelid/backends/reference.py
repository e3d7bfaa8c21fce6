"""The oracle: every op of the plan in a few lines of NumPy, one row at a time.

Each row is computed alone (one matrix-vector product a row, accumulated in float64, softmax over exactly the
keys that the row sees), because batched matmul is not row-invariant, in float32 nor in float64. So a row's
bits depend on nothing but the row: the backend holds promises A and B.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from camelid.backends.base import (
    Capabilities,
    MemoryReport,
    OpenSpec,
    OutputRow,
    Pool,
    Program,
    Result,
    Sources,
    Ticket,
    check_weight_types,
)
from camelid.backends.codecs import CODECS, decode
from camelid.backends.single import run_op
from camelid.plan.plan import Op, Plan, StateRef, StateSpec, View
from camelid.plan.step import FROM_RING, STATUS, Step, StepRow, decode_step
from camelid.plan.weights import INLINE, Part, Weight

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

CACHE_BYTES = 256 << 20  # decoded weights are kept up to this; larger models are decoded op by op


class WeightStore:
    """Weights by name: raw bytes from mapped files, decoded to float64 when an op asks."""

    def __init__(self) -> None:
        self.weights: dict[str, Weight] = {}
        self._files: dict[str, npt.NDArray[np.uint8]] = {}
        self._decoded: dict[str, F64] = {}
        self._decoded_bytes = 0

    def add(self, weights: Sequence[Weight], sources: Sources) -> None:
        for name, path in sources.items():
            self._files[name] = np.memmap(path, dtype=np.uint8, mode="r")
        self.weights.update({w.name: w for w in weights})

    def raw(self, weight: Weight) -> npt.NDArray[np.uint8]:
        return np.concatenate([self._part(part) for part in weight.parts])

    def matrix(self, weight: Weight) -> F64:  # [out, in]
        if weight.name in self._decoded:
            return self._decoded[weight.name]
        flat = decode(weight.type, self.raw(weight), weight.rows * weight.cols)
        matrix = flat.reshape(weight.rows, weight.cols).astype(np.float64)
        if self._decoded_bytes + matrix.nbytes <= CACHE_BYTES:
            self._decoded[weight.name] = matrix
            self._decoded_bytes += matrix.nbytes
        return matrix

    def _part(self, part: Part) -> npt.NDArray[np.uint8]:
        if part.source == INLINE:
            return np.frombuffer(base64.b64decode(part.data), dtype=np.uint8)
        return self._files[part.source][part.offset : part.offset + part.n_bytes]


@dataclass(slots=True)
class StatePools:
    """The memory of all state groups: pools by (group, layer, tensor), page tables by group."""

    pools: dict[tuple[str, int, str], npt.NDArray[Any]]
    tables: dict[str, U32]

    @classmethod
    def allocate(cls, states: Sequence[StateSpec], units: Mapping[str, Pool]) -> StatePools:
        pools: dict[tuple[str, int, str], npt.NDArray[Any]] = {}
        for s in states:
            dtype = np.uint32 if s.kind == "ring" else np.float32
            for layer in s.layers or (0,):
                for name, cols in s.tensors:
                    pools[s.name, layer, name] = np.zeros((units[s.name].units, s.unit_rows, cols), dtype)
        tables = {n: np.zeros((p.table_rows, p.table_cols), np.uint32) for n, p in units.items()}
        return cls(pools, tables)

    def tensor(self, state: StateRef, name: str) -> npt.NDArray[Any]:  # [units, unit_rows, cols]
        return self.pools[state.group, state.layer, name]

    def of_unit(self, group: str, unit: int) -> list[npt.NDArray[Any]]:
        return [pool[unit] for (name, _, _), pool in self.pools.items() if name == group]

    @property
    def n_bytes(self) -> int:
        return sum(p.nbytes for p in self.pools.values()) + sum(t.nbytes for t in self.tables.values())


@dataclass(slots=True)
class Frame:
    """One run: the plan, its decoded step, and the values of every buffer so far."""

    plan: Plan
    step: Step
    store: WeightStore
    state: StatePools
    values: dict[str, F32]
    result: list[OutputRow]

    def read(self, view: View) -> F64:  # [rows, cols]
        columns = slice(view.offset, view.offset + view.cols)
        return self.values[view.buffer.name][:, columns].astype(np.float64)

    def write(self, view: View, value: npt.NDArray[Any]) -> None:
        name, buffer = view.buffer.name, view.buffer
        if name not in self.values:
            self.values[name] = np.zeros((len(value), buffer.cols), np.float32)
        self.values[name][:, view.offset : view.offset + view.cols] = value

    def sequence_words(self, row: StepRow, group: str) -> tuple[int, int, int]:
        return self.step.sequences[row.sequence].groups[self.plan.group(group)]


def op_tables(op: Op, f: Frame) -> None:
    group = op.state("state").group
    for number, table_row, index, unit in f.step.updates:
        if number == f.plan.group(group):
            f.state.tables[group][table_row, index] = unit


def op_copy(op: Op, f: Frame) -> None:
    group = op.state("state").group
    for number, source, destination, rows in f.step.copies:
        if number == f.plan.group(group):
            for (name, _, _), pool in f.state.pools.items():
                if name == group:
                    pool[destination, :rows] = pool[source, :rows]


def op_embed(op: Op, f: Frame) -> None:
    ring = f.state.tensor(op.state("tokens"), "id")  # [slots, R, 1]

    def token(row: StepRow) -> int:
        if row.source != FROM_RING:
            return row.value
        slot = f.sequence_words(row, op.state("tokens").group)[0]
        return int(ring[slot, row.state_row % ring.shape[1], 0])

    f.write(op.view("y"), f.store.matrix(op.weight("weight"))[[token(row) for row in f.step.rows]])


def op_norm(op: Op, f: Frame) -> None:
    x, gain = f.read(op.view("x")), f.store.matrix(op.weight("gain"))
    eps = op.number("eps")
    f.write(op.view("y"), _per_row(lambda row: row / np.sqrt(np.mean(row * row) + eps) * gain[0], x))


def op_add(op: Op, f: Frame) -> None:
    f.write(op.view("x"), f.read(op.view("x")) + f.read(op.view("r")))


def op_add_norm(op: Op, f: Frame) -> None:
    op_add(op, f)
    op_norm(op, f)


def op_linear(op: Op, f: Frame) -> None:
    weight = f.store.matrix(op.weight("weight"))
    f.write(op.view("y"), _per_row(lambda row: weight @ row, f.read(op.view("x"))))


def op_rope(op: Op, f: Frame) -> None:
    dim, head_dim = op.integer("dim"), op.integer("head_dim")
    fine, coarse = f.store.matrix(op.weight("fine")), f.store.matrix(op.weight("coarse"))
    positions = np.array([row.positions[0] for row in f.step.rows])
    angles = fine[positions % len(fine)], coarse[positions // len(fine)]  # [T, dim] twice
    near, far = (table[:, 0::2] + 1j * table[:, 1::2] for table in angles)
    x = f.read(op.view("x"))
    heads = x.reshape(len(x), -1, head_dim)  # [T, H, D]
    first, second = _pairs(heads[..., :dim], op.word("style"))
    turned = (first + 1j * second) * (near * far)[:, None]
    first[...], second[...] = turned.real, turned.imag
    f.write(op.view("x"), x)


def op_kv_write(op: Op, f: Frame) -> None:
    state = op.state("state")
    for name in ("k", "v"):
        pool = f.state.tensor(state, name)
        for row, value in zip(f.step.rows, f.read(op.view(name)), strict=True):
            units = f.state.tables[state.group][f.sequence_words(row, state.group)[0]]
            pool[units[row.state_row // pool.shape[1]], row.state_row % pool.shape[1]] = value


def op_attention(op: Op, f: Frame) -> None:
    q = f.read(op.view("q")).reshape(len(f.step.rows), op.integer("n_heads"), -1)  # [T, H, D]
    out = np.stack([_attend(op, f, row, heads) for row, heads in zip(f.step.rows, q, strict=True)])
    f.write(op.view("y"), out)


def op_glu(op: Op, f: Frame) -> None:
    f.write(op.view("y"), ACTS[op.word("act")](f.read(op.view("gate"))) * f.read(op.view("up")))


def op_linear_glu(op: Op, f: Frame) -> None:
    weight = f.store.matrix(op.weight("weight"))  # [2*F, C]
    both = _per_row(lambda row: weight @ row, f.read(op.view("x")))
    gate, up = np.split(both, 2, axis=1)
    f.write(op.view("y"), ACTS[op.word("act")](gate) * up)


def op_gather_rows(op: Op, f: Frame) -> None:
    f.write(op.view("y"), f.read(op.view("x"))[[row for row, _, _ in f.step.outputs]])


def op_sample(op: Op, f: Frame) -> None:
    ring = f.state.tensor(op.state("tokens"), "id")
    keep = "all_logits" in f.plan.key.features
    for logits, (_, number, position) in zip(f.read(op.view("logits")), f.step.outputs, strict=True):
        sequence = f.step.sequences[number]
        row = _draw(logits, f.step, sequence.sampling, position, keep=keep)
        slot = sequence.groups[f.plan.group(op.state("tokens").group)][1]
        ring[slot, position % ring.shape[1], 0] = row.token_id
        f.result.append(row)


def _per_row(function: Callable[[F64], F64], x: F64) -> F64:
    # A chunk of a prompt may have no output rows; the result keeps its width.
    rows: list[F64] = [function(row) for row in x] or [function(np.zeros_like(x, shape=x.shape[1]))]
    return np.stack(rows)[: len(x)]


def _pairs(x: F64, style: str) -> tuple[F64, F64]:
    half = x.shape[-1] // 2
    return (x[..., 0::2], x[..., 1::2]) if style == "norm" else (x[..., :half], x[..., half:])


def _attend(op: Op, f: Frame, row: StepRow, q: F64) -> F64:  # q [H, D] -> [H*D]
    n_kv_heads, head_dim = op.integer("n_kv_heads"), op.integer("head_dim")
    cached = (_cached(op.state("state"), name, f, row) for name in ("k", "v"))
    k, v = (rows.reshape(-1, n_kv_heads, head_dim) for rows in cached)  # [keys, K, D]
    group = len(q) // n_kv_heads
    heads = [_attend_head(head, k[:, h // group], v[:, h // group], op) for h, head in enumerate(q)]
    return np.concatenate(heads)


def _attend_head(q: F64, k: F64, v: F64, op: Op) -> F64:  # q [D], k [n, D], v [n, D] -> [D]
    scores = np.ascontiguousarray(k) @ q * op.number("scale")
    probs = np.exp(scores - scores.max())
    return np.ascontiguousarray(v.T) @ (probs / probs.sum())


def _cached(state: StateRef, name: str, f: Frame, row: StepRow) -> F64:  # [keys, K*D]
    table_row, first_kept, _ = f.sequence_words(row, state.group)
    pool = f.state.tensor(state, name)
    n_units = row.state_row // pool.shape[1] + 1
    rows = pool[f.state.tables[state.group][table_row, :n_units]].reshape(-1, pool.shape[2])
    return rows[first_kept : row.state_row + 1].astype(np.float64)


ACTS: dict[str, Callable[[F64], F64]] = {"silu": lambda x: x / (1.0 + np.exp(-x))}


def philox(seed: int, token_ids: U64, position: int, choice: int, purpose: int) -> U64:  # [n] u32 values
    """First word of Philox4x32-10 (Salmon et al., SC 2011), keyed by the seed.

    The counter is (token id, position, choice, purpose), so a draw depends on no order and no batch.
    """
    mask = np.uint64(0xFFFFFFFF)
    c = [token_ids, *(np.full_like(token_ids, word) for word in (position, choice, purpose))]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(key[0]), b & mask,
             (a >> np.uint64(32)) ^ c[3] ^ np.uint64(key[1]), a & mask]  # fmt: skip
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0]


def _draw(logits: F64, step: Step, sampling: int, position: int, *, keep: bool) -> OutputRow:
    with np.errstate(all="ignore"):
        how, scores = step.sampling[sampling], logits
        if how.temperature > 0.0:
            ids = np.arange(len(logits), dtype=np.uint64)
            u = ((philox(how.seed, ids, position, how.choice, 0) >> np.uint64(8)) + 0.5) * 2.0**-24
            scores = logits / how.temperature - np.log(-np.log(u))
        token_id = int(np.argmax(scores))
        top = logits.max()
        log_sum_exp = float(top + np.log(np.exp(logits - top).sum()))
    return OutputRow(
        token_id=token_id,
        status=STATUS[1 if np.isnan(logits).any() else 2 if not logits.any() else 0],
        logit=float(logits[token_id]),
        log_sum_exp=log_sum_exp,
        logits=logits.astype(np.float32).data if keep else None,
    )


KERNELS: dict[str, Callable[[Op, Frame], None]] = {
    name.removeprefix("op_"): kernel for name, kernel in list(globals().items()) if name.startswith("op_")
}


class ReferenceBackend:
    """Interprets plans op by op in NumPy."""

    def __init__(self) -> None:
        self._store = WeightStore()
        self._state = StatePools({}, {})
        self._runs = 0

    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="reference",
            device=f"NumPy {np.__version__}",
            ops=frozenset(KERNELS),
            weight_types=frozenset(CODECS),
            promise="A+B",
            max_in_flight=1,
        )

    async def open(self, spec: OpenSpec) -> None:
        """Nothing to open: NumPy is always here."""

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        check_weight_types(weights, self.capabilities())
        self._store.add(weights, sources)

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, Pool]) -> None:
        self._state = StatePools.allocate(states, units)

    async def compile(self, plan: Plan) -> Program:
        return Program(plan, None)

    def run(self, program: Program, step: bytes, inputs: Mapping[str, Ticket] | None = None) -> Ticket:
        frame = self.run_frame(program.plan, step, {})
        return Ticket(program, len(frame.result), frame.result)

    def run_frame(self, plan: Plan, step: bytes, values: dict[str, F32]) -> Frame:
        """Runs with given buffer values and returns everything that was computed."""
        frame = Frame(plan, decode_step(step, plan.layout), self._store, self._state, values, [])
        for op in plan.ops:
            KERNELS[op.name](op, frame)
        self._runs += 1
        return frame

    async def read(self, ticket: Ticket) -> Result:
        await asyncio.sleep(0)  # the work was done in `run`; let other tasks have their turn
        return ticket.handle

    async def read_state(self, group: str, unit: int) -> bytes:
        return b"".join(tensor.tobytes() for tensor in self._state.of_unit(group, unit))

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        at = 0
        for tensor in self._state.of_unit(group, unit):
            tensor[...] = np.frombuffer(data, tensor.dtype, tensor.size, at).reshape(tensor.shape)
            at += tensor.nbytes

    async def run_op(
        self, name: str, arrays: Mapping[str, Any], attrs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        return await run_op(self, name, arrays, attrs)

    async def run_buffers(
        self, program: Program, step: bytes, inputs: Mapping[View, bytes], outputs: Sequence[View]
    ) -> tuple[Ticket, list[bytes]]:
        """Runs with given bytes in some views and returns the bytes of others, for single ops."""
        values = {
            view.buffer.name: np.frombuffer(data, np.float32).reshape(-1, view.cols).copy()
            for view, data in inputs.items()
        }
        frame = self.run_frame(program.plan, step, values)
        ticket = Ticket(program, len(frame.result), frame.result)
        return ticket, [frame.values[v.buffer.name].tobytes() for v in outputs]

    def memory(self) -> MemoryReport:
        weights = sum(w.n_bytes for w in self._store.weights.values())
        return MemoryReport(
            weight_bytes=weights,
            state_bytes=self._state.n_bytes,
            arena_bytes=0,
            counters={"runs": self._runs},
        )

    async def close(self) -> None:
        self.__init__()


def open_backend() -> ReferenceBackend:
    """The row's entry in `select.BACKENDS`."""
    return ReferenceBackend()
