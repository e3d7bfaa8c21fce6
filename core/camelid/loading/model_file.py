"""Model names to headers and tokenizers: files, directories, hub ids, and sources of a page.

Reads are asynchronous byte ranges of a `ModelSource`, so a local file and a URL in a browser share one path.
Weights go from the source to the backend, not through this module.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from camelid.errors import ModelFormatError, RequestError, TensorShapeError, UnsupportedModelError
from camelid.formats.gguf import Gguf, fetch_gguf
from camelid.formats.hub.ids import HubId, parse_hub_id
from camelid.formats.progress import Progress
from camelid.formats.source import drive_async
from camelid.model.arch import Model
from camelid.model.checkpoint import Checkpoint, checkpoint_of_gguf, read_f32
from camelid.model.read import read_model
from camelid.model.shards import merge_shards, n_shards, shard_names
from camelid.model.spec import ModelSpec
from camelid.model.spec_reader import FACTOR_TENSORS
from camelid.model.vision.grid import image_rows
from camelid.model.vision.read import check_fits, read_tower
from camelid.model.vision.spec import Tower
from camelid.plan.weights import Weight, inline_f32
from camelid.text.tokenizers.source import TokenizerSource
from camelid.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from camelid.formats.hf_config import HfDirectory
    from camelid.formats.hub.fetch import Fetched

MMPROJ = "mmproj"  # source of an mmproj file's weights


class ModelSource(Protocol):
    """The bytes of a model. `handle` is the object that the backend's host reads weights from.

    `beside` opens another file of a model in several. It raises ModelFormatError if there is none.
    """

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def handle(self) -> Any: ...
    async def read(self, offset: int, length: int) -> bytes: ...
    async def beside(self, name: str) -> ModelSource: ...


@dataclass(frozen=True, slots=True)
class FileSource:
    """A local file."""

    path: Path
    size: int

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def handle(self) -> str:
        return str(self.path)

    async def read(self, offset: int, length: int) -> bytes:
        """Bytes at an offset; fewer at the file's end. Raises ModelFormatError if the file cannot be read."""
        try:
            with self.path.open("rb") as file:
                file.seek(offset)
                return file.read(length)
        except OSError as error:
            raise _unreadable(self.name, error) from error

    async def beside(self, name: str) -> ModelSource:
        """Another file of the same directory. Raises ModelFormatError if there is none."""
        return find_source(self.path.with_name(name))


ModelName: TypeAlias = str | PathLike[str] | ModelSource


def find_source(model: ModelName) -> ModelSource:
    """The source of a name: "cria", a path, or a source itself.

    Raises ModelFormatError if there is no such file or it cannot be looked up.
    """
    if not isinstance(model, str | PathLike):
        return model
    path = _cria() if model == "cria" else Path(fspath(model))
    try:
        size = path.stat().st_size if path.is_file() else None
    except OSError as error:  # a name too long, or a folder without permission
        raise _unreadable(str(model), error) from error
    if size is not None:
        return FileSource(path, size)
    raise _not_found(str(model))


def find_directory(model: ModelName) -> Path | None:
    """The directory of a name, or None. Raises ModelFormatError if it cannot be looked up."""
    if not isinstance(model, str | PathLike):
        return None
    path = Path(fspath(model))
    try:
        return path if path.is_dir() else None
    except OSError as error:
        raise _unreadable(str(model), error) from error


def _cria() -> Path:
    """The path of the included model."""
    path = files("camelid") / "data" / "cria.gguf"
    if isinstance(path, Path) and path.is_file():
        return path
    raise RequestError(
        "this installation has no cria.gguf, the model that 'cria' names; give the path of a .gguf file",
        field="model",
    )


def _unreadable(name: str, error: OSError) -> ModelFormatError:
    """The error of a file that cannot be read."""
    reason = error.strerror or type(error).__name__
    shown = name if len(name) <= 200 else name[:80] + "..."
    return ModelFormatError(f"{shown}: cannot be read: {reason}; is this the model's path?", path=name)


def _not_found(name: str) -> Exception:
    """The error of a name that is no file."""
    return ModelFormatError(
        f"{name}: there is no such file; expected a path, a hub id (owner/repo:QUANT), or 'cria'", path=name
    )


def find_hub_id(model: ModelName) -> HubId | None:
    """The hub id of a name, or None; a local path of that name comes first.

    Raises RequestError for a bad revision.
    """
    hub_id = parse_hub_id(model) if isinstance(model, str) else None
    return None if hub_id is None or Path(str(model)).exists() else hub_id


async def fetch_model(model: ModelName) -> ModelName:
    """The local path of a hub id, downloaded in a thread unless cached; any other name unchanged.

    Raises the errors of `formats.hub.fetch.fetch`, and RequestError in a browser.
    """
    return (await fetch_files(model))[0]


