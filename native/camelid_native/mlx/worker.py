"""The thread that owns MLX, whose streams belong to threads.

It builds the graph of a step while the step before it runs, waits for that step's end, and submits. So the
device has one step at a time, and nothing but the new graph refers to the state that it updates: MLX then
updates pools in place. If a step were submitted while the one before it runs, each of its updates would copy
a pool (96 to 280 MiB more with pools of 64 MiB).

A second thread waits for results, which needs no stream, so that the first is free to build.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import numpy as np

from camelid.errors import BackendError, DeviceLostError, OutOfMemoryError
from camelid.plan.plan import View
from camelid_native.mlx.arrays import Array, mx
from camelid_native.mlx.programs import Graph, MlxProgram

T = TypeVar("T")
Job = Callable[[], None]
Check = Callable[[MlxProgram], None]  # raises
Done = tuple[list[bytes], list[bytes]]  # results by section and buffers, in bytes


@dataclass(frozen=True, slots=True)
class Order:
    """A step for the worker: its program, input and output buffers, and how many rows to hand back."""

    program: MlxProgram
    step: bytes
    inputs: Mapping[View, bytes]
    outputs: Sequence[View]
    n_results: int
    n_rows: Sequence[int]  # of each output


class Worker:
    """Runs work on MLX's thread in the order in which it was given."""

    def __init__(self, device: Any) -> None:
        self._device, self._jobs = device, SimpleQueue[Job | None]()
        self._reader = ThreadPoolExecutor(1, "mlx-results")
        self._thread = Thread(target=self._run, name="mlx", daemon=True)
        self._thread.start()

    async def call(self, work: Callable[[], T]) -> T:
        """Runs work on the thread, and returns or raises what it does."""
        future: Future[T] = Future()
        self._jobs.put(lambda: _settle(future, work))
        return await asyncio.shield(asyncio.wrap_future(future))

    def submit(self, order: Order, check: Check) -> Future[Done]:
        """Enqueues a step. `check` runs on the thread, after work that may have freed the program."""
        done: Future[Done] = Future()
        self._jobs.put(lambda: self._step(order, check, done))
        return done

    def close(self) -> None:
        """Ends the threads after the work given so far."""
        self._jobs.put(None)
        self._thread.join()
        self._reader.shutdown()

    def _run(self) -> None:
        with mx.stream(self._device):
            while (job := self._jobs.get()) is not None:
                job()
                del job  # it may hold arrays
            with suppress(RuntimeError):  # of a lost device, which the last work has named
                mx.synchronize()

    def _wait(self) -> None:
        """Waits for the end of the step before, which refers to the state until then."""
        mx.synchronize()

    def _step(self, order: Order, check: Check, done: Future[Done]) -> None:
        try:
            check(order.program)
            graph = order.program.build(order.step, order.inputs, order.outputs)
            with lost():
                self._wait()
                mx.async_eval(*graph.results, *graph.buffers, *order.program.states.arrays.values())
        except Exception as error:
            done.set_exception(error)
        else:
            self._reader.submit(_settle, done, lambda: _read(graph, order))


@contextmanager
def lost() -> Generator[None]:
    """Names a failure of the device: the step's state is lost with it."""
    try:
        yield
    except RuntimeError as error:
        told = f"mlx: a step failed on the device: {error}"
        raise DeviceLostError(told, backend="mlx", reason=str(error)) from error


@contextmanager
def refused(what: str) -> Generator[None]:
    """Names MLX's refusal to make arrays of `what`, such as one above the largest buffer of Metal."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        told = f"mlx: MLX refused {what}: {error}"
        if isinstance(error, MemoryError) or "alloc" in str(error):
            way = "use a smaller model, quantization or context, or fewer sequences at once"
            raise OutOfMemoryError(f"{told}; {way}") from error
        raise BackendError(
            f"{told}; load the model again, or choose another backend", backend="mlx"
        ) from error


def _settle(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)


def _read(graph: Graph, order: Order) -> Done:
    """Waits for a step, and copies its rows."""
    with lost():
        mx.eval(*graph.results, *graph.buffers)
    results = [_rows(array, order.n_results) for array in graph.results]
    return results, [_rows(array, n) for array, n in zip(graph.buffers, order.n_rows, strict=True)]


def _rows(array: Array, n: int) -> bytes:
    return np.asarray(array)[:n].tobytes()
