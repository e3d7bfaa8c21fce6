"""The devices of a backend, each with its part of the model."""

from __future__ import annotations

from dataclasses import dataclass

from camelid.backends.base import Backend
from camelid.backends.staged.backend import StagedBackend


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a model: its backend, the backend's name, its layers, and a description of the layers."""

    backend: Backend
    name: str
    layers: range
    part: str


def devices_of(backend: Backend, n_layers: int) -> list[Device]:
    """The devices of a backend: one per stage of a staged backend, else one."""
    if isinstance(backend, StagedBackend):
        parts = zip(backend.backends, backend.layers, strict=True)
        return [_device(stage, layers, backend.part(i)) for i, (stage, layers) in enumerate(parts)]
    return [_device(backend, range(n_layers), f"all {n_layers} layers")]


def _device(backend: Backend, layers: range, part: str) -> Device:
    return Device(backend, backend.capabilities().name, layers, part)