async def fetch_files(
    model: ModelName, *, with_mmproj: bool = False, progress: Progress | None = None
) -> tuple[ModelName, ModelName | None]:
    """As `fetch_model`; with the local path of the hub's mmproj file, or None."""
    hub_id = find_hub_id(model)
    if hub_id is None:
        return model, None
    fetched = await _fetched(hub_id, "open a downloaded .gguf file", progress, with_mmproj=with_mmproj)
    return fetched.path, fetched.mmproj


async def fetch_adapter_files(path: str, progress: Progress | None = None) -> str | Path:
    """The local path of an adapter's hub id, downloaded unless cached; any other path unchanged.

    Raises as `fetch_model`.
    """
    hub_id = find_hub_id(path)
    if hub_id is None:
        return path
    return (await _fetched(hub_id, "open its files", progress, is_adapter=True)).path


async def _fetched(hub_id: HubId, way_out: str, progress: Progress | None, **how: bool) -> Fetched:
    if sys.platform == "emscripten":
        raise RequestError(
            f"{hub_id}: a page cannot fetch a hub id; {way_out}, or give its address", field="model"
        )
    from camelid.formats.hub.fetch import afetch

    return await afetch(hub_id, progress=progress, **how)


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model whose header has been read and checked.

    `origins` are the sources of its weights, by name. `note` states the reason why it takes no images.
    """

    name: str
    n_bytes: int
    checkpoint: Checkpoint
    model: Model
    origins: Mapping[str, ModelSource]
    directory: HfDirectory | None = None
    tower: Tower | None = None
    note: str = ""

    @property
    def sources(self) -> dict[str, Any]:
        """The handles that a backend reads weights from."""
        return {name: origin.handle for name, origin in self.origins.items()}

    @property
    def gguf(self) -> Gguf:
        """The metadata and its getters; a directory's metadata is translated to GGUF keys."""
        return self.checkpoint.header

    @property
    def spec(self) -> ModelSpec:
        """The model's architecture facts."""
        return self.model.spec

    @property
    def template(self) -> str | None:
        """The chat template's text, or None."""
        return self.gguf.get("tokenizer.chat_template", str, default=None)

    def tokenizer_source(self) -> TokenizerSource | None:
        """The description of the file's tokenizer, or None without one."""
        if self.directory:
            n_rows = self.model.spec.vocab_size
            return tokenizer_source(self.directory, n_rows) if self.directory.tokenizer else None
        return TokenizerSource(self.gguf.metadata) if has_tokenizer(self.gguf) else None

    def tokenizer(self) -> Tokenizer | None:
        """The file's tokenizer, or None without one. Raises UnsupportedModelError, ModelFormatError."""
        source, n_rows = self.tokenizer_source(), self.model.spec.vocab_size
        if source is None:
            return None
        tokenizer = source.build()
        n_tokens = tokenizer.vocab_size
        if n_tokens != n_rows:
            raise ModelFormatError(
                f"{self.name}: the tokenizer has {n_tokens} tokens, but the embedding {n_rows} rows; "
                "is it another model's tokenizer?",
                path=self.name,
            )
        return tokenizer


def tokenizer_source(directory: HfDirectory, vocab_size: int | None) -> TokenizerSource:
    """The description of a directory's tokenizer. Raises ModelFormatError without one."""
    from camelid.loading.hf_directory import tokenizer_files  # a page has no directories

    if not directory.tokenizer:
        raise ModelFormatError(f"{directory.path}: there is no tokenizer.json", path=str(directory.path))
    return TokenizerSource(files=tokenizer_files(directory), vocab_size=vocab_size)


def has_tokenizer(gguf: Gguf) -> bool:
    """True if the file has a tokenizer; llama.cpp marks a file without one by "none" or "no_vocab"."""
    return gguf.metadata.get("tokenizer.ggml.model", "none") not in ("none", "no_vocab")


async def read_header(source: ModelSource) -> Gguf:
    """The source's GGUF header."""
    return await fetch_gguf(source.read, source.size, source.name)


async def open_model(
    model: ModelName,
    *,
    mmproj: ModelName | None = None,
    mmproj_auto: bool = False,
    progress: Progress | None = None,
) -> ModelFile:
    """Opens a model, which is a GGUF file, a directory or a hub id, and reads its headers but no weights.

    `mmproj` is the GGUF file of its vision tower; a directory has its own, and `mmproj_auto` fetches the one
    beside a hub id's file. `progress` receives the downloaded bytes of a hub id.
    """
    is_open = mmproj_auto and mmproj is None
    path, fetched = await fetch_files(model, with_mmproj=is_open, progress=progress)
    file = await _open_text(path)
    if fetched is not None:
        return await _with_fetched(file, fetched)
    return _with_rows(await _with_tower(file, mmproj) if mmproj is not None else file)


