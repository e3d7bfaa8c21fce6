"""The tensors of a model by the modules that publish them, for adapters that name modules.

A directory states its modules. Of a GGUF alone, each row of its architecture is a possible naming, with the
settings of config.json that its metadata states.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from camelid.errors import CamelidError
from camelid.formats.gguf import Gguf
from camelid.formats.json_text import JsonObject
from camelid.formats.settings import Config
from camelid.model.archs import HF_ROWS, row_name
from camelid.model.hf_names import published_names, stacked_names
from camelid.model.hf_rows import HfRow
from camelid.model.hf_settings import EXPERTS, HfSettings
from camelid.model.mlx_rows import MLX_FORMS
from camelid.model.spec import ModelSpec

GRANITE = (
    ("block_sparse_moe.input_linear", "block_sparse_moe.experts.gate_up_proj"),
    ("block_sparse_moe.output_linear", "block_sparse_moe.experts.down_proj"),
)
# model_type -> modules of its class in transformers 5 whose published names are older.
RENAMED: Mapping[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(("mixtral", "phimoe", "minimax_m2"), (("block_sparse_moe.", "mlp."),)),
    **dict.fromkeys(("granitemoe", "granitemoehybrid", "granitemoeshared"), GRANITE),
    **dict.fromkeys(("nemotron_h", "nemotron_h_moe"), (("backbone.", "model."),)),
    "hy_v3": (("mlp.shared_mlp.", "mlp.shared_experts."),),
}
# Names before those of the text model, in classes with towers.
TEXT_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.")
RANKING_CLASS = "ForSequenceClassification"
EXPERT_MODULE = re.compile(r"(.*\bexperts)\.\{e\}\..*")
# The parameters of transformers' stacks of experts, and the folds that cut our tensors from them.
GATED_PARTS = {
    "ffn_gate_exps": ("gate_up_proj", ("first_half",)),
    "ffn_up_exps": ("gate_up_proj", ("second_half",)),
    "ffn_down_exps": ("down_proj", ()),
}
PLAIN_PARTS = {"ffn_up_exps": ("up_proj", ()), "ffn_down_exps": ("down_proj", ())}


@dataclass(frozen=True, slots=True)
class Origin:
    """A tensor by GGUF name without `.weight`, made by `folds` from the matrices `sources`.

    A source is a module and the number of a matrix in it (0 unless the module is a stack). An alias has the
    modules of a class of transformers in place of the published ones.
    """

    tensor: str
    sources: tuple[tuple[str, int], ...]
    folds: tuple[str, ...] = ()
    is_alias: bool = False

    @property
    def short(self) -> str:
        """The name within a layer, as rows have it."""
        return self.tensor.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Naming:
    """The origins by the modules in their sources, the settings that their folds read, and the model_type.

    With `is_guess` the settings are those of a GGUF's metadata, which states no scale of rows.
    """

    name: str
    settings: HfSettings | None
    origins: Mapping[str, tuple[Origin, ...]]
    is_guess: bool = False

    def find(self, modules: Iterable[str]) -> dict[str, str] | None:
        """Each module's name in this naming, or None if one is unknown."""
        given = list(modules)
        for known in (self._plain, self._prefixed, self._text):
            named = {module: known(module) for module in given}
            if all(name in self.origins for name in named.values()):
                return named
        return None

    def missing(self, modules: Iterable[str]) -> list[str]:
        """The modules that this naming does not have."""
        ways = (self._plain, self._prefixed, self._text)
        return [module for module in modules if not any(way(module) in self.origins for way in ways)]

    @staticmethod
    def _plain(module: str) -> str:
        return module

    @property
    def prefix(self) -> str:
        """The name of the inner model in its class, with a dot."""
        outer = self.settings.row.outer["token_embd"] if self.settings else ""
        return outer.split(".")[0] + "."

    def _prefixed(self, module: str) -> str:
        """A module of the inner model, which has no prefix."""
        return self.prefix + module

    @staticmethod
    def _text(module: str) -> str:
        """A module of the text model of a class with towers."""
        prefix = next((each for each in TEXT_PREFIXES if module.startswith(each)), "")
        return "model." + module.removeprefix(prefix) if prefix else module


