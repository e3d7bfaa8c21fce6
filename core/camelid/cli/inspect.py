"""`camelid inspect`: what lies in a directory or a GGUF file, and what Camelid would make of it."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import click

from camelid.cli.fetching import local_model
from camelid.cli.inspecting import UNKNOWN, Found, TensorFacts, inspect_directory, inspect_gguf
from camelid.cli.show import columns, line, printable, shown, size
from camelid.cli.verb import model_argument, verb
from camelid.loading.model_file import find_directory, find_source

NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")  # of a layer or an expert, within a tensor's name
MAX_VALUE = 100  # characters of a setting
SECTIONS = ("config", "generation_config", "metadata")


@verb
@model_argument
@click.option(
    "--tensors", is_flag=True, help="Every tensor; else those of all layers in one row. So does -v."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with every tensor; sizes in bytes.")
def command(model: str, tensors: bool, as_json: bool, verbose: bool) -> None:
    """Show what lies in a Hugging Face directory or a GGUF file; reads headers, never weights.

    Files, settings, tokenizer, and for each tensor its GGUF name and what loading does to it. A model that
    Camelid cannot run is shown too, with the reason. "!" marks tensors that no rule knows.
    """
    found = find(local_model(model))
    if as_json:
        click.echo(json.dumps(finite(found.json())))
        return
    for text in lines(found, every=tensors or verbose):
        click.echo(text)


def find(name: str) -> Found:
    """The directory or file of that name."""
    path = find_directory(name)
    return inspect_directory(path) if path else inspect_gguf(Path(find_source(name).handle))


def finite(value: Any) -> Any:
    """The same, with infinities and NaN, which JSON lacks, as text. Some configs hold them."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in cast(dict[str, Any], value).items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in cast(list[Any], value)]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def lines(found: Found, *, every: bool) -> Iterator[str]:
    """Everything as people read it."""
    facts = found.facts
    for name, form in HEAD.items():
        yield line(name, form(facts))
    yield "files"
    yield from (f"  {text}" for text in columns(_file_row(file) for file in facts["files"]))
    for name in SECTIONS:
        if facts.get(name):
            yield name.replace("_", " ")
            yield from (f"  {text}" for text in columns(map(_setting_row, facts[name].items())))
    yield "tensors"
    rows = (_row(t, f"{t.n_bytes:,} bytes") for t in found.tensors) if every else _pattern_rows(found.tensors)
    yield from columns(rows)


def _loads_as(facts: Mapping[str, Any]) -> str:
    if not facts["loads_as"]:
        return f"nothing: {printable(facts['reason'])}"
    row = facts.get("model_type")
    return facts["loads_as"] + (f", by the row of model_type {row}" if row else "")


def _parameters(facts: Mapping[str, Any]) -> str:
    n, used = facts["parameters"], facts["used_parameters"]
    return f"{n:,}" + (f", of which {used:,} are used" if used not in (None, n) else "")


def _types(facts: Mapping[str, Any]) -> str:
    each = facts["types"].items()
    return (
        ", ".join(f"{name} {use['tensors']:,} tensors {size(use['bytes'])}" for name, use in each) or "none"
    )


def _tokenizer(facts: Mapping[str, Any]) -> str:
    tokenizer = facts["tokenizer"]
    if not tokenizer:
        return "none"
    reason = f"; cannot be used: {tokenizer['reason']}" if tokenizer["reason"] else ""
    return printable(f"{tokenizer['kind']}, {tokenizer['n_tokens']:,} tokens{reason}")


HEAD: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "path": lambda facts: shown(facts["path"]),
    "format": lambda facts: shown(facts["format"]),
    "loads_as": _loads_as,
    "parameters": _parameters,
    "types": _types,
    "tokenizer": _tokenizer,
    "chat_template": lambda facts: shown(facts["chat_template"]),
}


def _file_row(file: Mapping[str, Any]) -> tuple[str, ...]:
    notes = ", ".join(f"{key}={value}" for key, value in file["metadata"].items())
    return (
        printable(file["name"]),
        f"{file['tensors']:,} tensors",
        size(file["bytes"]),
        _cut(printable(notes)),
    )


def _setting_row(item: tuple[str, Any]) -> tuple[str, str]:
    return printable(item[0]), " " + _cut(printable(json.dumps(item[1])))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 3] + "..."


def _pattern_rows(tensors: list[TensorFacts]) -> Iterator[tuple[str, ...]]:
    """Tensors that differ in nothing but numbers of layers and experts as one row, counted."""
    counts: Counter[tuple[str, ...]] = Counter()
    for t in tensors:
        name, kind, shape, to, folds, _ = _row(t, "")
        counts[NUMBER.sub("*", name), kind, shape, NUMBER.sub("*", to), folds] += 1
    return ((*row, f"{n:,} of them" if n > 1 else "") for row, n in counts.items())


def _row(t: TensorFacts, last: str) -> tuple[str, ...]:
    mark = "! " if t.status == UNKNOWN else "  "
    to = {"weight": f"-> {t.to}" if t.to != t.name else ""}.get(t.status, t.status)
    shape = "x".join(map(str, t.shape)) or "scalar"
    return mark + printable(t.name), t.type, shape, printable(to), printable("; ".join(t.folds)), last
