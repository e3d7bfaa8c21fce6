"""Report of the machine for `camelid doctor`; None for a fact that the system does not report."""

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
from camelid.backends.registry import backend_extras, extra_probe

CPUINFO, MEMINFO = Path("/proc/cpuinfo"), Path("/proc/meminfo")
# Linux names of the instruction sets with kernels: x86-64, then arm64.
INSTRUCTIONS = (
    "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_int8", "asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2",
)  # fmt: skip
PACKAGES = ("numpy", "wgpu", "tokenizers", "huggingface_hub", "click", "rich", "prompt_toolkit")
FACE_EXTRAS: dict[str, tuple[str, ...]] = {  # extra -> modules it installs
    "serve": ("starlette", "uvicorn"),
    "web": ("starlette", "uvicorn", "brotli"),
}
UNBOUNDED = 1 << 60  # cgroups version 1 report a larger number for no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine; sizes in bytes.

    `quota` counts processors. `packages` maps a name to its version, None if missing; `extras` to the pip
    command, "" if installed. `disks` maps a cache folder to the free bytes of its disk.
    """

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
    """Reads the facts of this machine."""
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
    """The processor's name; "" if the text lacks one, as on many arm64 machines."""
    return next(iter(_fields(cpuinfo, "model name", "Model")), "")


def instructions(cpuinfo: str) -> tuple[str, ...] | None:
    """The `INSTRUCTIONS` that the processor supports; None if the text lists no flags."""
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
    """The container's memory limit in bytes; None without a limit."""
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
    """The pip command of each extra of a face or a backend, "" if installed."""
    return {
        name: "" if all(map(find_spec, modules)) and extra_probe(name) else f"pip install 'camelid[{name}]'"
        for name, modules in (FACE_EXTRAS | backend_extras()).items()
    }


def hub_cache() -> Path:
    """The download cache of huggingface_hub, from the same environment variables."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    hub = os.environ.get("HF_HOME") or Path(home, "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or Path(hub, "hub")).expanduser()


def free_bytes(folder: Path) -> int:
    """Free bytes of the disk of a folder, which need not exist yet."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(there).free
