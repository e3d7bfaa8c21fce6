"""Prompts given beside a log: JSON lines, matched to records by the hash of their token ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from camelid.api.llm import LLM
from camelid.errors import RequestError
from camelid.formats.json_text import parse_object
from camelid.witness.record import ids_sha256

KINDS = ("prompt_ids", "text", "messages")
# Request options that decide the token ids of a prompt, by the kind of prompt.
OPTIONS = {"prompt_ids": (), "text": ("special",), "messages": ("tools", "variables")}
OTHER = ("id", "hash", "constraint")


@dataclass(frozen=True, slots=True)
class GivenPrompt:
    """A prompt's token ids, and the constraint of its request if the line has one."""

    token_ids: tuple[int, ...]
    constraint: Mapping[str, Any] | None = None


def read_prompts(path: Path, llm: LLM) -> dict[str, GivenPrompt]:
    """The prompts of a file by the hash of their token ids.

    A line has `prompt_ids`, `text` (with `special`) or `messages` (with `tools` and `variables`), and may
    have `id` or `hash`, and the `constraint` as the request's option: {"json_schema": {...}}. Raises
    RequestError, ModelFormatError, and the errors of a prompt's encoding.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror}", field="prompts") from error
    places = (
        (f"{path} line {number}", line) for number, line in enumerate(lines, 1) if not line.isspace() and line
    )
    return dict(_given(place, parse_object(line, path=str(path), what=place), llm) for place, line in places)


def _given(place: str, entry: Mapping[str, Any], llm: LLM) -> tuple[str, GivenPrompt]:
    """The hash and the prompt of a line."""
    kind = _kind(place, entry)
    options = {name: entry[name] for name in OPTIONS[kind] if name in entry}
    token_ids = llm.request(entry[kind], **options).prompt_ids
    found, want = ids_sha256(token_ids), entry.get("hash")
    if want not in (None, found):
        raise RequestError(
            f"{place}: the token ids of its prompt have hash {found}, but the line states {want!r:.80}",
            field="prompts",
        )
    return found, GivenPrompt(token_ids, entry.get("constraint"))


def _kind(place: str, entry: Mapping[str, Any]) -> str:
    """The kind of prompt of a line. Raises RequestError for an unknown key, and without exactly one kind."""
    kinds = [kind for kind in KINDS if kind in entry]
    known = {*OTHER, *kinds, *(OPTIONS[kinds[0]] if kinds else ())}
    unknown = sorted(entry.keys() - known)
    if unknown or len(kinds) != 1:
        found = ", ".join(map(repr, unknown or kinds)) or "no prompt"
        raise RequestError(
            f"{place}: found {found:.200}, expected one of {', '.join(KINDS)}, with {', '.join(OTHER)}",
            field="prompts",
        )
    return kinds[0]
