"""Inputs of speed.py, and its table: native Python, the tokenizers package, and Pyodide under Node."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

from tests.support.text.conversations import CHATML
from tests.vectors import speed
from tests.vectors.big_vocab import big_metadata
from tests.vectors.inside import inside_pyodide

from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf

UNITS = {"one letter": "a", "spaces": " ", "combining marks": "\u0301", "one ideograph": "\u6f22"}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
        "address": {"$ref": "#/$defs/place"},
    },
    "required": ["name", "age", "address"],
    "additionalProperties": False,
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
            "required": ["street", "zip"],
            "additionalProperties": False,
        }
    },
}


def prose(n_words: int) -> str:
    """Random words that no cache holds: letters by their frequency in English, with some punctuation."""
    rng = Random(9)
    letters = "eeeeeeeeeeeetttttttttaaaaaaaaooooooooiiiiiiinnnnnnnsssssshhhhhhrrrrrrddddllllcccuuummm"
    words = ("".join(rng.choices(letters, k=rng.choice((2, 3, 4, 5, 6, 8)))) for _ in range(n_words))
    return " ".join(word + rng.choice(["", "", "", "", ",", "."]) for word in words)


def data(shared: Path) -> dict[str, Any]:
    said = [{"role": "user", "content": f"message {i}"} for i in range(200)]
    prompts = {"random words": prose(900), "this project's README": Path("README.md").read_text()[:7000]}
    return {
        "metadata": big_metadata(shared), "prompts": prompts, "units": UNITS, "schema": SCHEMA,
        "template": CHATML, "messages": said,
    }  # fmt: skip


def package_times(given: dict[str, Any]) -> dict[str, float]:
    """The same encodings by the tokenizers package, through its fast path."""
    made = tokenizer_from_gguf(given["metadata"])
    fast = made.fast
    assert fast, "the tokenizers package is missing"
    texts = given["prompts"] | {f"1 MB of {k}": u * (10**6 // len(u.encode())) for k, u in UNITS.items()}
    return {name: speed.seconds(lambda text=text, fast=fast: fast(text)) for name, text in texts.items()}


def print_speeds(folder: Path, shared: Path | None) -> int:
    if shared is None:
        return 1
    path, given = folder / "speed.gz", data(shared)
    with gzip.open(path, "wt", compresslevel=3, encoding="utf-8") as file:
        json.dump(given, file)
    native: list[tuple[str, float]] = json.loads(speed.report_json(str(path)))
    package = package_times(given)
    pyodide: list[tuple[str, float]] = inside_pyodide("speed.py", "report_json", path)
    print("| task | native Python | tokenizers | Pyodide |\n|---|---|---|---|")
    for (what, seconds), (_, inside) in zip(native, pyodide, strict=True):
        other = next((f"{t * 1000:.1f} ms" for name, t in package.items() if what.startswith(name)), "")
        print(f"| {what} | {seconds * 1000:.1f} ms | {other} | {inside * 1000:.1f} ms |")
    return 0
