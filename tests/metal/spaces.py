"""Address spaces of kernels' texts, checked by clang: pointers to `device`, `constant` and `threadgroup`
memory mix with no others. Nothing is compiled to code. The language is C++14, as Metal's.

All texts are one translation unit, each in a namespace of its own. MLX puts an input of fewer than 8 elements
into `constant`, so the texts must be of arrays with the sizes that kernels really get.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from tests.metal.rig import HERE, Source

MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)
FLAGS = ("-std=c++14", "-fsyntax-only", "-ffreestanding", "-DSPACES", "-fsigned-char", "-Wno-everything")


def has_clang() -> bool:
    return find_spec("ziglang") is not None


def clang_headers() -> Path:
    """Headers of the compiler itself: the check needs no standard library."""
    found = find_spec("ziglang")
    assert found and found.origin
    return Path(found.origin).parent / "lib" / "include"


def complaints(sources: Iterable[Source]) -> list[str]:
    """Lines of clang's errors about the texts, each after the name of its kernel; none if all are right."""
    parts = ['#include "msl.h"', *(_part(number, source) for number, source in enumerate(sources))]
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "kernels.cpp")
        text.write_text("\n".join(parts))
        command = [
            sys.executable,
            "-m",
            "ziglang",
            "clang",
            *FLAGS,
            f"-I{HERE}",
            f"-I{clang_headers()}",
            str(text),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if " error: " in line]
    return errors or [done.stderr] * bool(done.returncode)


def _part(number: int, source: Source) -> str:
    text = source.checked()
    undone = "\n".join(f"#undef {name}" for name in MACRO.findall(text))
    return f'namespace kernel_{number} {{\n#line 1 "{source.name}"\n{text}\n}}\n{undone}'
