"""Hub ids, and which files of a repository make a model. Pure: names in, names out.

`owner/repo`, `owner/repo:Q4_K_M`, `owner/repo:file.gguf`, `owner/repo@revision:Q4_K_M`, the same after
`hf://`, `hf.co/` or `https://huggingface.co/`, and the address of a page of the hub's website.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote

from camelid.errors import ModelFormatError, RequestError, UnsupportedModelError

MAX_NAME = 96  # what the hub allows for owner and repo
_NAME = r"[A-Za-z0-9](?:[\w.-]*\w)?"
_PREFIX = re.compile(
    r"(?:hf://(?:models/)?|(?:https?://)?(?:www\.)?(?:hf\.co|huggingface\.co)/)", re.IGNORECASE
)
_ID = re.compile(rf"({_NAME})/({_NAME})(?:@([^:@\s]+))?(?::(\S.*))?", re.ASCII)
_PAGE = re.compile(rf"({_NAME})/({_NAME})/(?:tree|blob|resolve)/([^/?#]+)(?:/([^?#]+))?(?:[?#].*)?", re.ASCII)
_IN_REPO = re.compile(
    rf"({_NAME})/({_NAME})(?:@([^:@/\s]+))?/(?!(?:blob|resolve)/)([^?#]+\.gguf)", re.ASCII
)  # hf://o/r@rev/f.gguf
_REVISION = re.compile(r"[\w+][\w./+-]*", re.ASCII)
# A quant tag stands between separators in a file's name; unsloth's UD- is part of the tag.
_TAG = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|F16|F32|MXFP4(?:_MOE)?|NVFP4))(?=[-._/]|$)",
    re.IGNORECASE,
)
# One of several files of a model. A "-00001-of-00001" is whole.
_PART = re.compile(r"(.*-)\d{5}(-of-(?!0000[01])(\d{5})\.gguf)", re.IGNORECASE | re.ASCII | re.DOTALL)
_NOT_A_MODEL = re.compile(r"(?:^|[-._/])(?:mmproj|imatrix)(?:[-._/]|$)", re.IGNORECASE)
# Taken in this order when a hub id names no quant: quality for its size, as other runtimes choose.
PREFERRED = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q5_K_S", "Q6_K", "Q8_0", "Q3_K_M", "BF16", "F16", "F32")
# What a directory of safetensors needs besides its weights. Never .bin or .pt: pickles are code.
_WITH_WEIGHTS = re.compile(
    r"(?:config|generation_config|tokenizer[\w.-]*|special_tokens_map|added_tokens|vocab)\.json"
    r"|tokenizer\.model|merges\.txt|chat_template\.(?:json|jinja)|[\w.-]+\.safetensors\.index\.json"
)
_SHARD = re.compile(r"model(?:-\d{5}-of-\d{5})?\.safetensors")
_PICKLE = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@dataclass(frozen=True, slots=True)
class HubId:
    """A model on a hub. `quant` is a tag such as Q4_K_M, or a file's name."""

    owner: str
    repo: str
    quant: str | None = None
    revision: str | None = None

    @property
    def name(self) -> str:
        """`owner/repo`."""
        return f"{self.owner}/{self.repo}"

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{self.name}{revision}" + (f":{self.quant}" if self.quant else "")


@dataclass(frozen=True, slots=True)
class Choice:
    """The files to fetch, and what a person should be told about the choice."""

    files: tuple[str, ...]
    is_gguf: bool
    note: str = ""


def parse_hub_id(text: str) -> HubId | None:
    """The hub id that a text is, or None: `models/x.gguf` without a prefix is a path.

    RequestError for a revision that no repository can have.
    """
    prefix = _PREFIX.match(text)
    rest = text[prefix.end() :].removesuffix("/") if prefix else text
    found = (prefix and (_IN_REPO.fullmatch(rest) or _PAGE.fullmatch(rest))) or _ID.fullmatch(rest)
    if not found:
        return None
    owner, repo, revision, quant = found.groups()
    if not prefix and not quant and repo.lower().endswith((".gguf", ".safetensors")):
        return None
    if max(len(owner), len(repo)) > MAX_NAME or any(bad in f"{owner}/{repo}" for bad in ("..", "--")):
        return None
    return HubId(owner, repo, unquote(quant) if quant else None, check_revision(unquote(revision or "")))


def check_revision(revision: str | None) -> str | None:
    """A branch, tag or commit, which becomes a path in the cache; None for none. RequestError if unusable."""
    if not revision:
        return None
    if not _REVISION.fullmatch(revision) or ".." in revision or revision.endswith("/") or len(revision) > 255:
        raise RequestError(
            f"revision {revision[:80]!r} cannot be the name of a branch, tag or commit", field="revision"
        )
    return revision


