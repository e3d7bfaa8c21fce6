"""The layout of sentence-transformers: modules.json, one folder per module, prompts and the longest text.

A model is a list of modules: Transformer, Pooling, and optionally Dense and Normalize; of a ranking model
Transformer alone, or Transformer and LogitScore. Modules of other kinds would change the results and are
refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn, cast

from camelid.errors import UnsupportedModelError
from camelid.formats.hf_weights import HfTensor, is_plain, list_tensors
from camelid.formats.json_text import JsonObject, parse_object, shown
from camelid.formats.settings import Config
from camelid.formats.source import format_error, located, read_small

MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
CARD, CARD_TITLE = "README.md", b"# Qwen3-Reranker"  # published without modules.json; as in llama.cpp
CARD_ANSWERS = ("yes", "no")
SCORES = ("true_token_id", "false_token_id")  # of a LogitScore
LENGTHS = ("sentence_bert_config.json", "sentence_roberta_config.json", "sentence_xlm-roberta_config.json")
FOLDER_FILES = {
    "Pooling": ("config.json",),
    "Dense": ("config.json", "model.safetensors"),
    "LogitScore": ("config.json",),
}  # of a module's folder
MAX_BYTES = 1 << 20
MAX_MODULES = 8
MAX_PROMPTS = 64
POOLINGS = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}  # of versions before 6
IDENTITY = "torch.nn.modules.linear.Identity"


@dataclass(frozen=True, slots=True)
class EmbeddingFiles:
    """How a directory's rows become embeddings.

    `pooling` is mean, cls or last, "" for a directory without modules.json. Texts were cut at `max_tokens` in
    training (0: not stated). `prompts` are texts by name that are put before a text; `default_prompt` names
    one, or is "". `dense` are the matrices that the pooled row is multiplied by, in order. `answers` are the
    tokens of a causal model whose logits after a pair rank it: ids, or texts in a directory recognised by its
    card; `template_options` are variables of the chat template that renders the pair.
    """

    pooling: str = ""
    max_tokens: int = 0
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    default_prompt: str = ""
    dense: tuple[HfTensor, ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict[str, Path])  # of `dense`
    answers: tuple[int | str, ...] = ()
    template_options: Mapping[str, object] = field(default_factory=dict[str, object])


def read_embedding(path: Path, files: Mapping[str, Path]) -> EmbeddingFiles:
    """Reads the settings of a directory. Raises ModelFormatError, UnsupportedModelError."""
    config = next((_config(files[name]) for name in LENGTHS if name in files), Config({}))
    found = EmbeddingFiles(
        max_tokens=config.count("max_seq_length", 0, least=0),
        template_options=config.section("processing_kwargs").get_dict("chat_template"),
    )
    if PROMPTS in files:
        found = _with_prompts(found, _config(files[PROMPTS]))
    if MODULES in files:
        return _with_modules(found, path, files[MODULES])
    is_card = CARD in files and _is_card(files[CARD])
    return replace(found, answers=CARD_ANSWERS) if is_card else found


def _is_card(file: Path) -> bool:
    """True for a card of Qwen3-Reranker; other models' cards may have any size."""
    return file.stat().st_size <= MAX_BYTES and CARD_TITLE in read_small(file, MAX_BYTES)


def module_files(file: Path) -> tuple[str, ...]:
    """Paths in the directory of the files of a modules.json's folders. Raises ModelFormatError."""
    pairs = [(folder, name) for kind, folder in _modules(file) for name in FOLDER_FILES.get(kind, ())]
    return tuple(f"{folder}/{name}" if folder else name for folder, name in pairs)


def _with_prompts(found: EmbeddingFiles, config: Config) -> EmbeddingFiles:
    prompts = config.get_dict("prompts")
    section = config.section("prompts")
    if len(prompts) > MAX_PROMPTS:
        raise format_error(
            config.path, f"prompts has {len(prompts)} items, at most {MAX_PROMPTS} are allowed"
        )
    named = {name: section.text(name) for name in prompts}
    default = config.text("default_prompt_name", "")
    if default and default not in named:
        raise format_error(
            config.path, f"default_prompt_name is {shown(default)}, which prompts does not have"
        )
    return replace(found, prompts=named, default_prompt=default)


