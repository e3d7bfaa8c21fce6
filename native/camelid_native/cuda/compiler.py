"""Modules of kernels as text, and the protocol of their compilers."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Protocol

FOLDER = Path(__file__).parent / "kernels"
Space = tuple[str, tuple[str, ...]]  # a namespace and its headers
INCLUDE = re.compile(r'^#include "(\w+\.h)"\n', re.MULTILINE)


@dataclass(frozen=True)
class Module:
    """A kernel file with the headers that it is compiled with, such as a codec, and macros.

    Each of `spaces` is a namespace with its own copy of its headers; `headers` stand before all, once.
    No slots: `cached_property` needs a `__dict__`.
    """

    file: str
    headers: tuple[str, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    spaces: tuple[Space, ...] = ()

    @cached_property
    def text(self) -> str:
        """The text with every header in place, once, and with the macros before it."""
        seen: set[str] = set()
        macros = "".join(f"#define {name} {value}\n" for name, value in self.defines)
        common = "".join(_inlined(f"{name}.h", seen) for name in self.headers)
        spaces = "".join(_space(name, headers, set(seen)) for name, headers in self.spaces)
        return macros + common + spaces + _inlined(f"{self.file}.cu", seen)


def _space(name: str, headers: tuple[str, ...], seen: set[str]) -> str:
    """A namespace with headers."""
    return f"namespace {name} {{\n{''.join(_inlined(f'{one}.h', seen) for one in headers)}}}\n"


def _inlined(name: str, seen: set[str]) -> str:
    """A file's text with its headers in place; "" if it is already there or belongs to the compiler."""
    if name in seen or not (FOLDER / name).exists():
        return ""
    seen.add(name)
    return INCLUDE.sub(lambda found: _inlined(found[1], seen) or _foreign(found[1]), file_text(name))


def _foreign(name: str) -> str:
    """The line that includes a header of another folder, such as the emulator's."""
    return "" if (FOLDER / name).exists() else f'#include "{name}"\n'


@cache
def file_text(name: str) -> str:
    """The text of a kernel file or header."""
    return (FOLDER / name).read_text(encoding="utf-8").replace("#pragma once\n", "")


class Compiler(Protocol):
    """A compiler of modules. `name` is a part of error messages."""

    name: str

    def image(self, module: Module, arch: str) -> bytes:
        """The code of a module for a device's architecture. Raises BackendError with the compiler's log."""
        ...


def fingerprint(compiler: str) -> str:
    """A hash of all kernel texts and of the compiler's name, 16 hex digits."""
    texts = (file_text(path.name) for path in sorted(FOLDER.iterdir()))
    return hashlib.sha256("\0".join((compiler, *texts)).encode()).hexdigest()[:16]
