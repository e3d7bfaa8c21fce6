"""Adapters that a model has from its start: their files, names and scales."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TypeAlias

from camelid.errors import RequestError, shown
from camelid.formats.hub.ids import parse_hub_id

MOST_FILES = 1024  # of one model
SCALE = re.compile(r"[+-]?(?:[0-9]{1,9}(?:\.[0-9]{0,99})?|\.[0-9]{1,99})(?:[eE][+-]?[0-9]{1,2})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraFile:
    """An adapter's file, directory or GGUF, and its name in requests.

    `scale` is that of requests that name it without a scale, `applied` that of requests that name no adapter:
    0 for none.
    """

    path: str
    name: str
    scale: float = 1.0
    applied: float = 0.0


LoraName: TypeAlias = LoraFile | str | PathLike[str]


def lora_files(given: Iterable[LoraName]) -> tuple[LoraFile, ...]:
    """The files of paths, which apply to all requests by default, and of `LoraFile`s, with different names.

    Raises RequestError for two of one name, and for too many.
    """
    found: dict[str, LoraFile] = {}
    for each in given:
        path = "" if isinstance(each, LoraFile) else path_of(each)
        file = each if isinstance(each, LoraFile) else LoraFile(path=path, name=stem(path), applied=1.0)
        if file.name in found:
            raise RequestError(
                f"two adapters have the name {shown(file.name)}: {found[file.name].path} and {file.path}; "
                "give one a name of its own",
                field="lora",
            )
        found[file.name] = file
    if len(found) > MOST_FILES:
        raise RequestError(f"{len(found)} adapters are given, at most {MOST_FILES} are loaded", field="lora")
    return tuple(found.values())


def scaled_files(words: Iterable[str], *, applies: bool = True) -> list[LoraFile]:
    """The adapters of FILE or FILE:SCALE, named by their files; those of one name are numbered."""
    pairs = [scaled_path(word) for word in words]
    names = numbered([stem(path) for path, _ in pairs])
    return [
        LoraFile(path=path, name=name, scale=scale or 1.0, applied=scale if applies else 0.0)
        for name, (path, scale) in zip(names, pairs, strict=True)
    ]


def scaled_path(word: str) -> tuple[str, float]:
    """Path and scale of FILE:SCALE; a file whose name ends so has the scale 1."""
    path, colon, text = word.rpartition(":")
    if colon and path and SCALE.fullmatch(text) and not Path(word).exists():
        return path, float(text)
    return word, 1.0


def path_of(given: str | PathLike[str]) -> str:
    """A path as text; a path object becomes absolute, since it is never a hub id."""
    return given if isinstance(given, str) else str(Path(fspath(given)).absolute())


def stem(path: str) -> str:
    """The name of an adapter: of its file or directory, of a hub id the repository's or its file's."""
    hub_id = None if Path(path).exists() else parse_hub_id(path)
    if hub_id:
        quant = hub_id.quant or ""
        return Path(quant).stem if quant.endswith(".gguf") else hub_id.repo
    name = Path(path).name or Path(path).resolve().name
    return name.removesuffix(".gguf")


def numbered(names: Sequence[str]) -> Iterator[str]:
    """The names, each that came before with a number behind it."""
    seen: set[str] = set()
    for name in names:
        number, own = 2, name
        while own in seen or (own != name and own in names):
            own, number = f"{name}-{number}", number + 1
        seen.add(own)
        yield own
