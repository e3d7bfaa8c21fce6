"""Machine code as Mesa's compilers print it: instructions in order, and the bodies of loops."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

# In Mesa's output of AGX_MESA_DEBUG=shaders: the head of a shader, and its lines of machine code.
APPLE_HEAD = re.compile(r"^shader: MESA_SHADER_COMPUTE\n", re.MULTILINE)
APPLE_CODE = re.compile(r"(?:^ +[0-9a-f]+: [0-9a-f]+ .*\n)+", re.MULTILINE)


@dataclass(slots=True)
class Code:
    """Instructions in order, and each loop's instructions."""

    ops: list[str] = field(default_factory=list[str])
    loops: list[list[str]] = field(default_factory=list[list[str]])


def labelled(text: str, *, label: str, jump: str) -> Code:
    """A listing with labels; a jump to an earlier label ends a loop."""
    code, places = Code(), dict[str, int]()
    for raw in text.splitlines():
        line = re.sub(r"\s*[;/]{1,2}[ 0-9a-f]*$", "", raw.strip())
        if found := re.match(label, line):
            places[found[1]] = len(code.ops)
        elif line:
            code.ops.append(line)
            to = re.search(jump, line)
            if to and to[1] in places:
                code.loops.append(code.ops[places[to[1]] :])
    return code


def _blocks(text: str) -> Code:
    """NVIDIA's listing: blocks with their predecessors and successors."""
    ops, before, back = dict[int, list[str]](), dict[int, list[int]](), list[tuple[int, int]]()
    block = 0
    for line in filter(None, map(str.strip, text.splitlines())):
        if head := re.match(r"block\S* (\d+) \S+ \[(.*)\]", line):
            block = int(head[1])
            ops[block], before[block] = [], _numbers(head[2])
        elif tail := re.match(r"\} -> \[(.*)\]", line):
            back += [(block, n) for n in _numbers(tail[1]) if n <= block]
        else:
            ops[block].append(line)
    loops = [_body(last, header, before) for last, header in back]
    return Code(
        [op for some in ops.values() for op in some], [[op for n in body for op in ops[n]] for body in loops]
    )


def _numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


def _body(last: int, header: int, before: dict[int, list[int]]) -> list[int]:
    """Blocks of a natural loop: all that reach its last block without its header."""
    body, todo = {header}, [last]
    while todo:
        at = todo.pop()
        if at not in body:
            body.add(at)
            todo += before[at]
    return sorted(body)


def _addressed(text: str) -> Code:
    """Apple's listing: addresses, and jumps by a distance."""
    code, places = Code(), dict[int, int]()
    for found in re.finditer(r"^\s+([0-9a-f]+): [0-9a-f]+ +(.*)$", text, re.MULTILINE):
        at = int(found[1], 16)
        places[at] = len(code.ops)
        code.ops.append(found[2])
        to = re.match(r"jmp_any\s+(-\d+)", found[2])
        if to and at + int(to[1]) in places:
            code.loops.append(code.ops[places[at + int(to[1])] :])
    return code


READERS: dict[str, Callable[[str], Code]] = {
    "amd": partial(labelled, label=r"(BB\d+):", jump=r"^s_c?branch\S* (BB\d+)"),
    "adreno": partial(labelled, label=r"(l\d+):", jump=r"(?:br|jump|bra[a-z]*)\S*.* #(l\d+)"),
    "intel": partial(labelled, label=r"(L\d+):", jump=r"\bwhile \(\d+\).*?(L\d+)"),
    "nvidia": _blocks,
    "apple": _addressed,
}


def apple_listings(output: str) -> Sequence[str]:
    """The machine code of each shader that Mesa's Apple driver printed: of one compilation the longest."""
    shaders = (APPLE_CODE.findall(shader) for shader in APPLE_HEAD.split(output)[1:])
    return [max(listings, key=len) for listings in shaders if listings]
