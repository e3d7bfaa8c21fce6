"""The devices of a backend, each with its part of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from camelid.backends.base import Backend
from camelid.backends.parallel.backend import ParallelBackend
from camelid.backends.staged.backend import StagedBackend
from camelid.plan.plan import Plan
from camelid.plan.stages import split


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a model: its backend, the backend's name, its layers, and a description of the layers.

    `plan_of` is the part of a plan that it runs.
    """

    backend: Backend
    name: str
    layers: range
    part: str
    plan_of: Callable[[Plan], Plan]


def devices_of(backend: Backend, n_layers: int) -> list[Device]:
    """The devices of a backend: those of a staged or parallel backend, else one."""
    if isinstance(backend, StagedBackend):
        return [_stage(backend, i) for i in range(len(backend.backends))]
    if isinstance(backend, ParallelBackend):
        return [_share(backend, i, n_layers) for i in range(len(backend.backends))]
    return [_device(backend, range(n_layers), f"all {n_layers} layers", lambda plan: plan)]


def _stage(staged: StagedBackend, i: int) -> Device:
    part, layers = staged.part(i), staged.layers
    return _device(staged.backends[i], layers[i], part, lambda plan: split(plan, layers)[i])


def _share(parallel: ParallelBackend, i: int, n_layers: int) -> Device:
    n = len(parallel.backends)
    part = f"share {i + 1} of {n} of {n_layers} layers"
    return _device(parallel.backends[i], range(n_layers), part, lambda plan: parallel.own_plans(plan)[i])


def _device(backend: Backend, layers: range, part: str, plan_of: Callable[[Plan], Plan]) -> Device:
    return Device(backend, backend.capabilities().name, layers, part, plan_of)
