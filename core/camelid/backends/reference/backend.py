"""The reference backend, the oracle of all parity tests: every op in a few lines of NumPy.

Each op computes in float64, each row separately, and rounds its result to the buffer's dtype. Neither the
other sequences of a step nor the split into steps changes a row's bits (promises A and B of
backends/README.md): a product is one matrix-vector product per row, and softmax has no padding keys. One
matrix-matrix product for all rows would break this, since BLAS changes the summation order with the number of
rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import ModuleType

import numpy as np

from camelid.backends.base import (
    Backend,
    Capabilities,
    MemoryReport,
    OpenSpec,
    PoolSize,
    Program,
    Result,
    Shares,
    Sources,
    Ticket,
    check_unit,
    check_weight_types,
)
from camelid.backends.common.boundary import checked_inputs
from camelid.backends.common.codecs import CODECS
from camelid.backends.common.codecs.activations import Stored, of_bytes
from camelid.backends.parallel.backend import ParallelBackend
from camelid.backends.reference import (
    adapters,
    attention,
    basic,
    encoder,
    experts,
    fused,
    recurrent,
    sampling,
    streams,
    training,
)
from camelid.backends.reference.frame import ExactFrame, Frame, Kernel, StatePools
from camelid.backends.reference.store import WeightStore
from camelid.errors import OutOfMemoryError
from camelid.plan.dtypes import DTYPES
from camelid.plan.plan import Plan, StateSpec, View
from camelid.plan.step import decode_step
from camelid.plan.weights import Weight

KERNEL_PREFIX = "op_"
EXACT = "f64"


def _kernels(module: ModuleType) -> dict[str, Kernel]:
    """Kernels of a module by op: the functions whose names start with op_."""
    return {n.removeprefix(KERNEL_PREFIX): f for n, f in vars(module).items() if n.startswith(KERNEL_PREFIX)}


MODULES = (basic, fused, experts, attention, recurrent, streams, encoder, adapters, sampling, training)
KERNELS: dict[str, Kernel] = {name: f for module in MODULES for name, f in _kernels(module).items()}


class ReferenceBackend(Backend):
    """A backend that interprets plans op by op in NumPy."""

    def __init__(self) -> None:
        self._store = WeightStore()
        self._state = StatePools({}, {})
        self._runs = 0
        self._frame = Frame

    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="reference",
            device=f"NumPy {np.__version__}",
            ops=frozenset(KERNELS),
            weight_types=frozenset(CODECS),
            promise="A+B",
            max_in_flight=1,
            dtypes=frozenset(DTYPES),
        )

    async def open(self, spec: OpenSpec) -> None:
        """NumPy needs no device. `spec.activations` "f64" rounds nothing, neither activations nor state."""
        self._frame = ExactFrame if spec.activations == EXACT else Frame

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        check_weight_types(weights, self.capabilities())
        self._store.add(weights, sources)

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        try:
            more = StatePools.allocate(states, units, exact=self._frame is ExactFrame)
            self._state = self._state.extended(more)
        except (MemoryError, ValueError) as error:  # ValueError: larger than any array can be
            needed_bytes = sum(units[s.name].units * s.unit_bytes for s in states)
            raise OutOfMemoryError(
                f"the state of all sequences needs {needed_bytes:,} bytes, which cannot be allocated; "
                "use a smaller context, or fewer sequences at once",
                want_bytes=needed_bytes,
            ) from error

    async def compile(self, plan: Plan) -> Program:
        return Program(plan, None)

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        checked = checked_inputs(program, step, inputs, backend="reference")
        buffers = {buffer.name: buffer for stage in program.plan.stages for buffer in stage.inputs}
        values = {name: of_bytes(data, buffers[name]).copy() for name, data in checked.items()}
        frame = self.run_frame(program.plan, step, values)
        return Ticket(program, len(frame.result), frame)

    def run_frame(self, plan: Plan, step: bytes, values: dict[str, Stored]) -> Frame:
        """Runs a step with initial buffer values, and returns the frame with all computed values."""
        self._store.check()
        frame = self._frame(plan, decode_step(step, plan.layout), self._store, self._state, values, [])
        for op in plan.ops:
            KERNELS[op.name](op, frame)
        self._store.check()
        self._runs += 1
        return frame

    async def read(self, ticket: Ticket) -> Result:
        await asyncio.sleep(0)  # `run` has computed the result; yield to other tasks
        frame: Frame = ticket.handle
        return frame.result

    async def read_boundary(self, ticket: Ticket) -> Mapping[str, bytes]:
        frame: Frame = ticket.handle
        return {b.name: frame.values[b.name].tobytes() for b in ticket.program.plan.stages[-1].outputs}

    async def read_state(self, group: str, unit: int) -> bytes:
        return b"".join(tensor.tobytes() for tensor in self._state.of_unit(group, unit))

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        tensors, offset = self._state.of_unit(group, unit), 0
        check_unit(group, data, sum(tensor.nbytes for tensor in tensors), backend="reference")
        for tensor in tensors:
            tensor[...] = np.frombuffer(data, tensor.dtype, tensor.size, offset).reshape(tensor.shape)
            offset += tensor.nbytes

    async def run_buffers(
        self, program: Program, step: bytes, inputs: Mapping[View, bytes], outputs: Sequence[View]
    ) -> tuple[Ticket, list[bytes]]:
        """Runs a step with the bytes of the input buffers, and returns the bytes of the output buffers.

        Each view must cover its whole buffer.
        """
        values = {view.buffer.name: of_bytes(data, view.buffer).copy() for view, data in inputs.items()}
        frame = self.run_frame(program.plan, step, values)
        ticket = Ticket(program, len(frame.result), frame)
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
    """The entry point of this module for `registry.BACKENDS`."""
    return ReferenceBackend()


def open_parallel(n: int, shares: Shares) -> ParallelBackend:
    """The entry point of this module for `registry.open_parallel`."""
    return ParallelBackend([ReferenceBackend() for _ in range(n)], shares)
