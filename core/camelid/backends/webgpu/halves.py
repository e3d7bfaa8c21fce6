"""The module of an op whose halves have weights of different types: two kernels in one dispatch.

It has the text of the first half's kernel, and of the second half's the declarations that differ, by names
that begin with `v_`: those that mention a weight, a number of its type or one of the half's columns. All else
exists once, workgroup memory in particular. A half thus has the text and the constants of its own kernel, and
the same bits. `shaders/halves.wgsl` has the entry point, which chooses the half of a workgroup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

PREFIX, FILE = "v_", "halves"
# Names whose values the halves do not share.
OWN = frozenset((
    "weights", "words", "bias", "HAS_BIAS", "N", "Y_OFFSET", "TURNED", "WIDTH", "V_WIDTH",
    "SPAN", "SCALES", "PAIR", "SHIFT", "ZERO", "PLANE_1", "PLANE_2", "BOOK", "BITS", "QUADS",
))  # fmt: skip
COMMENT = re.compile(r" *//.*")
ENTRY = re.compile(r"^@compute .*\n|@builtin\(\w+\) ", re.MULTILINE)  # attributes of an entry point
BINDING = re.compile(r"^@group\(0\) @binding\((\d+)\) (var<storage, \w+>) (\w+): array<(.+)>;", re.MULTILINE)
OVERRIDE = re.compile(r"^override .*\n", re.MULTILINE)
DECLARATION = re.compile(
    r"^(?:@group\S+ @binding\S+ )?(?:fn|struct|alias|const|override|var<.+>) (\w+)", re.MULTILINE
)


@cache
def module(first: str, second: str, entry: str, unbound: tuple[str, ...]) -> str:
    """Joins two modules and the entry point that calls both; `unbound` are variables without a binding."""
    first, second = (ENTRY.sub("", text) for text in (first, second))
    declared = declarations(second)
    own = _own(declarations(first), declared)
    more = [_renamed(text, own) for name, text in declared.items() if name in own]
    added = "\n".join(["", *more, entry])
    # Naga 29 panics at an override behind an array whose size is an override, and such arrays are in `first`.
    numbers = "".join(OVERRIDE.findall(added))
    return _bound(numbers + first.replace("fn main(", "fn first_main(") + OVERRIDE.sub("", added), unbound)


def prefixed(constants: Mapping[str, float]) -> dict[str, float]:
    """Constants by their names in the second half."""
    return {PREFIX + name: value for name, value in constants.items()}


def declarations(wgsl: str) -> dict[str, str]:
    """Texts of the module's declarations by name, without comments."""
    code = COMMENT.sub("", wgsl)
    found = [*DECLARATION.finditer(code)]
    ends = [*(one.start() for one in found[1:]), len(code)]
    return {one[1]: code[one.start() : end].strip() for one, end in zip(found, ends, strict=True)}


def _own(first: Mapping[str, str], second: Mapping[str, str]) -> set[str]:
    """Names of the second module's declarations that differ, or mention one that does."""
    own = {name for name, text in second.items() if name in OWN or first.get(name) != text}
    words = {name: {*re.findall(r"\w+", text)} for name, text in second.items()}
    while more := {name for name in words.keys() - own if words[name] & own}:
        own |= more
    return own


def _renamed(text: str, names: Iterable[str]) -> str:
    return re.sub(rf"\b({'|'.join(sorted(names))})\b", rf"{PREFIX}\1", text)


def _bound(wgsl: str, unbound: Iterable[str]) -> str:
    """The module with its bindings numbered anew, those of the second half last.

    A variable without a binding, which nothing reads, becomes a private one: browsers have few bindings.
    """
    order = sorted(BINDING.findall(wgsl), key=lambda found: (found[2].startswith(PREFIX), int(found[0])))
    numbers = {name: i for i, name in enumerate(name for *_, name, _ in order if name not in unbound)}

    def declared(found: re.Match[str]) -> str:
        _, kind, name, item = found.groups()
        if name not in numbers:
            return f"var<private> {name}: array<{item}, 1>;"
        return f"@group(0) @binding({numbers[name]}) {kind} {name}: array<{item}>;"

    return BINDING.sub(declared, wgsl)
