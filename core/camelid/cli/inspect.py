"""`camelid inspect`: settings and tensors of a directory or a GGUF file, and the use of each tensor."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import click

from camelid.cli.command import model_argument, subcommand
from camelid.cli.format import columns, printable, size
from camelid.cli.info_record import UNKNOWN, WEIGHT, Record, Report, TensorRecord, fact_lines, read_record
from camelid.formats.hf_config import HfDirectory
from camelid.model.sizes import count_parameters

NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")  # the number of a layer or an expert in a tensor's name
MAX_VALUE = 100  # printed characters of a setting
SECTIONS = ("config", "generation_config", "metadata")


@subcommand
@model_argument
@click.option("--tensors", "every", is_flag=True, help="List every tensor, not one row per kind.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object with every tensor; sizes in bytes."
)
def command(
    model: str, every: bool, as_json: bool,
    verbose: bool,  # noqa: ARG001 - `subcommand` reads it
) -> None:  # fmt: skip
    """List files, settings and tensors of a Hugging Face directory or a GGUF file. Reads headers only.

    Each tensor is listed with its GGUF name and load ops; "!" marks a tensor without a rule. For an
    unsupported model the reason is printed.
    """
    record = read_record(model)
    tensors = record.tensors()
    facts = inspect_facts(record, tensors)
    if as_json:
        click.echo(json.dumps(finite({**facts, "tensors": [asdict(t) for t in tensors]})))
        return
    for text in lines(facts, tensors, every=every):
        click.echo(text)


def inspect_facts(record: Record, tensors: list[TensorRecord]) -> Report:
    """The JSON object of --json without tensors; `used_parameters` excludes ignored and unused tensors."""
    model, source = record.file and record.file.model, record.source
    is_hf = isinstance(source, HfDirectory)
    return {
        "path": record.path,
        "format": "Hugging Face directory" if is_hf else f"GGUF version {source.header.version}",
        "model_type": source.config.get("model_type") if is_hf else None,
        "loads_as": model.spec.arch if model else None,
        "reason": record.error.message if record.error else None,
        "parameters": sum(t.n_values for t in tensors),
        "used_parameters": count_parameters(model.weights.values()) if model else None,
        **record.facts(tensors),
        "files": list(_files(Path(record.path) if is_hf else Path(record.path).parent, tensors)),
        **record.settings(),
    }


def _files(folder: Path, tensors: Iterable[TensorRecord]) -> Iterator[Report]:
    for name, n in sorted(Counter(t.file for t in tensors).items()):
        yield {"name": name, "bytes": (folder / name).stat().st_size, "tensors": n}


def finite(value: Any) -> Any:
    """The value with infinities and NaN as text: JSON lacks them, but some configs contain them."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in cast(Report, value).items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in cast(list[Any], value)]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def lines(facts: Mapping[str, Any], tensors: list[TensorRecord], *, every: bool) -> Iterator[str]:
    """The lines of facts, files, settings and tensors."""
    yield from fact_lines({name: facts[name] for name in facts if name not in ("files", *SECTIONS)})
    rows = ((printable(f["name"]), f"{f['tensors']:,} tensors", size(f["bytes"])) for f in facts["files"])
    yield from _section("files", rows)
    for name in SECTIONS:
        settings: Report = facts.get(name, {})
        rows = ((printable(key), " " + _cut(json.dumps(value))) for key, value in settings.items())
        yield from _section(name.replace("_", " "), rows)
    yield from _section("tensors", _tensor_rows(tensors, every=every))


def _section(title: str, rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    if texts := columns(rows):
        yield title
        yield from (f"  {text}" for text in texts)


def _cut(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= MAX_VALUE else shown[: MAX_VALUE - 3] + "..."


def _tensor_rows(tensors: list[TensorRecord], *, every: bool) -> Iterator[tuple[str, ...]]:
    """One row per tensor, or per group of tensors that differ only in numbers, with the group's count."""
    if every:
        yield from ((*_row(t), f"{t.n_bytes:,} bytes") for t in tensors)
        return
    counts = Counter(tuple(NUMBER.sub("*", text) for text in _row(t)) for t in tensors)
    yield from ((*row, f"{n:,} tensors" if n > 1 else "") for row, n in counts.items())


def _row(t: TensorRecord) -> tuple[str, ...]:
    mark = "! " if t.status == UNKNOWN else "  "
    to = f"-> {t.to}" if t.to != t.name else ""
    shape = "x".join(map(str, t.shape)) or "scalar"
    fate = printable(to if t.status == WEIGHT else t.status)
    return mark + printable(t.name), t.type, shape, fate, printable("; ".join(t.folds))
