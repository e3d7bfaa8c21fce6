"""The backend mlx with Metal's kernels on the rig: MLX's CPU device, named a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.metal.rig import Rig

from camelid.backends.base import OpenSpec
from camelid_native.mlx import device, opened
from camelid_native.mlx.backend import MlxBackend
from camelid_native.mlx.device import Facts, device_of, most_bytes
from camelid_native.mlx.metal import launch


def as_gpu(adapter: str) -> Facts:
    """The CPU as a GPU."""
    facts = device_of(adapter or "cpu")
    return replace(facts, name=f"Metal's text on {facts.name}", is_gpu=True)


def most_of_cpu(facts: Facts) -> int:
    return most_bytes(replace(facts, is_gpu=False))


class MetalOnRig(MlxBackend):
    """A backend whose kernels the rig creates from its opening to its close."""

    def __init__(self, rig: Rig | None = None) -> None:
        super().__init__()
        self.rig = rig or Rig()
        self._kept: list[tuple[Any, str, Any]] = []

    async def open(self, spec: OpenSpec) -> None:
        await super().close()
        self._set(launch, "create", self.rig.metal_kernel)
        self._set(opened, "device_of", as_gpu)
        self._set(opened, "most_bytes", most_of_cpu)
        self._set(device, "free_bytes", most_of_cpu)
        await super().open(spec)

    async def close(self) -> None:
        is_open = self._parts is not None
        await super().close()
        while is_open and self._kept:
            setattr(*self._kept.pop())

    def _set(self, owner: Any, name: str, value: Any) -> None:
        self._kept.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)
