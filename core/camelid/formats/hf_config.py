"""Hugging Face model directories: settings, tokenizer files, and the file and offset of each tensor.

Only headers of weight files are read, one file open at a time. Code in a directory is never run, and pickles
are refused by name. Files are looked up in the directory's listing; names stated in files are never joined to
a path.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import NoReturn, cast

from camelid.errors import UnsupportedModelError
from camelid.formats.hf_weights import HfTensor, is_plain, list_tensors
from camelid.formats.json_text import JsonObject, parse_object, shown
from camelid.formats.sentence_transformers import EmbeddingFiles, read_embedding
from camelid.formats.settings import Config
from camelid.formats.source import format_error, located, read_small

__all__ = ["Config", "HfDirectory", "HfTensor", "open_hf"]

MIB = 1 << 20
MAX_TEMPLATE_BYTES = 4 * MIB
MAX_TEMPLATES = 64
TEMPLATE = "chat_template.jinja"
MORE_TEMPLATES = "additional_chat_templates"
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class JsonFile:
    """A settings file: its name, its size limit, and a flag that allows NaN and Infinity."""

    name: str
    max_bytes: int
    allow_infinity: bool = False


CONFIG = JsonFile("config.json", 16 * MIB, allow_infinity=True)  # mamba2's time_step_limit is [0.0, Infinity]
GENERATION = JsonFile("generation_config.json", MIB)
TOKENIZER = JsonFile("tokenizer.json", 64 * MIB)  # the largest known file has 35 MiB
TOKENIZER_CONFIG = JsonFile("tokenizer_config.json", 64 * MIB)
TEMPLATE_JSON = JsonFile("chat_template.json", MAX_TEMPLATE_BYTES)
PREPROCESSOR = JsonFile("preprocessor_config.json", MIB)
PROCESSOR = JsonFile("processor_config.json", MIB)
SPECIAL_TOKENS = JsonFile("special_tokens_map.json", MIB)
# Name endings of pickles. Loading a pickle runs code.
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin.index.json")


@dataclass(frozen=True, slots=True)
class HfDirectory:
    """The contents of a directory. The settings of an absent file are {}.

    `preprocessor` are the settings of the image processor. `tensors[...].file` is a key of `files`.
    `chat_templates` are by name; the default template is "default".
    """

    path: Path
    config: JsonObject
    generation: JsonObject
    tokenizer: JsonObject
    tokenizer_config: JsonObject
    special_tokens: JsonObject
    preprocessor: JsonObject
    chat_templates: dict[str, str]
    files: dict[str, Path]
    tensors: dict[str, HfTensor]
    embedding: EmbeddingFiles = field(default_factory=EmbeddingFiles)

    @property
    def chat_template(self) -> str | None:
        """The default chat template, None if absent."""
        return self.chat_templates.get(DEFAULT)

    @property
    def settings(self) -> Config:
        """config.json with getters that check types; their errors name the file."""
        return Config(self.config, str(self.path / CONFIG.name))


def open_hf(directory: str | PathLike[str], *, with_weights: bool = True) -> HfDirectory:
    """Reads the settings of a directory and the headers of its safetensors files.

    Without `with_weights`, config.json and weights are optional: a tokenizer alone is enough. Raises
    ModelFormatError with the file's name if a file is missing, malformed or too large, and if the shards
    disagree with their index; UnsupportedModelError for pickles, adapters and unknown dtypes.
    """
    path = Path(fspath(directory))
    files = _list(path)
    tensors = list_tensors(path, files) if with_weights else {}
    if with_weights and (not tensors or CONFIG.name not in files):
        _refuse(path, files)
    tokenizer_config = _read_json(files, TOKENIZER_CONFIG)
    embedding = read_embedding(path, files) if with_weights else EmbeddingFiles()
    return HfDirectory(
        path=path,
        config=_read_json(files, CONFIG),
        generation=_read_json(files, GENERATION),
        tokenizer=_read_json(files, TOKENIZER),
        tokenizer_config=tokenizer_config,
        special_tokens=_read_json(files, SPECIAL_TOKENS),
        preprocessor=_preprocessor(files),
        chat_templates=_chat_templates(path, files, tokenizer_config),
        files={**files, **embedding.files},
        tensors=tensors,
        embedding=embedding,
    )


def _list(path: Path) -> dict[str, Path]:
    """Files of the directory by name. Links are followed: in the hub's cache each name is a link."""
    try:
        entries = sorted(path.iterdir())
        return {entry.name: entry for entry in entries if is_plain(entry.name) and entry.is_file()}
    except FileNotFoundError:
        raise format_error(str(path), "there is no such directory") from None
    except NotADirectoryError:
        raise format_error(str(path), "this is a file; a model's directory is expected") from None
    except OSError as error:
        raise format_error(str(path), f"the directory cannot be read: {error.strerror or error}") from error


