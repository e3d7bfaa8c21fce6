"""Prompts given beside a log: JSON lines, matched to records by the hash of their token ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from camelid.api.llm import LLM
from camelid.errors import RequestError
from camelid.formats.json_text import parse_object
from camelid.requests.options import constraint_option
from camelid.witness.chain import canonical, sha256
from camelid.witness.record import ids_sha256

KINDS = ("prompt_ids", "text", "messages")
# Request options that decide the token ids of a prompt or the grammar of its calls, by the kind of prompt.
OPTIONS = {
    "prompt_ids": (),
    "text": ("special",),
    "messages": ("tools", "variables", "tool_choice", "parallel_tool_calls"),
}
OTHER = ("id", "hash", "constraint")


@dataclass(frozen=True, slots=True)
class GivenPrompt:
    """A prompt's token ids, and the constraints of its requests by hash."""

    token_ids: tuple[int, ...]
    constraints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    @classmethod
    def of(cls, token_ids: tuple[int, ...], constraint: Mapping[str, Any] | None) -> GivenPrompt:
        """The prompt of one request, which may have a constraint."""
        return cls(token_ids, {sha256(canonical(constraint)): constraint} if constraint else {})


def read_prompts(path: Path, llm: LLM) -> dict[str, GivenPrompt]:
    """The prompts of a file by the hash of their token ids.

    A line has `prompt_ids`, `text` (with `special`) or `messages` (with `tools`, `variables`, `tool_choice`
    and `parallel_tool_calls`), and may have `id` or `hash`, and the `constraint` as the request's option:
    {"json_schema": {...}}. Lines of one prompt may have several constraints. Raises RequestError,
    ModelFormatError, and the errors of a prompt's encoding.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror}", field="prompts") from error
    places = (
        (f"{path} line {number}", line) for number, line in enumerate(lines, 1) if not line.isspace() and line
    )
    found: dict[str, GivenPrompt] = {}
    for place, line in places:
        key, prompt = _given(place, parse_object(line, path=str(path), what=place), llm)
        before = found.get(key, prompt)
        found[key] = GivenPrompt(prompt.token_ids, {**before.constraints, **prompt.constraints})
    return found


def _given(place: str, entry: Mapping[str, Any], llm: LLM) -> tuple[str, GivenPrompt]:
    """The hash and the prompt of a line."""
    kind = _kind(place, entry)
    options = {name: entry[name] for name in OPTIONS[kind] if name in entry}
    request = llm.request(entry[kind], **options)
    found, want = ids_sha256(request.read_ids), entry.get("hash")
    if want not in (None, found):
        raise RequestError(
            f"{place}: the token ids of its prompt have hash {found}, but the line states {want!r:.80}",
            field="prompts",
        )
    constraint = entry.get("constraint") or constraint_option(request.constraint)
    return found, GivenPrompt.of(request.read_ids, constraint)


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