def choose_files(listing: Collection[str], quant: str | None, *, place: str) -> Choice:
    """The files that make the model: one .gguf or all its parts, or safetensors and what belongs to them.

    `listing` holds paths inside the repository that `place` names in messages; of a model in parts it may
    lack some. RequestError if nothing matches `quant`, UnsupportedModelError for repositories without weights
    that can be read, ModelFormatError for names that leave the repository.
    """
    for name in listing:
        _check_name(name, place)
    ggufs = sorted(n for n in listing if n.lower().endswith(".gguf") and not _NOT_A_MODEL.search(n))
    if ggufs:
        models = list(dict.fromkeys(map(_first_part, ggufs)))
        name, note = (_named(models, quant, place), "") if quant else _preferred(models, place)
        return Choice(_parts(name), is_gguf=True, note=note)
    if quant:
        raise RequestError(
            f"{place} holds no .gguf files, so there is no {quant} to choose; leave out ':{quant}'",
            field="model",
        )
    return _directory(sorted(listing), place)


def quant_tag(name: str) -> str:
    """The tag in a file's name, in capitals; empty if there is none. The last one counts."""
    tags = _TAG.findall(PurePosixPath(name).name) or _TAG.findall(name)
    return tags[-1].upper() if tags else ""


def is_safe(name: str) -> bool:
    """Whether a path from a listing stays inside its folder, on any system."""
    parts = name.split("/")
    return name.isprintable() and not set("\\:") & set(name) and not {"", ".", ".."} & set(parts)


def _check_name(name: str, place: str) -> None:
    if not is_safe(name):
        raise ModelFormatError(
            f"{place} lists a file named {name[:80]!r}, which is not inside its folder; nothing was fetched",
            path=name,
        )


def _first_part(name: str) -> str:
    """What stands for a model: its only file, or the first of its parts."""
    part = _PART.fullmatch(name)
    return f"{part[1]}00001{part[2]}" if part else name


def _parts(first: str) -> tuple[str, ...]:
    part = _PART.fullmatch(first)
    return tuple(f"{part[1]}{i + 1:05d}{part[2]}" for i in range(int(part[3]))) if part else (first,)


def _named(models: Sequence[str], quant: str, place: str) -> str:
    """The model that a quant tag or a file's name means."""
    file, wanted = _first_part(quant), _first_part(quant).upper()
    rules: tuple[Callable[[str], bool], ...] = (
        lambda n: n == file,
        lambda n: PurePosixPath(n).name == file,
        lambda n: n.upper() == wanted or PurePosixPath(n).name.upper() == wanted,
        lambda n: quant_tag(n) == wanted,
        lambda n: quant_tag(n).removeprefix("UD-") == wanted,
        lambda n: (
            re.search(rf"(?:^|[-._]){re.escape(wanted)}[-.]", PurePosixPath(n).name.upper()) is not None
        ),
    )
    for rule in rules:
        if found := [n for n in models if rule(n)]:
            return _only(found, quant, place)
    raise RequestError(f"{place} has no {quant}; {_offer(models)}", field="model", known=tuple(models))


def _only(names: list[str], quant: str, place: str) -> str:
    """The one model for a quant; a whole file counts before the same in parts."""
    found = [n for n in names if not _PART.fullmatch(n)] or names
    if len(found) == 1:
        return found[0]
    raise RequestError(
        f"{place} has {len(found)} files for {quant}: {few(found)}; name one of them after the colon",
        field="model", known=tuple(found),
    )  # fmt: skip


def _preferred(models: list[str], place: str) -> tuple[str, str]:
    """The model taken when no quant is named, and the note that says so if there was a choice."""
    tags = {tag: [n for n in models if quant_tag(n) == tag] for tag in map(quant_tag, models)}
    tag = next((t for p in PREFERRED for t in (p, f"UD-{p}") if t in tags), quant_tag(models[0]))
    name = _only(tags[tag], tag or "a file without a quant's name", place)
    return name, "" if len(models) == 1 or tag == PREFERRED[0] else (
        f"{place} has no {PREFERRED[0]}; taking {name}"
    )


def _offer(ggufs: Sequence[str]) -> str:
    tags = sorted({tag for n in ggufs if (tag := quant_tag(n))})
    return f"it has {', '.join(tags)}" if tags else f"its files are {few(ggufs)}"


def few(names: Sequence[str]) -> str:
    """Names for a message; past eight, how many more."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def _directory(listing: Sequence[str], place: str) -> Choice:
    """A repository of safetensors: files at its root. Weights in other layouts beside them are left out."""
    root = [n for n in listing if "/" not in n]
    weights = [n for n in root if _SHARD.fullmatch(n)] or [n for n in root if n.endswith(".safetensors")]
    if weights and "config.json" in root:
        beside = [n for n in root if _WITH_WEIGHTS.fullmatch(n)]
        return Choice((*beside, *weights), is_gguf=False)
    pickles = [n for n in root if n.endswith(_PICKLE)]
    reason = (
        f"its weights are pickles ({few(pickles)}), which can run code and are never loaded"
        if pickles and not weights
        else "its safetensors have no config.json beside them" if weights else f"it has {len(listing)} files"
    )  # fmt: skip
    raise UnsupportedModelError(
        f"{place} holds no model that Camelid can read: no .gguf file and no safetensors with a config.json; "
        f"{reason}",
        kind="format", name=place,
    )  # fmt: skip
