"""Which backends there are, and how a name becomes one. Nothing is imported before its name is asked for."""

from __future__ import annotations

import sys
from importlib import import_module

from camelid.backends.base import Backend
from camelid.errors import BackendError

BACKENDS = {
    "reference": "camelid.backends.reference.backend",
    "cpu": "camelid_native.wasm.backend" if sys.platform == "emscripten" else "camelid_native.cpu.backend",
    "null": "camelid.backends.null.backend",
    "webgpu": "camelid.backends.webgpu.backend",
}
ADAPTERS = {"vulkan": "Vulkan", "metal": "Metal", "dx12": "D3D12"}  # names of webgpu's own backends


def open_backend(name: str) -> Backend:
    """A backend by name, not yet opened. `vulkan`, `metal`, `dx12` are webgpu on that API.

    Raises BackendError for an unknown name, or when the package behind it is missing.
    """
    module = BACKENDS.get("webgpu" if name in ADAPTERS else name)
    if module is None:
        known = ", ".join([*BACKENDS, *ADAPTERS])
        raise BackendError(f"unknown backend {name!r}; known: auto, {known}", backend=name)
    try:
        arguments = (ADAPTERS[name],) if name in ADAPTERS else ()
        return import_module(module).open_backend(*arguments)
    except ModuleNotFoundError as error:
        raise BackendError(
            f"backend {name!r} needs the package {error.name!r}: pip install {error.name}", backend=name
        ) from error
