"""Hub ids, and the choice of a model's files in a repository. Pure functions over names.

Accepted ids: `owner/repo`, `owner/repo:Q4_K_M`, `owner/repo:file.gguf`, `owner/repo@revision:Q4_K_M`; the
same after `hf://`, `hf.co/` or `https://huggingface.co/`; and addresses of the website's pages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote

from camelid.errors import ModelFormatError, RequestError, UnsupportedModelError

HUB = "https://huggingface.co"
_NAME = r"(?![\w.-]*(?:\.\.|--))[A-Za-z0-9](?:[\w.-]{0,94}\w)?"  # the hub's rules for names
_PREFIX = re.compile(r"(?:hf://(?:models/)?|(?:https?://)?(?:www\.)?(?:hf\.co|huggingface\.co)/)", re.I)
_ID = re.compile(rf"({_NAME})/({_NAME})(?:@([^:@\s]+))?(?::(\S.*))?", re.ASCII)
_PAGE = re.compile(rf"({_NAME})/({_NAME})/(?:tree|blob|resolve)/([^/?#]+)(?:/([^?#]+))?(?:[?#].*)?", re.ASCII)
_FILE = re.compile(rf"({_NAME})/({_NAME})(?:@([^:@/\s]+))?/([^?#]+\.gguf)", re.ASCII)  # hf://o/r@rev/f.gguf
_REVISION = re.compile(r"(?!.*\.\.)[\w+](?:[\w./+-]{0,253}[\w.+-])?", re.ASCII)
# A quant tag between separators in a file's name; unsloth's UD- is part of the tag.
_TAG = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|F16|F32|MXFP4(?:_MOE)?|NVFP4))(?=[-._/]|$)",
    re.I,
)
# A part of a split model. A file "-00001-of-00001" is complete, not a part.
_PART = re.compile(r"(.*-)\d{5}(-of-(?!0000[01])(\d{5})\.(?:gguf|safetensors))", re.I | re.ASCII | re.DOTALL)
_NOT_A_MODEL = re.compile(r"(?:^|[-._/])(?:mmproj|imatrix)(?:[-._/]|$)", re.I)
_MMPROJ = re.compile(r"(?:^|[-._/])mmproj(?:[-._/]|$)", re.I)
# Default quants, best first by quality for size, as in other runtimes.
PREFERRED = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q5_K_S", "Q6_K", "Q8_0", "Q3_K_M", "BF16", "F16", "F32")
PREFERRED_MMPROJ = ("F16", "BF16", "F32", "Q8_0")  # a tower is small beside its model
# Files that are fetched beside safetensors. Never .bin or .pt: loading a pickle runs code.
_WITH_WEIGHTS = re.compile(
    r"(?:config|generation_config|tokenizer[\w.-]*|special_tokens_map|added_tokens|vocab)\.json"
    r"|tokenizer\.model|merges\.txt|chat_template\.(?:json|jinja)|[\w.-]+\.safetensors\.index\.json"
    r"|additional_chat_templates/[^/]+\.jinja|(?:pre)?processor_config\.json"
    r"|modules\.json|config_sentence_transformers\.json|sentence_[\w-]+_config\.json|README\.md"
)
_SHARD = re.compile(r"model(?:-\d{5}-of-\d{5})?\.safetensors")
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", ("adapter_model.safetensors", "adapters.safetensors")
ADAPTER_PICKLE = "adapter_model.bin"
_PICKLE = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@dataclass(frozen=True, slots=True)
class HubId:
    """A model on a hub. `quant` is a tag such as Q4_K_M, a file name, or a word in a file's path."""

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


def parse_hub_id(text: str) -> HubId | None:
    """Parses a hub id; None if the text is not a hub id. `owner/x.gguf` without a prefix is a local path.

    Raises RequestError for an invalid revision.
    """
    prefix = _PREFIX.match(text)
    rest = text[prefix.end() :].removesuffix("/") if prefix else text
    found = (prefix and (_PAGE.fullmatch(rest) or _FILE.fullmatch(rest))) or _ID.fullmatch(rest)
    if not found:
        return None
    owner, repo, revision, quant = (part and unquote(part) for part in found.groups())
    if not prefix and not quant and repo.lower().endswith((".gguf", ".safetensors")):
        return None
    if revision and not _REVISION.fullmatch(revision):
        text = f"invalid revision {revision[:80]!r}; expected a branch, tag or commit"
        raise RequestError(text, field="revision")
    return HubId(owner, repo, quant, revision)


