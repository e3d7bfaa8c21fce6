"""Modules on the device, each compiled and loaded once."""

from __future__ import annotations

from typing import Any

from camelid_native.cuda.compiler import Compiler, Module
from camelid_native.cuda.device import Device
from camelid_native.cuda.signature import Signature, signatures


class Library:
    """The kernels of one device."""

    def __init__(self, device: Device, compiler: Compiler, arch: str) -> None:
        self._device, self._compiler, self._arch = device, compiler, arch
        self._modules: dict[Module, Any] = {}
        self._kernels: dict[tuple[Module, str], Any] = {}

    def kernel(self, module: Module, name: str) -> tuple[Signature, Any]:
        """A kernel's signature and handle."""
        signature = signatures(module.text)[name]
        if (module, name) not in self._kernels:
            self._kernels[module, name] = self._device.kernel(self._loaded(module), signature.symbol)
        return signature, self._kernels[module, name]

    def _loaded(self, module: Module) -> Any:
        if module not in self._modules:
            image = self._compiler.image(module, self._arch)
            self._modules[module] = self._device.module(image)
        return self._modules[module]