async def _with_fetched(file: ModelFile, mmproj: ModelName) -> ModelFile:
    """The model with the tower that nobody named; without it and with a note if the tower cannot be used."""
    try:
        return _with_rows(await _with_tower(file, mmproj))
    except (UnsupportedModelError, ModelFormatError, TensorShapeError) as error:
        return replace(_with_rows(file), note=f"no images: {error.message}")


async def _with_tower(file: ModelFile, mmproj: ModelName) -> ModelFile:
    """The model with the tower of an mmproj file. Raises RequestError if it has a tower already."""
    if file.tower:
        raise RequestError(f"{file.name} has a vision tower of its own; leave mmproj out", field="mmproj")
    source = find_source(mmproj)
    checkpoint = checkpoint_of_gguf(await read_header(source), source=MMPROJ)
    return replace(file, tower=read_tower(checkpoint), origins={**file.origins, MMPROJ: source})


def _with_rows(file: ModelFile) -> ModelFile:
    """The model with the rows of its tower's images. Raises ModelFormatError for another model's tower."""
    if file.tower is None:
        return file
    check_fits(file.tower, file.spec)
    return replace(file, model=replace(file.model, image_rows=image_rows(file.tower.spec)))


async def _open_text(model: ModelName) -> ModelFile:
    """The model without an mmproj file."""
    path = find_directory(model)
    if path is not None:
        return await _open_directory(path)
    source = find_source(model)
    header = await read_header(source)
    if n_shards(header) > 1:
        return await _open_shards(source, n_shards(header))
    checkpoint = checkpoint_of_gguf(header)
    read = await drive_async(read_model(checkpoint), source.read)
    return ModelFile(source.name, source.size, checkpoint, read, {"model": source})


async def _open_shards(source: ModelSource, count: int) -> ModelFile:
    """A model in several files; `source` is any of them."""
    names = shard_names(Path(source.name).name, count)
    sources = {name: await source.beside(name) for name in names}
    checkpoint = merge_shards({name: await read_header(source) for name, source in sources.items()})
    checkpoint = replace(checkpoint, tensors=await _with_facts(checkpoint.tensors, sources))
    model = await drive_async(read_model(checkpoint), _no_read)
    n_bytes = sum(source.size for source in sources.values())
    return ModelFile(sources[names[0]].name, n_bytes, checkpoint, model, sources)


async def _with_facts(tensors: Mapping[str, Weight], sources: Mapping[str, ModelSource]) -> dict[str, Weight]:
    """The tensors, with facts such as rope factors read and inlined.

    The parser reads by offset alone, so it cannot choose among several files.
    """
    read: dict[str, Weight] = {}
    for name in FACTOR_TENSORS:
        weight = tensors.get(f"{name}.weight")
        if weight is not None:
            numbers = await drive_async(read_f32(weight), sources[weight.parts[0].source].read)
            read[weight.name] = inline_f32(weight.name, numbers, weight.shape)
    return {**tensors, **read}


async def _open_directory(path: Path) -> ModelFile:
    """A model in a Hugging Face directory."""
    from camelid.formats.hf_config import open_hf  # a page has no directories
    from camelid.loading.hf_directory import checkpoint_of_directory
    from camelid.model.vision.hf import has_tower, text_part, tower_of_hf

    whole = open_hf(path)
    tower = read_tower(tower_of_hf(whole)) if has_tower(whole) else None
    directory = text_part(whole) if tower else whole
    checkpoint = checkpoint_of_directory(directory)
    model = await drive_async(read_model(checkpoint), _no_read)
    sources = {name: find_source(file) for name, file in directory.files.items()}
    return ModelFile(str(path), checkpoint.header.file_size, checkpoint, model, sources, directory, tower)


async def _no_read(offset: int, n_bytes: int) -> bytes:
    """Fails: the facts of shards and directories are inside their checkpoint."""
    raise ModelFormatError(
        f"{n_bytes} bytes at {offset} were requested, but no file is open; this is a defect"
    )


async def _first_header(source: ModelSource) -> Gguf:
    """The header with the metadata: for a model in several files, the first file's header."""
    header = await read_header(source)
    if n_shards(header) == 1:
        return header
    first = shard_names(Path(source.name).name, n_shards(header))[0]
    return await read_header(await source.beside(first))


async def open_tokenizer(model: ModelName) -> Tokenizer:
    """A model's tokenizer; a directory needs no weights for it.

    Raises ModelFormatError without a tokenizer.
    """
    model = await fetch_model(model)
    path = find_directory(model)
    if path is None:
        return TokenizerSource((await _first_header(find_source(model))).metadata).build()
    from camelid.formats.hf_config import open_hf

    directory = open_hf(path, with_weights=False)
    size = directory.settings.count("vocab_size") if directory.settings.has("vocab_size") else None
    return tokenizer_source(directory, size).build()