def _refuse(path: Path, files: dict[str, Path]) -> NoReturn:
    """Raises the error of a directory without a complete model; the message names the files found instead."""
    if found := [name for name in files if name.endswith(".gguf")]:
        _fail(path, f"this directory has GGUF files; give the path of a file, such as {path / found[0]}")
    if "adapter_config.json" in files:
        message = "this is an adapter (adapter_config.json), not a model; give its base model's directory"
        raise _unsupported(path, message, "adapter_config.json")
    if found := [name for name in files if name.endswith(PICKLES)]:
        message = f"{found[0]} is a pickle, which can run code, and is never read; convert it to safetensors"
        raise _unsupported(path, message, found[0])
    if CONFIG.name not in files:
        _fail(path, f"there is no config.json; a model's directory has it beside the weights{_found(files)}")
    _fail(path, f"there is neither model.safetensors nor model.safetensors.index.json{_found(files)}")


def _found(files: dict[str, Path]) -> str:
    names = ", ".join(list(files)[:5])
    return f"; found {names}" + (" and others" if len(files) > 5 else "") if files else "; it is empty"


def _unsupported(path: Path, message: str, name: str) -> UnsupportedModelError:
    known = ("safetensors",)
    return UnsupportedModelError(
        located(str(path), message), kind="format", name=name, known=known, path=str(path)
    )


def _read_json(files: dict[str, Path], row: JsonFile) -> JsonObject:
    path = files.get(row.name)
    if path is None:
        return {}
    data = read_small(path, row.max_bytes)
    return parse_object(data, path=str(path), what="settings", allow_infinity=row.allow_infinity)


def _preprocessor(files: dict[str, Path]) -> JsonObject:
    """Settings of the image processor: in a file of its own, or since transformers 5 in the processor's."""
    processor = Config(_read_json(files, PROCESSOR), PROCESSOR.name)
    return _read_json(files, PREPROCESSOR) or processor.get_dict("image_processor")


def _chat_templates(path: Path, files: dict[str, Path], tokenizer_config: JsonObject) -> dict[str, str]:
    """Chat templates by name: from template files, else from tokenizer_config.json."""
    found = _listed_templates(files.get(TEMPLATE_JSON.name), _read_json(files, TEMPLATE_JSON))
    if TEMPLATE in files:
        found = {DEFAULT: _read_text(files[TEMPLATE])}
    if not found:
        found = _listed_templates(files.get(TOKENIZER_CONFIG.name), tokenizer_config)
    return found | _more_templates(path / MORE_TEMPLATES)


def _listed_templates(path: Path | None, settings: JsonObject) -> dict[str, str]:
    """Templates of the entry chat_template, which is one template or a list of named templates."""
    value = settings.get("chat_template")
    if path is None or value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    if not isinstance(value, list):
        _fail(path, f"chat_template must be a string or a list of named templates, found {shown(value)}")
    return dict(_named_template(path, item) for item in cast(list[object], value))


def _more_templates(folder: Path) -> dict[str, str]:
    """Templates NAME.jinja of the folder additional_chat_templates, as transformers 5 saves them."""
    if not folder.is_dir():
        return {}
    found = {name: file for name, file in _list(folder).items() if name.endswith(".jinja")}
    return {
        name.removesuffix(".jinja"): _read_text(file) for name, file in list(found.items())[:MAX_TEMPLATES]
    }


def _named_template(path: Path, item: object) -> tuple[str, str]:
    entry = cast(JsonObject, item) if isinstance(item, dict) else {}
    name, template = entry.get("name"), entry.get("template")
    if isinstance(name, str) and isinstance(template, str):
        return name, template
    got = shown(cast(object, item))
    _fail(path, f"each chat_template must have a name and a template, both strings; found {got}")


def _read_text(path: Path) -> str:
    data = read_small(path, MAX_TEMPLATE_BYTES)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        _fail(path, f"not valid UTF-8: byte {error.start} is {data[error.start]:#04x}")


def _fail(path: Path, message: str) -> NoReturn:
    raise format_error(str(path), message)
