"""The registry of backends by name. A backend's module is imported on first use."""

from __future__ import annotations

import platform
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from camelid.backends.base import Backend, Shares
from camelid.errors import BackendError

Role = Literal["oracle", "processor", "gpu", "other", "test"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRow:
    """One backend. `module` defines `open_backend`; a web page imports `page_module`, where it differs.

    `role`: one backend is the oracle, the fallback of `auto` and the reference of the parity gate; one is the
    processor, for layers that are not on a GPU; a backend without such a duty is "gpu" or "other"; a test
    backend is in no list for users. `auto_rank` orders the backends that `auto` tries, 0 for never. `options`
    are the load options beyond those of every backend; "devices" is a count of them, and `open_parallel`.
    `api` is the graphics API, an argument of `open_backend`. `drivers` are the drivers that it runs on, of
    `gpus.DRIVERS`, on Linux alone (none: any GPU's, on any system). `extra` is the pip extra that installs
    the packages, `modules` their importable modules; `probe` is a module whose `is_installed()` finds a
    library that the system may have as well. `auto` tries a backend with `systems` on those alone.
    """

    module: str
    role: Role
    page_module: str = ""
    auto_rank: int = 0
    options: frozenset[str] = frozenset()
    api: str = ""
    extra: str = ""
    modules: tuple[str, ...] = ()
    probe: str = ""
    drivers: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()  # of `this_system`


WEBGPU = "camelid.backends.webgpu.backend"

BACKENDS: dict[str, BackendRow] = {
    "reference": BackendRow(
        module="camelid.backends.reference.backend", role="oracle", options=frozenset({"devices"})
    ),
    "cpu": BackendRow(
        module="camelid_native.cpu.backend",
        page_module="camelid_native.wasm.backend",
        role="processor",
        auto_rank=3,
        options=frozenset({"adapter", "threads"}),
    ),
    "null": BackendRow(module="camelid.backends.null.backend", role="test"),
    "webgpu": BackendRow(module=WEBGPU, role="gpu", auto_rank=2, options=frozenset({"adapter"})),
    "cuda": BackendRow(
        module="camelid_native.cuda.backend",
        role="gpu",
        auto_rank=1,
        options=frozenset({"adapter", "devices", "collective"}),
        extra="cuda",
        modules=("cupy",),
        probe="camelid_native.cuda.nvrtc",
        drivers=("NVIDIA", "ROCm"),
    ),
    "mlx": BackendRow(
        module="camelid_native.mlx.backend",
        role="gpu",
        auto_rank=1,
        options=frozenset({"adapter"}),
        extra="mlx",
        modules=("mlx",),
        probe="camelid_native.mlx.library",
        systems=("darwin-arm64",),
    ),
    "vulkan": BackendRow(module=WEBGPU, role="gpu", options=frozenset({"adapter"}), api="Vulkan"),
    "metal": BackendRow(module=WEBGPU, role="gpu", options=frozenset({"adapter"}), api="Metal"),
    "dx12": BackendRow(module=WEBGPU, role="gpu", options=frozenset({"adapter"}), api="D3D12"),
}


def names_of(*roles: Role) -> tuple[str, ...]:
    """Names of the backends with one of these roles, in the table's order."""
    return tuple(name for name, row in BACKENDS.items() if row.role in roles)


def user_names() -> tuple[str, ...]:
    """Names that a user may choose."""
    return names_of("oracle", "processor", "gpu", "other")


def auto_names() -> tuple[str, ...]:
    """Names that `auto` tries on this system, the best first."""
    ranked = [name for name, row in BACKENDS.items() if row.auto_rank and _is_of_this_system(row)]
    return tuple(sorted(ranked, key=lambda name: BACKENDS[name].auto_rank))


def _is_of_this_system(row: BackendRow) -> bool:
    return (sys.platform == "linux" or not row.drivers) and (not row.systems or this_system() in row.systems)


def this_system() -> str:
    """The system and its processor, such as "darwin-arm64"."""
    return f"{sys.platform}-{platform.machine().lower()}"


def names_with(option: str) -> tuple[str, ...]:
    """Names of the backends with this load option."""
    return tuple(name for name, row in BACKENDS.items() if option in row.options)


def probe(name: str) -> bool:
    """False if a library that the backend opens is neither installed by its extra nor by the system."""
    row = row_of(name)
    return not row.probe or import_module(row.probe).is_installed()


def extra_probe(extra: str) -> bool:
    """`probe` of the backend of an extra; True for another extra."""
    return all(probe(name) for name, row in BACKENDS.items() if row.extra == extra)


def backend_extras() -> dict[str, tuple[str, ...]]:
    """The pip extras of the backends, with the modules that each installs."""
    return {row.extra: row.modules for row in BACKENDS.values() if row.extra}


def oracle_name() -> str:
    """The name of the oracle."""
    return names_of("oracle")[0]


def processor_name() -> str:
    """The name of the backend for layers that are not on a GPU."""
    return names_of("processor")[0]


def row_of(name: str) -> BackendRow:
    """The row of a name. Raises BackendError for an unknown name, with the known names."""
    row = BACKENDS.get(name)
    if row is None:
        known = ", ".join(name for name in BACKENDS if BACKENDS[name].role != "test")
        raise BackendError(f"unknown backend {name!r}; known: auto, {known}", backend=name)
    return row


def open_backend(name: str) -> Backend:
    """The backend of a name, not opened. Raises BackendError for an unknown name or a missing package."""
    module, row = _module(name), row_of(name)
    with _packages(name, row):
        return module.open_backend(row.api) if row.api else module.open_backend()


def open_parallel(name: str, n: int, shares: Shares) -> Backend:
    """A tensor-parallel backend of n devices, not opened. Raises as `open_backend`."""
    module = _module(name)
    with _packages(name, row_of(name)):
        return module.open_parallel(n, shares)


def _module(name: str) -> Any:
    row = row_of(name)
    in_page = sys.platform == "emscripten"
    with _packages(name, row):
        return import_module(row.page_module if in_page and row.page_module else row.module)


@contextmanager
def _packages(name: str, row: BackendRow) -> Generator[None]:
    """Names the way out of a missing package."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = f"'camelid[{row.extra}]'" if row.extra else error.name
        raise BackendError(
            f"backend {name!r} needs the package {error.name!r}: pip install {package}", backend=name
        ) from error
