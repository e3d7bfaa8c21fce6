"""The devices of a loaded model, as subcommands list them."""

from __future__ import annotations

from dataclasses import dataclass

from camelid.backends.base import Backend
from camelid.backends.staged.backend import StagedBackend


@dataclass(frozen=True, slots=True)
class Device:
    """A device's backend and name, its layers, and its part of the model in words."""

    backend: Backend
    name: str
    layers: range
    part: str


def devices_of(backend: Backend, n_layers: int) -> list[Device]:
    """The devices of a staged backend, or the single one of any other."""
    if isinstance(backend, StagedBackend):
        parts = zip(backend.backends, backend.layers, strict=True)
        return [_device(own, layers, backend.part(i)) for i, (own, layers) in enumerate(parts)]
    return [_device(backend, range(n_layers), f"all {n_layers} layers")]


def _device(backend: Backend, layers: range, part: str) -> Device:
    return Device(backend, backend.capabilities().name, layers, part)
