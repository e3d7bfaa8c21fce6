"""Runs stress shapes on the reference: any chunks and batches, dropped steps, edited plans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.support.model.runs import Logits, Steps, make_plan, make_state, start

from camelid.backends.reference.backend import ReferenceBackend
from camelid.engine.kv_cache import KVCacheManager
from camelid.model.arch import Model
from camelid.model.spec import ModelSpec
from camelid.plan.plan import Op, Plan, View
from camelid.plan.weights import inline_f32

CONTEXT = 64
Edit = Callable[[Plan], Plan]


def random_weights(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, Any]:
    """Float32 values by name: gains near 1, matrices that preserve the scale of their input."""
    rng = np.random.default_rng(seed)

    def values(name: str, shape: tuple[int, ...]) -> Any:
        drawn = rng.standard_normal(shape)
        return 1.0 + 0.3 * drawn if name.endswith("norm") else drawn * shape[-1] ** -0.5

    return {name: values(name, shape).astype(np.float32) for name, shape in shapes.items()}


def make_model(spec: ModelSpec, weights: Mapping[str, Any]) -> Model:
    return Model(spec, {name: inline_f32(name, a.ravel().tolist(), a.shape) for name, a in weights.items()})


def run(
    model: Model,
    prompts: Sequence[Sequence[int]],
    steps: Steps,
    *,
    edit: Edit | None = None,
    drop: bool = False,
    kv_type: str = "f32",
) -> Logits:
    """Logits of every row. Slots start poisoned; `drop` runs each step once more before, with other tokens
    and unused outputs.
    """
    return asyncio.run(_run(model, prompts, steps, edit or (lambda plan: plan), drop, kv_type))


async def _run(
    model: Model, prompts: Sequence[Sequence[int]], steps: Steps, edit: Edit, drop: bool, kv_type: str
) -> Logits:
    context = max(CONTEXT, *map(len, prompts))
    plan = edit(make_plan(model, max(map(sum, steps)), len(prompts), context=context, kv_type=kv_type))
    state = make_state(plan.states, context=context, n_sequences=len(prompts))
    backend = ReferenceBackend()
    started = await start(backend, [plan], state)
    await _poison(backend, state)
    return await started.feed([started.open_stream(prompt) for prompt in prompts], steps, drop=drop)


async def _poison(backend: ReferenceBackend, state: KVCacheManager) -> None:
    for name, pool in state.sizes().items():
        for unit in range(pool.units if name == "recurrent" else 0):
            n_floats = len(await backend.read_state(name, unit)) // 4
            await backend.write_state(name, unit, np.full(n_floats, np.nan, np.float32).tobytes())


def edit_ops(plan: Plan, change: Callable[[Op], Op | None]) -> Plan:
    """The plan with each op replaced by `change`; None removes the op."""
    (stage,) = plan.stages
    ops = tuple(changed for op in stage.ops if (changed := change(op)) is not None)
    assert ops != stage.ops, "the edit changed no op"
    return replace(plan, stages=(replace(stage, ops=ops),))


def bypass(plan: Plan, is_meant: Callable[[Op], bool], role: str) -> Plan:
    """Removes the ops; readers of their output read their operand of this role instead."""
    instead: dict[View, View] = {}

    def change(op: Op) -> Op | None:
        operands = tuple((r, instead.get(o, o) if isinstance(o, View) else o) for r, o in op.operands)
        op = replace(op, operands=operands)
        if is_meant(op):
            instead[op.view("y")] = op.view(role)
            return None
        return op

    return edit_ops(plan, change)


def with_attr(plan: Plan, name: str, *, where: Callable[[Op], bool] | None = None, **changes: Any) -> Plan:
    """The plan with other attributes on the ops of that name, or on the subset that `where` selects."""

    def change(op: Op) -> Op:
        attrs = tuple((a, changes.get(a, value)) for a, value in op.attrs)
        return replace(op, attrs=attrs) if op.name == name and (where is None or where(op)) else op

    return edit_ops(plan, change)


def reads(op: Op, role: str, buffer: str) -> bool:
    """True if the operand of this role is a buffer of that name with any number."""
    return op.has(role) and op.view(role).buffer.name.split(".")[0] == buffer