def namings_of_directory(settings: HfSettings) -> list[Naming]:
    """The namings of a published directory: of its classes, and of mlx-lm's."""
    name = row_name(settings.config)
    return [_naming(name, replace(settings, row=row)) for row in _forms(name, settings.row)]


def namings_of_gguf(header: Gguf, spec: ModelSpec) -> list[Naming]:
    """The namings that the rows of a GGUF's architecture give, in the order of the table."""
    rows = {name: row for name, row in HF_ROWS.items() if spec.arch in (row.arch, row.bidirectional)}
    namings: list[Naming] = []
    forms = [(name, form) for name, row in rows.items() for form in _forms(name, row)]
    for model_type, form in forms:
        try:
            namings.append(_naming(model_type, _settings(header, spec, form), is_guess=True))
        except CamelidError:  # a row of a relative, whose settings this model lacks
            continue
    return namings


def naming_of_tensors(matrices: Mapping[str, int]) -> Naming:
    """The naming of a GGUF adapter, whose modules are tensors of a model's file, from their numbers of
    matrices."""
    origins = {
        name: (Origin(name.removesuffix(".weight"), tuple((name, i) for i in range(n))),)
        for name, n in matrices.items()
        if name.endswith(".weight")
    }
    return Naming("", None, origins)


def _forms(name: str, row: HfRow) -> list[HfRow]:
    form = MLX_FORMS.get(name)
    return [row, form.row(row)] if form else [row]


def _naming(name: str, settings: HfSettings, *, is_guess: bool = False) -> Naming:
    origins: dict[str, list[Origin]] = {}
    for origin in _origins(settings):
        for module in dict.fromkeys(module for module, _ in origin.sources):
            origins.setdefault(module, []).append(origin)
    for module in [*origins]:
        for old, new in RENAMED.get(name, ()):
            renamed = module.replace(old, new)
            if renamed not in origins:
                origins[renamed] = [_renamed(origin, old, new) for origin in origins[module]]
    return Naming(name, settings, {module: tuple(found) for module, found in origins.items()}, is_guess)


def _renamed(origin: Origin, old: str, new: str) -> Origin:
    sources = tuple((module.replace(old, new), i) for module, i in origin.sources)
    return replace(origin, sources=sources, is_alias=True)


def _origins(settings: HfSettings) -> Iterator[Origin]:
    parts = GATED_PARTS if "ffn_gate_exps" in settings.names else PLAIN_PARTS
    for full, published in published_names(settings):
        name = full.removesuffix(".weight")
        short = name.rpartition(".")[2]
        folds = tuple(settings.row.folds.get(short, "").split())
        is_stack = short.endswith("_exps") and "{e}" not in published and "stack" not in folds
        n = settings.n_experts if is_stack else 1
        modules = stacked_names(published, settings)
        yield Origin(name, tuple((module, i) for module in modules for i in range(n)), folds)
        if short in parts and (found := EXPERT_MODULE.fullmatch(published)):
            parameter, cut = parts[short]
            stack = tuple((f"{found[1]}.{parameter}", i) for i in range(settings.n_experts))
            yield Origin(name, stack, cut, is_alias=True)


def _settings(header: Gguf, spec: ModelSpec, row: HfRow) -> HfSettings:
    """config.json's settings that folds read, from a GGUF's metadata."""
    values: JsonObject = {**row.defaults, "multi_query": False}
    for key, name in {**row.counts, **row.keys}.items():
        value = header.metadata.get(f"{spec.arch}.{key}")
        if type(value) is int:
            values[name] = value
    known = {
        "block_count": len(spec.file_layers),
        "attention.head_count": spec.n_heads,
        "attention.head_count_kv": spec.n_kv_heads,
    }
    values |= {
        row.keys[key]: n for key, n in known.items() if key in row.keys and row.keys[key] not in values
    }
    values[row.keys.get("attention.key_length", "head_dim")] = spec.head_dim
    values |= dict.fromkeys(EXPERTS) | {EXPERTS[0]: spec.experts.n_experts if spec.experts else 0}
    if spec.delta:
        values["linear_value_head_dim"] = spec.delta.value_dim
    if any(name.startswith("cls.") for name in header.tensors):
        values["architectures"] = [RANKING_CLASS]
    return HfSettings(Config(values), row, n_tensors=max(len(header.tensors), 1))
