"""Parameters of kernels, read from their text, and arguments as bytes.

`KERNEL(norm, 256)(Step step, View y, const float *gain, int size)` needs values by the names step, y, gain
and size. A structure of step.h is a tuple of its fields; a pointer takes the first field of one.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

Value = int | float | tuple[int, ...]
Values = Mapping[str, Value]

# C type -> its fields in native alignment, as in step.h; "P" is a pointer.
FORMATS = {
    "int": "i",
    "u32": "I",
    "float": "f",
    "Step": "Pii",
    "View": "Pii",
    "Pool": "PPPiiiii0P",
    "Ring": "Pii",
    "Slots": "Pii",
    "Adapters": "Pii",
    "Matrix": "PPPPii",
}
POINTER = "P"
KERNEL = re.compile(r"^KERNEL\((\w+), (\w+)\)\(([^)]*)\)", re.MULTILINE)
MACRO = re.compile(r"^#define (\w+) (\w+)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel: its name and the format of its bytes."""

    name: str
    format: str

    def packed(self, value: Value) -> bytes:
        """The argument's bytes."""
        if self.format == POINTER:
            value = value[0] if isinstance(value, tuple) else value
        fields = value if isinstance(value, tuple) else (value,)
        n = len(struct.unpack(self.format, bytes(struct.calcsize(self.format))))
        return struct.pack(self.format, *fields, *(0,) * (n - len(fields)))


@dataclass(frozen=True, slots=True)
class Signature:
    """A kernel's name, threads of a block, and parameters."""

    name: str
    threads: int
    parameters: tuple[Parameter, ...]

    @property
    def symbol(self) -> str:
        """The kernel's name in a compiled module, by the macro KERNEL."""
        return f"kernel_{self.name}"

    def packed(self, values: Values) -> Sequence[bytes]:
        """The arguments by the parameters' names. Raises KeyError for a name without a value."""
        return [parameter.packed(values[parameter.name]) for parameter in self.parameters]


@cache
def signatures(text: str) -> Mapping[str, Signature]:
    """The kernels of a module's text, by name."""
    macros = dict(reversed(MACRO.findall(text)))  # the first definition counts
    return {
        name: Signature(name, _number(threads, macros), tuple(_parameters(listed)))
        for name, threads, listed in KERNEL.findall(text)
    }


def _number(word: str, macros: Mapping[str, str]) -> int:
    """The number that a word stands for."""
    return _number(macros[word], macros) if word in macros else int(word)


def _parameters(listed: str) -> Sequence[Parameter]:
    return [_parameter(" ".join(one.split())) for one in listed.split(",")]


def _parameter(declared: str) -> Parameter:
    """The parameter of a declaration such as `const float *gain`."""
    kind, _, name = declared.rpartition(" ")
    if name.startswith("*"):
        return Parameter(name.lstrip("*"), POINTER)
    return Parameter(name, FORMATS[kind.removeprefix("const ")])
