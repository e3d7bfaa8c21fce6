"""What `camelid doctor` says of the machine: each fact from the system, or None where that does not tell."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from camelid.backends.common.processors import CGROUP, allowed_processors, cpu_quota
from camelid.backends.proof.verdicts import cache_folder
from camelid.backends.registry import backend_extras

CPUINFO, MEMINFO = Path("/proc/cpuinfo"), Path("/proc/meminfo")
# As Linux names them: what kernels for x86-64, then for arm64, are written for.
INSTRUCTIONS = (
    "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_int8", "asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2",
)  # fmt: skip
PACKAGES = (
    "numpy", "wgpu", "tokenizers", "safetensors", "gguf", "huggingface_hub", "click", "rich",
    "prompt_toolkit",
)  # fmt: skip
EXTRAS: Mapping[str, tuple[str, ...]] = {  # extra -> modules that it brings
    "serve": ("starlette", "uvicorn"),
    "web": ("starlette", "uvicorn", "brotli"),
    "cuda": ("cupy",),
    "mlx": ("mlx",),
}
FACE_EXTRAS = ("serve", "web")
UNBOUNDED = 1 << 60  # what cgroups of version 1 say for no limit is above


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Sizes in bytes. `quota` is in processors; `packages` has None for what is missing, `extras` the pip
    line of those that are, and "" for the others; `disks` the free bytes of each cache."""

    processor: str
    instructions: tuple[str, ...] | None
    processors: int
    affinity: int
    quota: float | None
    memory_bytes: int | None
    available_bytes: int | None
    memory_limit_bytes: int | None
    system: str
    python: str
    packages: Mapping[str, str | None]
    extras: Mapping[str, str]
    disks: Mapping[str, int]


def read_machine() -> Machine:
    """This machine, now."""
    cpu = _read(CPUINFO)
    return Machine(
        processor=cpu_name(cpu) or platform.processor() or platform.machine(),
        instructions=instructions(cpu),
        processors=os.cpu_count() or 1,
        affinity=len(allowed_processors()),
        quota=cpu_quota(),
        memory_bytes=_meminfo("MemTotal"),
        available_bytes=_meminfo("MemAvailable"),
        memory_limit_bytes=memory_limit(CGROUP),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        packages={name: _version(name) for name in PACKAGES},
        extras=extras(),
        disks={str(folder): free_bytes(folder) for folder in (hub_cache(), cache_folder())},
    )


def cpu_name(cpuinfo: str) -> str:
    """The processor's name; "" where the text has none, as on many arm64 machines."""
    return next(iter(_fields(cpuinfo, "model name", "Model")), "")


def instructions(cpuinfo: str) -> tuple[str, ...] | None:
    """Those of `INSTRUCTIONS` that the processor has; None where the text does not list any."""
    flags = next(iter(_fields(cpuinfo, "flags", "Features")), None)
    return None if flags is None else tuple(name for name in INSTRUCTIONS if name in flags.split())


def _fields(text: str, *names: str) -> Iterable[str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return (value.strip() for name, _, value in pairs if name.strip() in names)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def memory_limit(cgroup: Path) -> int | None:
    """Bytes that a container may use; None without a limit."""
    text = _read(cgroup / "memory.max") or _read(cgroup / "memory" / "memory.limit_in_bytes")
    limit = int(text) if text.strip().isdigit() else UNBOUNDED
    return limit if limit < UNBOUNDED else None


def _meminfo(name: str) -> int | None:
    found = next(iter(_fields(_read(MEMINFO), name)), "").split()
    return int(found[0]) << 10 if found and found[0].isdigit() else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def extras() -> Mapping[str, str]:
    """The pip line of each extra that is not there whole, without those of backends that Camelid lacks."""
    known = {name: EXTRAS[name] for name in (*FACE_EXTRAS, *backend_extras())}
    return {
        name: "" if all(map(find_spec, modules)) else f"pip install 'camelid[{name}]'"
        for name, modules in known.items()
    }


def hub_cache() -> Path:
    """Where huggingface_hub keeps what was fetched, by its rules."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    hub = os.environ.get("HF_HOME") or Path(home, "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or Path(hub, "hub")).expanduser()


def free_bytes(folder: Path) -> int:
    """Of the disk that a folder is on, or will be."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(there).free
