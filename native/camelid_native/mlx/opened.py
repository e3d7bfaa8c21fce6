"""The parts of an open backend: the device, its thread, weights, state and programs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress

from camelid.backends.base import PoolSize, Sources
from camelid.errors import BackendError, OutOfMemoryError
from camelid.plan.plan import Plan, StateSpec
from camelid.plan.weights import Weight
from camelid_native.mlx.arrays import mx
from camelid_native.mlx.blocks import is_mapped
from camelid_native.mlx.device import bound_cache, device_of, most_bytes
from camelid_native.mlx.kernels import kernels_of
from camelid_native.mlx.layouts import Weights, kept_bytes, stays_in_blocks
from camelid_native.mlx.programs import MlxProgram
from camelid_native.mlx.states import States
from camelid_native.mlx.worker import Done, Order, Worker, refused

CPU_CHAIN = 512  # see `Weights`


class Opened:
    """An open device. Methods may be called from any thread; work on arrays runs on the worker's."""

    def __init__(self, adapter: str) -> None:
        self.facts = device_of(adapter)
        self.weights = Weights(0 if self.facts.is_gpu else CPU_CHAIN, has_blocks=self.facts.is_gpu)
        self._states = States((), {})
        self._programs: list[MlxProgram] = []
        self.worker = Worker(self.facts.handle)
        self._cache_limit = bound_cache()

    @property
    def weight_bytes(self) -> int:
        return self.weights.n_bytes

    @property
    def state_bytes(self) -> int:
        return self._states.n_bytes

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        """Raises OutOfMemoryError for weights that do not fit the device beside those loaded."""
        kept = {w.name: kept_bytes(w, has_blocks=self.facts.is_gpu) for w in weights}
        passing = max((kept[w.name] for w in weights if not self._shares(w)), default=0)
        # a weight that is not shared is for a moment NumPy's array and MLX's
        others = self.weights.bytes_without(kept)
        self._check_fits(others + sum(kept.values()) + passing, "the weights")

        def work() -> None:
            if self.weights.has_any(weights):
                self._drop_programs()
            with refused("the weights"):
                self.weights.load(weights, sources)

        await self.worker.call(work)

    def _shares(self, weight: Weight) -> bool:
        return self.facts.is_gpu and stays_in_blocks(weight) and is_mapped(weight)

    async def allocate(self, states: Sequence[StateSpec], pools: Mapping[str, PoolSize]) -> None:
        """Raises OutOfMemoryError for state that does not fit the device beside the weights."""
        needed_bytes = sum(pools[spec.name].units * spec.unit_bytes for spec in states)
        what = "the weights and the state of all sequences"
        is_added = self._states.names.isdisjoint(spec.name for spec in states)
        beside_bytes = self.weight_bytes + is_added * self.state_bytes
        self._check_fits(beside_bytes + needed_bytes, what)

        def work() -> None:
            with refused(what):
                if is_added:
                    self._states.add(states, pools)
                    return
                self._drop_programs()
                self._states.clear()
                self._states = States(states, pools)

        await self.worker.call(work)

    def _check_fits(self, needed_bytes: int, what: str) -> None:
        """MLX's own allocation must not fail: on a CPU that ends the process."""
        most = most_bytes(self.facts)
        if needed_bytes > most:
            raise OutOfMemoryError(
                f"mlx: {what} need {needed_bytes:,} bytes, and the device has {most:,}; use a smaller model "
                "or context, or fewer sequences at once",
                want_bytes=needed_bytes,
                limit_bytes=most,
            )

    def program(self, plan: Plan) -> MlxProgram:
        program = MlxProgram(plan, self.weights, self._states, kernels_of(self.facts.is_gpu))
        self._programs.append(program)
        return program

    def submit(self, order: Order) -> Future[Done]:
        """Enqueues a step. Raises BackendError if its program's weights or state were replaced; the step
        fails with it if they are by work that is already enqueued.
        """
        self._check_live(order.program)
        return self.worker.submit(order, self._check_live)

    def _check_live(self, program: MlxProgram) -> None:
        if program not in self._programs:
            raise BackendError("mlx: the program is stale; compile it again", backend="mlx")

    async def read_state(self, group: str, unit: int) -> bytes:
        return await self.worker.call(lambda: self._states.read(group, unit))

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        await self.worker.call(lambda: self._states.write(group, unit, data))

    async def close(self) -> None:
        """Frees everything and ends the threads, of a failed device too: `open` closes first."""
        try:
            await self.worker.call(self._free)
        finally:
            mx.set_cache_limit(self._cache_limit)
            await asyncio.to_thread(self.worker.close)  # a join would keep other tasks from running

    def _free(self) -> None:
        self._drop_programs()
        self.weights.clear()
        self._states.clear()
        with suppress(RuntimeError):  # the device's failure, which its steps raise
            mx.synchronize()
        mx.clear_cache()

    def _drop_programs(self) -> None:
        for program in self._programs:
            program.forget()
        self._programs = []
