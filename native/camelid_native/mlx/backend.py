"""Backend mlx: runs plans as graphs of MLX. MLX itself is imported when a backend is made."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from camelid.backends.base import (
    Backend,
    Capabilities,
    Forecast,
    MemoryReport,
    OpenSpec,
    PoolSize,
    Program,
    Result,
    Sources,
    Ticket,
    check_weight_types,
)
from camelid.backends.common.boundary import checked_inputs, input_buffers, made_bytes, outputs_of
from camelid.backends.common.results import output_rows
from camelid.errors import BackendError
from camelid.plan.memory import plan_arena
from camelid.plan.plan import Plan, StateSpec, View, whole
from camelid.plan.weights import Weight
from camelid_native.mlx.library import check_system

if TYPE_CHECKING:
    from camelid_native.mlx.opened import Opened

CHUNK, ROW_BUCKETS = 64, (1, 2, 4, 8, 16, 32)


class MlxBackend(Backend):
    """Plans as graphs on the GPU of Apple silicon, or on the CPU."""

    def __init__(self) -> None:
        """Imports MLX. Raises BackendError as `check_system` and `keep_float32`."""
        check_system()
        from camelid_native.mlx.device import promise_of
        from camelid_native.mlx.kernels import kernels_of
        from camelid_native.mlx.layouts import WEIGHT_TYPES

        self._kernels_of, self._weight_types, self._promise_of = kernels_of, WEIGHT_TYPES, promise_of
        self._parts: Opened | None = None  # None while the backend is closed
        self._counters, self._arena_bytes = {"runs": 0}, 0

    def capabilities(self) -> Capabilities:
        from camelid_native.mlx.ops_metal import FUSED, refusal

        facts = self._parts.facts if self._parts else None
        is_gpu = facts is not None and facts.is_gpu
        return Capabilities(
            name="mlx",
            device=facts.name if facts else "not opened",
            ops=frozenset(self._kernels_of(is_gpu)),
            weight_types=self._weight_types,
            promise=self._promise_of(is_gpu),
            fused=FUSED if is_gpu else frozenset(),
            refuses=refusal if is_gpu else _runs_all,
            max_in_flight=2,
            is_software=facts is not None and not is_gpu,
            is_concurrent=True,
            chunk=CHUNK,
            row_buckets=ROW_BUCKETS,
        )

    async def open(self, spec: OpenSpec) -> None:
        """Opens the device `adapter`: "cpu", "gpu", or "" for the best. Closes an open one first.

        Raises RequestError for a device that is not here.
        """
        from camelid_native.mlx.opened import Opened

        await self.close()
        self._parts = Opened(spec.adapter)

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        """Loads weights. Programs become invalid if one of them is replaced."""
        check_weight_types(weights, self.capabilities())
        await self._opened().load(weights, sources)

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        await self._opened().allocate(states, units)

    async def compile(self, plan: Plan) -> Program:
        """Makes a program; MLX compiles it when it runs first."""
        self._arena_bytes = max(self._arena_bytes, plan_arena(plan).n_bytes)
        return Program(plan, self._opened().program(plan))

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        given = checked_inputs(program, step, inputs, backend="mlx")
        views = {whole(buffer): given[buffer.name] for buffer in input_buffers(program.plan)}
        made = {whole(buffer): 0 for stage in program.plan.stages[-1:] for buffer in stage.outputs}
        n_bytes = made_bytes(program, step)
        return self._submit(program, step, views, {v: n_bytes[v.buffer.name] // v.row_bytes for v in made})

    def _submit(
        self, program: Program, step: bytes, inputs: Mapping[View, bytes], outputs: Mapping[View, int]
    ) -> Ticket:
        from camelid_native.mlx.worker import Order

        n_results = outputs_of(program, step)
        order = Order(program.handle, step, inputs, list(outputs), n_results, list(outputs.values()))
        done = self._opened().submit(order)
        self._counters["runs"] += 1
        return Ticket(program, n_results, done)

    async def read(self, ticket: Ticket) -> Result:
        """Waits for the step and returns its results; other tasks run meanwhile."""
        results, _ = await _settled(ticket)
        return output_rows(b"".join(results), ticket)

    async def read_boundary(self, ticket: Ticket) -> Mapping[str, bytes]:
        _, buffers = await _settled(ticket)
        names = [buffer.name for stage in ticket.program.plan.stages[-1:] for buffer in stage.outputs]
        return dict(zip(names, buffers, strict=True))

    async def read_state(self, group: str, unit: int) -> bytes:
        return await self._opened().read_state(group, unit)

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        await self._opened().write_state(group, unit, data)

    async def run_buffers(
        self, program: Program, step: bytes, inputs: Mapping[View, bytes], outputs: Sequence[View]
    ) -> tuple[Ticket, list[bytes]]:
        """Runs a step with bytes in the input views, and returns the bytes of the output views."""
        ticket = self._submit(program, step, inputs, {view: program.plan.rows[view.rows] for view in outputs})
        _, buffers = await _settled(ticket)
        return ticket, buffers

    def memory(self) -> MemoryReport:
        return MemoryReport(
            weight_bytes=self._parts.weight_bytes if self._parts else 0,
            state_bytes=self._parts.state_bytes if self._parts else 0,
            arena_bytes=self._arena_bytes,
            counters={**self._counters, **(self._parts.weights.counters if self._parts else {})},
        )

    def forecast(self, plans: Mapping[str, Plan], pools: Mapping[str, PoolSize]) -> Forecast:
        from camelid_native.mlx.forecast import forecast_of

        return forecast_of(plans, pools, is_gpu=self._parts is not None and self._parts.facts.is_gpu)

    def free_memory(self) -> int | None:
        from camelid_native.mlx.device import free_bytes

        return free_bytes(self._parts.facts) if self._parts else None

    async def close(self) -> None:
        """Waits for the steps in flight and frees all memory."""
        parts, self._parts, self._arena_bytes = self._parts, None, 0
        if parts:
            await parts.close()

    def _opened(self) -> Opened:
        if self._parts is None:
            raise BackendError("backend 'mlx' is not open; call open() first", backend="mlx")
        return self._parts


def _runs_all(_: Plan) -> str:
    """MLX's own ops run any plan of known ops."""
    return ""


async def _settled(ticket: Ticket) -> Any:
    """Results and buffers of a step, when it has ended."""
    return await asyncio.shield(asyncio.wrap_future(ticket.handle))


def open_backend() -> MlxBackend:
    """The entry point of this module for `registry.BACKENDS`."""
    return MlxBackend()
