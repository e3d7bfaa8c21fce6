"""The models on offer: names and files from arguments, tables and a folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from camelid.errors import RequestError, shown
from camelid.loading.choose import OpenStages
from camelid.loading.lora import LoraFile, lora_files, scaled_files
from camelid.loading.model_file import find_hub_id
from camelid.loading.options import LoadOptions
from camelid.server.settings import MODEL_ROWS, PARALLEL, ROWS, Settings
from camelid.server.sources import Configured, Values
from camelid.text.templates.builtin import BUILTIN

SHARD = re.compile(r"(.+)-(\d{5})-of-\d{5}")
NOT_A_MODEL = re.compile(r"(?:^|[-._])(?:mmproj|imatrix)(?:[-._]|$)", re.IGNORECASE)
QUEUE_PER_ROW = 8
LLAMA_KV_TYPE = "f16"  # llama-server's default of keys, and of values
# Setting -> the request option that it is the default of, where the names differ.
OPTIONS = {"n_predict": "max_tokens", "samplers": "order", "keep": "n_keep"}
LOAD_OPTIONS = (
    "backend",
    "adapter",
    "threads",
    "gpu_layers",
    "tensor_parallel",
    "pipeline_parallel",
    "collective",
    "activations",
    "learn",
    "learn_folder",
    "learn_checks",
    "chunk",
    "step_ms",
    "max_in_flight",
    "mmproj",
    "mmproj_auto",
    "adapter_rank",
    "adapter_slots",
)
LORA = ("lora", "lora_scaled", "lora_init_without_apply", "lora_modules")
TEMPLATE = tuple(name for name in ROWS if name.startswith("chat_template"))
FIRST_ONLY = (*TEMPLATE, *LORA)  # settings of arguments that are the first model's alone
DEFAULTS = tuple(name for name, row in ROWS.items() if row.section == "Defaults of requests")


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model on offer: its names, its file or hub id, its load options, and defaults of its requests.

    `keep_alive_s` is the idle time after which it is unloaded, negative for never; `thinks` turns thoughts on
    or off in a template that can; `stages` finds the machines of a model that is cut into stages.
    """

    name: str
    file: str
    options: LoadOptions = field(default_factory=LoadOptions)
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    max_queue: int = 32
    keep_alive_s: float = -1.0
    is_pinned: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    stages: OpenStages | None = None
    thinks: bool | None = None


def model_rows(configured: Configured) -> dict[str, ModelRow]:
    """The models of arguments and tables by name, the default first; cria if nothing offers a model.

    Raises RequestError for a name given twice.
    """
    settings = configured.settings
    words = settings.models or (() if configured.tables or settings.models_dir else ("cria",))
    rows = [_of_word(word, settings, is_first=i == 0) for i, word in enumerate(words)]
    rows += [_of_table(name, table, settings) for name, table in configured.tables.items()]
    check_names(rows)
    return {row.name: row for row in rows}


def folder_rows(settings: Settings) -> dict[str, ModelRow]:
    """The models of --models-dir by name, sorted. Raises RequestError for an unreadable folder."""
    if settings.models_dir is None:
        return {}
    values = model_values({}, settings, is_first=False)
    files = dict(folder_files(settings.models_dir))
    return {name: model_row(name, str(files[name]), values) for name in sorted(files)}


def check_names(rows: Iterable[ModelRow]) -> None:
    """Raises RequestError for a name that two models have, or an adapter and another adapter or a model."""
    seen: dict[str, str] = {}
    for row in rows:
        names = [(name, row.file) for name in (row.name, *row.aliases)]
        for name, file in [*names, *((each.name, each.path) for each in lora_files(row.options.lora))]:
            if name in seen:
                raise RequestError(
                    f"two models or adapters have the name {name!r}: {seen[name]} and {file}; name one as "
                    "NAME=FILE",
                    field="models",
                )
            seen[name] = file


def _of_word(word: str, settings: Settings, *, is_first: bool) -> ModelRow:
    name, file = split_word(word)
    table: Values = {"aliases": (), "tags": tuple(sorted(set(settings.tags))) if is_first else ()}
    if is_first and settings.alias:  # as in llama-server, the first in the alphabet is the name in replies
        former = () if word == file else (name,)
        name, *others = sorted(set(settings.alias))
        table["aliases"] = (*others, *(each for each in former if each not in settings.alias))
    return model_row(name, file, model_values(table, settings, is_first=is_first))


def _of_table(name: str, table: Values, settings: Settings) -> ModelRow:
    return model_row(name, table["file"], model_values(table, settings, is_first=False))


def split_word(word: str) -> tuple[str, str]:
    """Name and file of a MODEL argument: NAME=FILE, or a file that names the model."""
    name, equals, file = word.partition("=")
    if equals and name and file and "/" not in name and not Path(word).exists():
        return name, file
    return name_of(word), word


def name_of(file: str) -> str:
    """The name of a file, folder or hub id: without suffix and part number; a hub id as it is."""
    if find_hub_id(file):
        return file
    path = Path(file)
    stem = path.stem if path.suffix == ".gguf" else path.name or path.resolve().name
    shard = SHARD.fullmatch(stem)
    return shard[1] if shard else stem