def _with_modules(found: EmbeddingFiles, path: Path, file: Path) -> EmbeddingFiles:
    """Adds pooling and dense matrices from the module list."""
    dense: list[HfTensor] = []
    dense_files: dict[str, Path] = {}
    kinds = list(_modules(file))
    names = [kind for kind, _ in kinds]
    if names == ["Transformer"]:
        return found
    if names == ["Transformer", "LogitScore"]:
        return replace(found, answers=_answers(_config(_inside(path, kinds[1][1], "config.json"))))
    middle = names[2:-1] if names[-1:] == ["Normalize"] else names[2:]
    if names[:2] != ["Transformer", "Pooling"] or set(middle) - {"Dense"}:
        _refuse(
            file, "modules", ", ".join(names) or "empty", "Transformer, Pooling, then Dense and Normalize"
        )
    for kind, folder in kinds:
        if kind == "Pooling":
            found = replace(found, pooling=_pooling(_config(_inside(path, folder, "config.json"))))
        elif kind == "Dense":
            tensor, source = _dense(path, folder)
            dense.append(tensor)
            dense_files[tensor.file] = source
    return replace(found, dense=tuple(dense), files=dense_files)


def _modules(file: Path) -> Iterator[tuple[str, str]]:
    """(kind, folder) of each module."""
    text = b'{"modules":' + read_small(file, MAX_BYTES) + b"}"  # the file is a list
    items = Config(parse_object(text, path=str(file), what="the modules"), str(file)).get_list("modules")
    if len(items) > MAX_MODULES:
        raise format_error(str(file), f"{len(items)} modules, at most {MAX_MODULES} are allowed")
    for item in items:
        module = Config(cast(JsonObject, item) if isinstance(item, dict) else {}, str(file))
        folder = module.text("path")
        if folder and not is_plain(folder):
            raise format_error(str(file), f"path {shown(folder)} is no plain folder name")
        yield module.text("type").rpartition(".")[2], folder


def _answers(config: Config) -> tuple[int, ...]:
    """The ids of a LogitScore: the score is the first's logit, or that less the second's."""
    return tuple(config.count(name, least=0) for name in SCORES if config.has(name) or name == SCORES[0])


def _pooling(config: Config) -> str:
    """The pooling's name. Raises UnsupportedModelError for several at once, and kinds that are not here."""
    stated = config.values.get("pooling_mode")
    if stated is None:
        stated = [name for key, name in FLAGS.items() if config.flag(key, False)] or ["mean"]
    modes = cast(list[object], stated) if isinstance(stated, list) else [stated]
    pooling = POOLINGS.get(str(modes[0])) if len(modes) == 1 else None
    if pooling is None:
        _refuse(Path(config.path), "pooling_mode", ", ".join(map(str, modes)), ", ".join(POOLINGS))
    if not config.flag("include_prompt", True):
        _refuse(Path(config.path), "include_prompt", "false", "true")
    return pooling


def _dense(path: Path, folder: str) -> tuple[HfTensor, Path]:
    """The matrix of a Dense module, with the path of its file."""
    config = _config(_inside(path, folder, "config.json"))
    act = config.text("activation_function", IDENTITY)
    if act != IDENTITY or config.flag("bias", True):
        _refuse(
            Path(config.path), "activation_function, bias", f"{act}, {config.flag('bias', True)}", "neither"
        )
    source = _inside(path, folder, "model.safetensors")
    tensors = list_tensors(path / folder, {source.name: source})
    if [*tensors] != ["linear.weight"]:
        raise format_error(str(source), f"tensors {shown(sorted(tensors))}, expected linear.weight alone")
    return replace(tensors["linear.weight"], file=f"{folder}/{source.name}"), source


def _inside(path: Path, folder: str, name: str) -> Path:
    file = path / folder / name if folder else path / name
    if not file.is_file():
        raise format_error(str(file), "there is no such file, but modules.json names its folder")
    return file


def _config(file: Path) -> Config:
    return Config(parse_object(read_small(file, MAX_BYTES), path=str(file), what="settings"), str(file))


def _refuse(file: Path, key: str, found: str, known: str) -> NoReturn:
    message = f"{key} is {found}, which is not supported; supported: {known}"
    raise UnsupportedModelError(located(str(file), message), kind=key, name=found, path=str(file))
