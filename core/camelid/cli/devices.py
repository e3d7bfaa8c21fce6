"""The devices that a model is on, as verbs tell of them."""

from __future__ import annotations

from dataclasses import dataclass

from camelid.backends.base import Backend
from camelid.backends.staged.backend import StagedBackend


@dataclass(frozen=True, slots=True)
class Device:
    """A device's backend with its name, and what it has of the model: which layers, and in words."""

    backend: Backend
    name: str
    layers: range
    part: str


def devices_of(backend: Backend, n_layers: int) -> list[Device]:
    """Of a staged backend each, else the one."""
    if isinstance(backend, StagedBackend):
        parts = zip(backend.backends, backend.layers, strict=True)
        return [_device(own, layers, backend.part(i)) for i, (own, layers) in enumerate(parts)]
    return [_device(backend, range(n_layers), f"all {n_layers} layers")]


def _device(backend: Backend, layers: range, part: str) -> Device:
    return Device(backend, backend.capabilities().name, layers, part)