def folder_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Names and files of a folder: .gguf files, and folders of a Hugging Face model or of .gguf parts."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise RequestError(
            f"the folder {folder} of --models-dir cannot be read: {error.strerror}", field="models_dir"
        ) from error
    for entry in entries:
        found = entry if is_model(entry) else next(filter(is_model, _parts(entry)), None)
        if found:
            yield (name_of(str(found)) if found is entry else entry.name), found


def _parts(entry: Path) -> list[Path]:
    return sorted(entry.glob("*.gguf")) if entry.is_dir() else []


def is_model(path: Path) -> bool:
    """True for a .gguf file that begins a model, and for a folder with a config.json."""
    if path.is_dir():
        return (path / "config.json").is_file()
    shard = SHARD.fullmatch(path.stem)
    is_first = shard is None or int(shard[2]) == 1
    return path.suffix == ".gguf" and path.is_file() and is_first and not NOT_A_MODEL.search(path.stem)


def model_values(table: Mapping[str, Any], settings: Settings, *, is_first: bool) -> Values:
    """A model's settings: its table's, else the server's; of `FIRST_ONLY` the first model's alone."""
    shared = {name: getattr(settings, name) for name in MODEL_ROWS if is_first or name not in FIRST_ONLY}
    if "ctx_size" in table or "context" in table:
        shared |= {"ctx_size": None, "context": None}
    return {**shared, **table}


def model_row(name: str, file: str, values: Values) -> ModelRow:
    """The row of a model's settings. Raises RequestError for settings that exclude each other."""
    parallel = values["parallel"] or PARALLEL
    max_queue = values["max_queue"]
    return ModelRow(
        name=name,
        file=file,
        options=load_options(values, parallel),
        aliases=tuple(values.get("aliases", ())),
        tags=tuple(values.get("tags", ())),
        max_queue=QUEUE_PER_ROW * parallel if max_queue is None else max_queue,
        keep_alive_s=values["keep_alive"],
        is_pinned=values.get("pinned", False),
        defaults=request_defaults(values),
        template=template_of(values),
        variables=values.get("chat_template_kwargs") or {},
        thinks=thinks_of(values),
    )


def thinks_of(values: Values) -> bool:
    """True if answers shall have thoughts, where the template can turn them on and off."""
    return values["reasoning"] != "off" and values["reasoning_budget"] != "0"


def load_options(values: Values, parallel: int) -> LoadOptions:
    """The load options. `ctx_size` counts as in llama-server: see its row."""
    context, kv_rows = values["context"], values["kv_rows"]
    if context is None and values["ctx_size"]:
        is_shared = values["kv_unified"] or values["parallel"] is None
        context = values["ctx_size"] if is_shared else max(values["ctx_size"] // parallel, 1)
        kv_rows = kv_rows or (values["ctx_size"] if values["kv_unified"] else None)
    return LoadOptions(
        context=context, parallel=parallel, kv_rows=kv_rows, kv_type=kv_type_of(values), lora=lora_of(values),
        **{name: values[name] for name in LOAD_OPTIONS},
    )  # fmt: skip


def lora_of(values: Values) -> tuple[LoraFile, ...]:
    """The adapters of a model. Raises RequestError for a module without a name, and a name given twice."""
    words = [*values.get("lora", ()), *values.get("lora_scaled", ())]
    files = scaled_files(words, applies=not values.get("lora_init_without_apply", False))
    return lora_files([*files, *map(lora_module, values.get("lora_modules", ()))])


def lora_module(word: str) -> LoraFile:
    """The adapter of NAME=FILE. Raises RequestError."""
    name, equals, path = (part.strip() for part in word.partition("="))
    if not (name and equals and path):
        raise RequestError(f"--lora-modules is {shown(word)}, expected NAME=FILE", field="lora_modules")
    return LoraFile(path=path, name=name)


def kv_type_of(values: Values) -> str:
    """The KV cache's type. Raises RequestError for keys and values of different types."""
    own = values["kv_type"]
    if values["cache_type_k"] is None and values["cache_type_v"] is None:
        return own
    keys, others = (values[name] or LLAMA_KV_TYPE for name in ("cache_type_k", "cache_type_v"))
    if keys != others or own not in (ROWS["kv_type"].default, keys):
        raise RequestError(
            f"keys have the type {keys} and values {others}, but both have one type here; say --kv-type",
            field="kv_type",
        )
    return ROWS["kv_type"].kind.read(keys, "--cache-type-k")


def request_defaults(values: Values) -> dict[str, Any]:
    """Request options that a request need not name."""
    found = {OPTIONS.get(name, name): values[name] for name in DEFAULTS if values[name] is not None}
    if found.pop("context_shift", False):
        found["overflow"] = "shift"
    return found


def template_of(values: Values) -> str | None:
    """The source of a chat template instead of the file's. Raises RequestError."""
    text, path = values.get("chat_template"), cast("Path | None", values.get("chat_template_file"))
    if path is not None:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            raise RequestError(
                f"the chat template {path} cannot be read: {reason}", field="chat_template_file"
            ) from None
    if text is None or "{" in text:
        return text
    if text in BUILTIN:
        return BUILTIN[text]
    raise RequestError(
        f"--chat-template {text!r:.80} is no template's source, and no template has this name; give "
        f"--chat-template-file, or one of {', '.join(BUILTIN)}",
        field="chat_template",
    )
