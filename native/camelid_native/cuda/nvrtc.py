"""The vendors' run-time compilers, through ctypes: NVRTC for NVIDIA, hipRTC for AMD.

Both have the same functions under other prefixes. A module's text has every header in place, so no include
path is needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from camelid.errors import BackendError
from camelid_native.cuda.compiler import Module


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerApi:
    """A run-time compiler: where its library is, the names of its functions, and its options.

    - `libraries` are names for the system's search, newest first; `pattern` is one of a file.
    - `packages` are folders of a pip package beside `nvidia`, `folders` those of a system's installation.
    - `code` is the stem of the functions that return the image.
    - `install` is the way out if there is no library.
    - `has_own_version`: false for a library whose version number never changes; it comes with the driver and
      has the driver's version.
    """

    name: str
    prefix: str
    code: str
    libraries: tuple[str, ...]
    pattern: str
    packages: tuple[str, ...]
    folders: tuple[str, ...]
    arch_option: str
    options: tuple[str, ...]
    install: str
    has_own_version: bool = True


NVRTC = CompilerApi(
    name="NVRTC",
    prefix="nvrtc",
    code="CUBIN",
    libraries=("libnvrtc.so.13", "libnvrtc.so.12"),
    pattern="libnvrtc.so.1[23]",
    packages=("cu13/lib", "cuda_nvrtc/lib"),
    folders=("/usr/local/cuda/lib64",),
    arch_option="--gpu-architecture=",
    options=("-std=c++17", "-fmad=false"),
    install="pip install 'camelid[cuda]'",
)
HIPRTC = CompilerApi(
    name="hipRTC",
    prefix="hiprtc",
    code="Code",
    libraries=("libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so", "libamdhip64.so.5"),
    pattern="libhiprtc.so",
    packages=(),
    folders=("/opt/rocm/lib",),
    arch_option="--offload-arch=",
    options=("-std=c++17", "-O3", "-ffp-contract=off"),
    install="install ROCm's packages hip-runtime-amd and comgr",
    has_own_version=False,
)


class RuntimeCompiler:
    """Compiles modules in this process.

    Opens the library: raises BackendError if it is missing, or makes images for newer drivers than `driver`,
    a number such as 12080 for CUDA 12.8 (0: any).
    """

    def __init__(self, api: CompilerApi, library: str = "", driver: int = 0) -> None:
        self._api = api
        self._library, (major, minor) = _opened(api, library, driver)
        self._function("GetErrorString").restype = c_char_p
        self.name = f"{api.name} {major}.{minor}" if api.has_own_version else f"{api.name} of driver {driver}"

    @property
    def options(self) -> tuple[str, ...]:
        """Options besides the architecture."""
        return self._api.options

    def image(self, module: Module, arch: str) -> bytes:
        """The code of a module for a device's architecture. Raises BackendError with the compiler's log."""
        program = c_void_p()
        text, file = module.text.encode(), f"{module.file}.cu".encode()
        self._call("CreateProgram", byref(program), c_char_p(text), c_char_p(file), c_int(0), None, None)
        try:
            self._compile(program, module, arch)
            return self._bytes_of(program, f"Get{self._api.code}")
        finally:
            self._call("DestroyProgram", byref(program))

    def _compile(self, program: c_void_p, module: Module, arch: str) -> None:
        options = [one.encode() for one in (self._api.arch_option + arch, *self.options)]
        listed = (c_char_p * len(options))(*options)
        code = self._function("CompileProgram")(program, c_int(len(options)), listed)
        if code:
            log = self._bytes_of(program, "GetProgramLog").rstrip(b"\0\n").decode(errors="replace")
            raise BackendError(
                f"cuda: {self.name} cannot compile {module.file}.cu for {arch}: {self._reason(code)}\n{log}",
                backend="cuda",
            )

    def _bytes_of(self, program: c_void_p, role: str) -> bytes:
        """The bytes that the functions `role` and `role`Size return."""
        size = c_size_t()
        self._call(f"{role}Size", program, byref(size))
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        self._call(role, program, buffer)
        return buffer.raw[: size.value]

    def _call(self, role: str, *arguments: Any) -> None:
        code = self._function(role)(*arguments)
        if code:
            raise BackendError(f"cuda: {self._api.prefix}{role}: {self._reason(code)}", backend="cuda")

    def _reason(self, code: int) -> str:
        text: bytes | None = self._function("GetErrorString")(c_int(code))
        return f"{(text or b'unknown error').decode(errors='replace')} ({code})"

    def _function(self, role: str) -> Any:
        return getattr(self._library, self._api.prefix + role)


Version = tuple[int, int]


def _opened(api: CompilerApi, library: str, driver: int) -> tuple[ctypes.CDLL, Version]:
    """The named library, or the first that opens and suits the driver, with its version."""
    newer: dict[str, Version] = {}
    tried = "nothing"
    for name in [library] if library else candidates(api):
        try:
            found = ctypes.CDLL(name)
            version = _version_of(api, found)
        except (OSError, AttributeError) as error:  # AttributeError: another library of this name
            tried = str(error)
            continue
        if _suits(api, version, driver):
            return found, version
        newer[name] = version
    raise BackendError(
        f"cuda: {_missing(api, newer, driver, tried)}, or choose another backend", backend="cuda"
    )


def _version_of(api: CompilerApi, library: ctypes.CDLL) -> Version:
    major, minor = c_int(), c_int()
    getattr(library, f"{api.prefix}Version")(byref(major), byref(minor))
    return major.value, minor.value


def _suits(api: CompilerApi, version: Version, driver: int) -> bool:
    """False for a library of a newer major version than the driver, which refuses its images."""
    return not api.has_own_version or not driver or version[0] <= driver // 1000


def _missing(api: CompilerApi, newer: Mapping[str, Version], driver: int, tried: str) -> str:
    """The fault and the way out."""
    if not newer:
        return f"{api.name} is missing, which compiles the kernels (last tried: {tried}): {api.install}"
    listed = ", ".join(f"{major}.{minor} ({name})" for name, (major, minor) in newer.items())
    has = f"{driver // 1000}.{driver % 1000 // 10}"
    return (
        f"{api.name} {listed} is newer than the driver, which has CUDA {has}: {api.install} or a newer driver"
    )


def is_installed() -> bool:
    """True if a run-time compiler can be opened."""
    for api in (NVRTC, HIPRTC):
        with suppress(BackendError):
            _opened(api, "", 0)
            return True
    return False


def candidates(api: CompilerApi) -> Iterator[str]:
    """Paths and names of the library: pip packages, the system's search, usual folders."""
    spec = find_spec("nvidia") if api.packages else None
    roots = list(spec.submodule_search_locations or ()) if spec else []
    for folder in (Path(root, each) for each in api.packages for root in roots):
        yield from _matching(folder, api.pattern)
    yield from api.libraries
    for folder in api.folders:
        yield from _matching(Path(folder), api.pattern)


def _matching(folder: Path, pattern: str) -> list[str]:
    return sorted(map(str, folder.glob(pattern)), reverse=True)