def choose_files(
    listing: Collection[str], quant: str | None, *, repository: str
) -> tuple[tuple[str, ...], str]:
    """Chooses the files of a model: one .gguf or all its parts, or safetensors and the files beside them.

    Returns the files, and a note for the user about a default quant (empty without a note). `listing` has
    the paths in the repository. It may lack parts of the model; they are still returned. `repository` is the
    name in messages. Raises RequestError if not exactly one model matches, UnsupportedModelError for a
    repository without readable weights, ModelFormatError for an unsafe file name.
    """
    for name in listing:
        _check_name(name, repository)
    ggufs = sorted(n for n in listing if _is_gguf(n) and not _NOT_A_MODEL.search(n))
    if ggufs:
        models = list(dict.fromkeys(map(_first_part, ggufs)))
        name, note = (_named(models, quant, repository), "") if quant else _preferred(models, repository)
        return _parts(name), note
    if quant:
        text = f"{repository} has no .gguf files, so there is no {quant} to choose; leave out ':{quant}'"
        raise RequestError(text, field="model")
    return _directory(sorted(listing), repository), ""


def choose_adapter(listing: Collection[str], quant: str | None, *, repository: str) -> tuple[str, ...]:
    """Chooses the files of a LoRA adapter: a .gguf file, or PEFT's or mlx-lm's safetensors with settings.

    Raises as `choose_files`.
    """
    for name in listing:
        _check_name(name, repository)
    weights = next((name for name in ADAPTER_WEIGHTS if name in listing), "")
    if weights and ADAPTER_CONFIG in listing and not quant:
        return ADAPTER_CONFIG, weights
    ggufs = sorted(n for n in listing if _is_gguf(n) and not (_NOT_A_MODEL.search(n) or _PART.fullmatch(n)))
    if ggufs:
        return (_named(ggufs, quant, repository) if quant else _only(ggufs, "of adapters", repository),)
    if quant:
        text = f"{repository} has no .gguf files, so there is no {quant} to choose; leave out ':{quant}'"
        raise RequestError(text, field="adapter")
    reason = f"it has neither {ADAPTER_CONFIG} with {' or '.join(ADAPTER_WEIGHTS)}, nor a .gguf file"
    if ADAPTER_PICKLE in listing:
        reason = f"{ADAPTER_PICKLE} is a pickle, which can run code and is never loaded"
    raise UnsupportedModelError(
        f"{repository} has no readable adapter: {reason}", kind="format", name=repository
    )


def choose_mmproj(listing: Collection[str], model: str, *, repository: str) -> tuple[str | None, str]:
    """Chooses the mmproj file of a model, which is one of the files of `choose_files`.

    Of the files in the model's folder and the folders above, as in llama.cpp, the nearest; of several, by
    `PREFERRED_MMPROJ`. Returns None for a directory and if there is none, and a note for the user if names
    alone decide.
    """
    above = PurePosixPath(model).parents
    found = [n for n in sorted(listing) if _is_mmproj(n) and PurePosixPath(n).parent in above]
    if not found or not _is_gguf(model):
        return None, ""
    ranks = [_mmproj_rank(name) for name in found]
    best = [name for name, rank in zip(found, ranks, strict=True) if rank == min(ranks)]
    note = f"{repository} has the mmproj files {abbreviated(best)}; using {best[0]}"
    return best[0], note if len(best) > 1 else ""


def _mmproj_rank(name: str) -> tuple[int, int]:
    """The nearest folder comes first, then the preferred type."""
    tag = quant_tag(name)
    kind = PREFERRED_MMPROJ.index(tag) if tag in PREFERRED_MMPROJ else len(PREFERRED_MMPROJ)
    return -name.count("/"), kind


def _is_mmproj(name: str) -> bool:
    return _is_gguf(name) and bool(_MMPROJ.search(name))


