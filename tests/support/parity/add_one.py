"""A hand-written program that adds two words of its step, for tests of hosts that execute sections."""

from __future__ import annotations

import struct
from typing import Any

Json = dict[str, Any]
ADD_ONE = """
override MORE: u32 = 1u;
@group(0) @binding(0) var<storage, read> step: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1) fn main() { out[0] = step[0] + step[1] + MORE; }
"""


def program(**changes: Any) -> Json:
    """Writes step[0] + step[1] + 1 to step[2] words."""
    usage = ["storage", "copy_src", "copy_dst"]
    section: Json = {
        "name": "add one",
        "kind": "program",
        "buffers": [{"name": n, "bytes": 16, "usage": usage} for n in ("step", "out")],
        "modules": {"add": ADD_ONE},
        "layouts": {"rw": ["read", "write"]},
        "pipelines": [{"module": "add", "layout": "rw", "constants": {}}],
        "groups": [{"layout": "rw", "bindings": [["step", 0, 16], ["out", 0, 16]]}],
        "commands": [["dispatch", 0, 0, [1, [0, 1], 1]]],
        "step": ["step", 16],
        "results": [["out", 0, 2, 4]],
        "ring": 2,
    }
    return section | changes


def step(a: int, b: int, words: int = 1) -> bytes:
    return struct.pack("<4I", a, b, words, 0)


# Changes to the program, its result for 1 and 1, and the number of its new modules and pipelines.
OWN_PIPELINES: tuple[tuple[Json, int, int], ...] = (
    ({}, 3, 2),
    ({"name": "again"}, 3, 0),
    ({"modules": {"add": ADD_ONE.replace("+ MORE", "- MORE")}}, 1, 2),
    ({"pipelines": [{"module": "add", "layout": "rw", "constants": {"MORE": 3}}]}, 5, 1),
    ({"name": "and again"}, 3, 0),
)
# A pipeline with another layout is distinct even if all else is equal; the shader forbids this layout.
FORBIDDEN: Json = {"layouts": {"rw": ["read", "read"]}}
