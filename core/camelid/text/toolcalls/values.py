"""Argument values in other notations than JSON: typed by the tool's schema, or Python literals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from camelid.text.toolcalls.json_scanner import is_json

STRING = frozenset({"string"})
SPACE = " \t\r\n"
# First character of a JSON text -> its type; all other characters begin numbers.
TYPES = {'"': "string", "{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null"}
# An unclosed string extends to the end: a new attempt at each quote would be quadratic.
LITERAL = re.compile(
    r"""'(?:[^'\\]|\\.)*(?:'|\\?\Z)|"(?:[^"\\]|\\.)*(?:"|\\?\Z)|True|False|None|[^'"TFN]+|.""", re.DOTALL
)
BARE_KEY = re.compile(r"""([{,][ \t\r\n]*)([^{}\[\]:," \t\r\n]+)[ \t\r\n]*:""")
WORDS = {"True": "true", "False": "false", "None": "null"}
# A surrogate pair is one character, as in JSON: models write json.dumps's escapes in Python calls.
ESCAPE = re.compile(
    r"\\(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|\n|.)",
    re.DOTALL,
)
ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "\n": ""}


def quoted(text: str) -> str:
    """The text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    """The text escaped for use within a JSON string."""
    return quoted(text)[1:-1]


def typed_json(text: str, types: frozenset[str]) -> str:
    """The JSON text of a value: the text itself if it is JSON (or Python) of an allowed type; else a string.

    An empty set of types allows every type.
    """
    bare = text.strip(SPACE)
    value = bare if is_json(bare) else python_json(bare)
    if value is None:
        return quoted(text)
    kind = TYPES.get(value[0], "number")
    allowed = types | {"number"} if "integer" in types else types
    return quoted(text) if "string" in allowed and kind not in allowed else value


def python_json(text: str) -> str | None:
    """The JSON text of a Python literal; None if JSON has no such value."""
    value = "".join(_translated(found) for found in LITERAL.findall(text)).strip(SPACE)
    return value if is_json(value) else None


def _translated(token: str) -> str:
    if token[0] in "'\"" and len(token) > 1 and token[-1] == token[0]:
        return quoted(ESCAPE.sub(_unescaped, token[1:-1]))
    return WORDS.get(token, token)


def bare_json(text: str) -> str | None:
    """The JSON text of an object with bare keys and strings between <|"|>; None for any other text."""
    parts = text.strip(SPACE).split('<|"|>')
    value = "".join(quoted(part) if i % 2 else BARE_KEY.sub(r'\1"\2":', part) for i, part in enumerate(parts))
    return value if value.startswith("{") and is_json(value) else None


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    if len(escape) > len("uXXXX"):
        return str(json.loads(f'"{found[0]}"'))
    if len(escape) > 1:
        char = chr(int(escape[1:], 16))
        return found[0] if "\ud800" <= char <= "\udfff" else char
    return ESCAPES.get(escape, found[0])


def tool_schemas(tools: Sequence[object]) -> dict[str, Mapping[str, object]]:
    """Tool name -> parameter name -> schema, from OpenAI's `tools` or from bare function objects."""
    found: dict[str, Mapping[str, object]] = {}
    for tool in tools:
        function = _mapping(_mapping(tool).get("function")) or _mapping(tool)
        name = function.get("name")
        if isinstance(name, str):
            found[name] = _mapping(_mapping(function.get("parameters")).get("properties"))
    return found


def schema_types(schema: object) -> frozenset[str]:
    """The JSON types that a schema names: its own type and those of alternatives, enum and const."""
    node = _mapping(schema)
    return frozenset(kind for part in (node, *_alternatives(node)) for kind in _own_types(part))


def _alternatives(schema: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    for key in ("anyOf", "oneOf", "allOf"):
        yield from (_mapping(part) for part in _items(schema.get(key)))


def _own_types(schema: Mapping[str, object]) -> Iterable[str]:
    declared = schema.get("type")
    named = [declared] if isinstance(declared, str) else _items(declared)
    if named:
        return [kind for kind in named if isinstance(kind, str)]
    values = [*_items(schema.get("enum")), *([schema["const"]] if "const" in schema else ())]
    return [TYPES.get(json.dumps(value)[0], "number") for value in values]


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}  # type: ignore[return-value]  # Mapping[Unknown, Unknown]


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()  # type: ignore[return-value]  # list[Unknown]
