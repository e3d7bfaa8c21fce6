"""Calls that may crash a process: `python -m tests.support.native.cpu_children NAME` runs one."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import numpy as np

from camelid.backends.base import OpenSpec, PoolSize, Program
from camelid.backends.common.op_runner import OpCase, Quantized, case_plan
from camelid.errors import BackendError
from camelid.plan.plan import Plan, Stage, StateSpec, View
from camelid.plan.step import FROM_ID, Step, StepRow, encode_step
from camelid_native.cpu.backend import CpuBackend, open_backend
from camelid_native.cpu.memory import Memory

KV = StateSpec("kv", "paged", (0,), (("k", 32), ("v", 32)), 16, "f16")
POOLS = {"kv": PoolSize(3, 1, 2)}
ROW = StepRow(source=FROM_ID, value=0, sequence=0, state_row=0, positions=(0,))
LONG = 64  # ops in a step that lasts some tens of milliseconds
KEPT: list[object] = []  # until the interpreter exits


@dataclass(frozen=True)
class Doubling:
    """A plan of equal ops, each y = 2 x."""

    plan: Plan
    x: View
    y: View
    step: bytes

    async def y_of(self, backend: CpuBackend, program: Program, value: float) -> float:
        """The common value of all y for inputs of `value`; NaN if they differ."""
        rows = self.plan.rows[self.x.rows]
        x = np.full((rows, self.x.cols), value, np.float32).tobytes()
        _, (raw,) = await backend.run_buffers(program, self.step, {self.x: x}, [self.y])
        found = set(np.frombuffer(raw, np.float32).tolist())
        return found.pop() if len(found) == 1 else float("nan")


def doubling(n_ops: int = 1, width: int = 512, rows: int = 64) -> Doubling:
    data = (2 * np.eye(width, dtype=np.float32)).tobytes()
    views = {name: np.zeros((rows, width), np.float32) for name in ("x", "y")}
    case = OpCase(op="linear", views=views, weights={"weight": Quantized("f32", (width, width), data)})
    plan, roles = case_plan(case)
    ops = tuple(op for op in plan.ops if op.name == "linear") * n_ops
    plan = replace(plan, stages=(Stage("main", ops),), states=(KV,))
    return Doubling(plan, roles["x"], roles["y"], encode_step(Step(rows=[ROW] * rows), plan.layout))


async def opened(threads: int = 2) -> CpuBackend:
    backend = open_backend()
    await backend.open(OpenSpec(threads=threads))
    return backend


async def prepared(backend: CpuBackend, made: Doubling) -> Program:
    await backend.load(list(made.plan.weights().values()), {})
    await backend.allocate(made.plan.states, POOLS)
    return await backend.compile(made.plan)


async def drop_during_a_step() -> None:
    backend, made = await opened(), doubling(LONG)
    program = await prepared(backend, made)
    backend.run(program, made.step)
    del backend, program
    gc.collect()


async def exit_during_a_step() -> None:
    backend, made = await opened(), doubling(LONG)
    program = await prepared(backend, made)
    KEPT.append(backend)
    backend.run(program, made.step)


async def open_again_during_a_step() -> None:
    backend, made = await opened(), doubling(LONG)
    program = await prepared(backend, made)
    backend.run(program, made.step)
    await backend.open(OpenSpec(threads=1))
    print(await made.y_of(backend, await prepared(backend, made), 3.0))


async def run_before_open() -> None:
    made = doubling()
    program = await prepared(await opened(), made)
    refused(lambda: open_backend().run(program, made.step))


async def run_after_close() -> None:
    backend, made = await opened(), doubling()
    program = await prepared(backend, made)
    await backend.close()
    refused(lambda: backend.run(program, made.step))


async def run_after_allocate() -> None:
    """Allocates during a step: the step must end, and its program is invalid."""
    backend, made = await opened(), doubling(LONG)
    program = await prepared(backend, made)
    backend.run(program, made.step)
    await backend.allocate(made.plan.states, POOLS)
    refused(lambda: backend.run(program, made.step))
    print(await made.y_of(backend, await backend.compile(made.plan), 3.0))


async def run_a_short_step() -> None:
    backend, made = await opened(), doubling()
    program = await prepared(backend, made)
    refused(lambda: backend.run(program, made.step[:-4]))


async def fork() -> None:
    """Parent and child have separate memory, and both continue to answer."""
    backend, made = await opened(), doubling()
    program, memory = await prepared(backend, made), Memory(8 << 20)
    unit = await backend.read_state("kv", 1)
    print(await made.y_of(backend, program, 1.0))
    child = os.fork()
    if not child:
        memory.write(4 << 20, b"child")
        await backend.write_state("kv", 1, b"\x01" * len(unit))
        answer = await made.y_of(backend, program, 5.0)
        await backend.close()
        os._exit(int(answer))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(await made.y_of(backend, program, 3.0), await backend.read_state("kv", 1) == unit)
    print(memory.read(4 << 20, 5) == bytes(5), ctypes.string_at(memory.at + (4 << 20), 5) == bytes(5))


async def fork_during_a_step() -> None:
    """The child has no threads to finish the step: its result is half written."""
    backend, made = await opened(), doubling(LONG)
    program = await prepared(backend, made)
    ticket = backend.run(program, made.step)
    child = os.fork()
    if not child:
        try:
            await backend.read(ticket)
        except BackendError as error:
            print(error.backend, error.message, flush=True)
        os._exit(int(await made.y_of(backend, program, 5.0)))
    await backend.read(ticket)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), await made.y_of(backend, program, 3.0))


def refused(call: Callable[[], object]) -> None:
    try:
        call()
    except BackendError as error:
        print(error.backend, error.message)


CHILDREN: dict[str, Callable[[], Awaitable[None]]] = {
    child.__name__: child
    for child in (
        drop_during_a_step,
        exit_during_a_step,
        open_again_during_a_step,
        run_before_open,
        run_after_close,
        run_after_allocate,
        run_a_short_step,
        fork,
        fork_during_a_step,
    )
}


async def main(name: str) -> None:
    await CHILDREN[name]()
    print("end")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
