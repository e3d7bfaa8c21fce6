"""Hub ids, and which files of a repository make a model. Pure: names in, names out.

`owner/repo`, `owner/repo:Q4_K_M`, `owner/repo:file.gguf`, `owner/repo@revision:Q4_K_M`, the same after
`hf://`, `hf.co/` or `https://huggingface.co/`, and the address of a page of the hub's website.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NoReturn
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
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
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
    """The files that make the model: one .gguf, or a directory's safetensors with what belongs to them.

    `listing` holds paths inside the repository that `place` names in messages. RequestError if nothing
    matches `quant`, UnsupportedModelError for split files and repositories without weights that can be read,
    ModelFormatError for names that leave the repository.
    """
    for name in listing:
        _check_name(name, place)
    ggufs = sorted(n for n in listing if n.lower().endswith(".gguf") and not _NOT_A_MODEL.search(n))
    if ggufs:
        name, note = _named(ggufs, quant, place) if quant else _preferred(ggufs, place)
        return Choice((_whole(name, place),), is_gguf=True, note=note)
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


def _named(ggufs: Sequence[str], quant: str, place: str) -> tuple[str, str]:
    """The file that a quant tag or a file's name means."""
    wanted = quant.upper()
    rules: tuple[Callable[[str], bool], ...] = (
        lambda n: n == quant,
        lambda n: PurePosixPath(n).name == quant,
        lambda n: n.upper() == wanted or PurePosixPath(n).name.upper() == wanted,
        lambda n: quant_tag(n) == wanted,
        lambda n: quant_tag(n).removeprefix("UD-") == wanted,
        lambda n: (
            re.search(rf"(?:^|[-._]){re.escape(wanted)}[-.]", PurePosixPath(n).name.upper()) is not None
        ),
    )
    for rule in rules:
        if found := _prefer_whole([n for n in ggufs if rule(n)]):
            if len(found) > 1 and not _SPLIT.search(found[0]):
                _ambiguous(found, quant, place)
            return found[0], ""
    raise RequestError(f"{place} has no {quant}; {_offer(ggufs)}", field="model", known=tuple(ggufs))


def _prefer_whole(names: list[str]) -> list[str]:
    return [n for n in names if not _SPLIT.search(n)] or names


def _ambiguous(found: Sequence[str], quant: str, place: str) -> NoReturn:
    raise RequestError(
        f"{place} has {len(found)} files for {quant}: {_few(found)}; name one of them after the colon",
        field="model", known=tuple(found),
    )  # fmt: skip


def _preferred(ggufs: list[str], place: str) -> tuple[str, str]:
    """The file taken when no quant is named, and the note that says so if there was a choice."""
    names = _prefer_whole(ggufs)
    tags = {tag: [n for n in names if quant_tag(n) == tag] for tag in map(quant_tag, names)}
    tag = next((t for p in PREFERRED for t in (p, f"UD-{p}") if t in tags), quant_tag(names[0]))
    if len(tags[tag]) > 1 and not _SPLIT.search(tags[tag][0]):
        _ambiguous(tags[tag], tag or "a file without a quant's name", place)
    name = tags[tag][0]
    return name, "" if len(ggufs) == 1 or tag == PREFERRED[0] else (
        f"{place} has no whole {PREFERRED[0]}; taking {name}"
    )


def _whole(name: str, place: str) -> str:
    split = _SPLIT.search(name)
    if split and int(split[2]) > 1:
        raise UnsupportedModelError(
            f"{place}: {name} is one of {int(split[2])} parts, which this version does not join; merge them "
            f"with `llama-gguf-split --merge FIRST_PART OUT.gguf` and give the path, or choose another quant",
            kind="format", name=name,
        )  # fmt: skip
    return name


def _offer(ggufs: Sequence[str]) -> str:
    tags = sorted({tag for n in ggufs if (tag := quant_tag(n))})
    return f"it has {', '.join(tags)}" if tags else f"its files are {_few(ggufs)}"


def _few(names: Sequence[str]) -> str:
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
        f"its weights are pickles ({_few(pickles)}), which can run code and are never loaded"
        if pickles and not weights
        else "its safetensors have no config.json beside them" if weights else f"it has {len(listing)} files"
    )  # fmt: skip
    raise UnsupportedModelError(
        f"{place} holds no model that Camelid can read: no .gguf file and no safetensors with a config.json; "
        f"{reason}",
        kind="format", name=place,
    )  # fmt: skip