def _is_gguf(name: str) -> bool:
    return name.lower().endswith(".gguf")


def quant_tag(name: str) -> str:
    """The last quant tag in a file's name, else in its path, in capitals; empty if there is none."""
    tags = _TAG.findall(PurePosixPath(name).name) or _TAG.findall(name)
    return tags[-1].upper() if tags else ""


def abbreviated(names: Sequence[str]) -> str:
    """Names for a message: the first eight, and the number of the others."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def _check_name(name: str, repository: str) -> None:
    """Raises ModelFormatError for an unprintable name, or a path that may leave the repository's folder."""
    parts = name.split("/")
    if not name.isprintable() or set("\\:") & set(name) or {"", ".", ".."} & set(parts):
        text = f"{repository} lists the file name {name[:80]!r}, which is unsafe; nothing was fetched"
        raise ModelFormatError(text, path=name)


def _first_part(name: str) -> str:
    part = _PART.fullmatch(name)
    return f"{part[1]}00001{part[2]}" if part else name


def _parts(first: str) -> tuple[str, ...]:
    part = _PART.fullmatch(first)
    return tuple(f"{part[1]}{i + 1:05d}{part[2]}" for i in range(int(part[3]))) if part else (first,)


def _named(models: Sequence[str], quant: str, repository: str) -> str:
    """The model that matches `quant`: a file name, a quant tag, or another word in a file's path."""
    target = _first_part(quant).upper()
    word = re.compile(rf"(?:^|[-._/]){re.escape(target)}[-./]")
    found = (
        [n for n in models if target in (n.upper(), PurePosixPath(n).name.upper())]
        or [n for n in models if quant_tag(n) == target]
        or [n for n in models if word.search(n.upper())]
    )
    if found:
        return _only(found, f"for {quant}", repository)
    tags = sorted({tag for n in models if (tag := quant_tag(n))})
    available = f"it has {', '.join(tags)}" if tags else f"its files are {abbreviated(models)}"
    raise RequestError(f"{repository} has no {quant}; {available}", field="model", known=tuple(models))


def _only(names: list[str], selection: str, repository: str) -> str:
    """The only model of a selection; a complete file takes precedence over parts.

    Raises RequestError if several models remain.
    """
    found = [n for n in names if not _PART.fullmatch(n)] or names
    if len(found) == 1:
        return found[0]
    files = f"{len(found)} files {selection}: {abbreviated(found)}"
    text = f"{repository} has {files}; name one file after the colon"
    raise RequestError(text, field="model", known=tuple(found))


def _preferred(models: list[str], repository: str) -> tuple[str, str]:
    """The default model, and a note if several models exist and none is Q4_K_M."""
    tags = {tag: [n for n in models if quant_tag(n) == tag] for tag in map(quant_tag, models)}
    tag = next((t for p in PREFERRED for t in (p, f"UD-{p}") if t in tags), quant_tag(models[0]))
    name = _only(tags[tag], f"for {tag}" if tag else "without a quant tag", repository)
    if len(models) == 1 or tag == PREFERRED[0]:
        return name, ""
    return name, f"{repository} has no {PREFERRED[0]}; using {name}"


def _directory(listing: Sequence[str], repository: str) -> tuple[str, ...]:
    """The safetensors at the repository's root with all their shards, and the settings beside them.

    The folders of a `modules.json` are not among them: its text names them.
    """
    root = [n for n in listing if "/" not in n]
    weights = [n for n in root if _SHARD.fullmatch(n)] or [n for n in root if n.endswith(".safetensors")]
    if weights and "config.json" in root:
        shards = dict.fromkeys(part for n in weights for part in _parts(_first_part(n)))
        return (*(n for n in listing if _WITH_WEIGHTS.fullmatch(n)), *shards)
    if weights:
        reason = "its safetensors have no config.json beside them"
    elif pickles := [n for n in root if n.endswith(_PICKLE)]:
        reason = f"its weights are pickles ({abbreviated(pickles)}), which can run code and are never loaded"
    else:
        reason = "it has neither a .gguf model nor safetensors"
    raise UnsupportedModelError(
        f"{repository} has no readable model: {reason}", kind="format", name=repository
    )
