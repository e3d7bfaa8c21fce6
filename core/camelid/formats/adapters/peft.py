"""PEFT's LoRA adapters: adapter_config.json and the tensors of adapter_model.safetensors.

LoRA (arXiv 2106.09685), rsLoRA (arXiv 2312.03732), activated LoRA (arXiv 2504.12397), and stacks of experts
(`target_parameters`). Settings as in peft 0.21; each that would change the results in another way is refused
by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import NoReturn

from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.formats.adapters.pairs import AdapterFile, Factor, Pair, make_pair, pair_up, refuse
from camelid.formats.adapters.patterns import check_work, first_match
from camelid.formats.json_text import JsonObject, parse_object
from camelid.formats.safetensors import Safetensors
from camelid.formats.settings import Config
from camelid.formats.source import format_error, located

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MAX_CONFIG_BYTES = 16 << 20
MAX_RANK = 1 << 16
MAX_INVOCATION = 1 << 12
PREFIX = "base_model.model."
ENDINGS = (".lora_A.weight", ".lora_B.weight")
INNER = ".base_layer"  # of a parameter that is wrapped before another one of its module
EXPERTS = "experts"  # modules of transformers with stacks of experts, and their parameters in order
EXPERT_PARAMETERS = ("gate_up_proj", "up_proj", "down_proj")

MERGE = "merge the adapter into its base with PEFT"
TRAINED = "its base weights are changed ones; save it with path_initial_model_for_weight_conversion"
# Setting -> its supported values, and the way out for others. None, False and empty values are supported.
REFUSED: Mapping[str, tuple[tuple[object, ...], str]] = {
    "use_dora": ((), f"DoRA scales the rows of whole weights; {MERGE}"),
    "lora_bias": ((), f"biases of factors are not supported; {MERGE}"),
    "bias": (("none",), f"trained biases are not supported; {MERGE}"),
    "modules_to_save": ((), f"whole trained modules are not supported; {MERGE}"),
    "trainable_token_indices": ((), f"trained tokens are not supported; {MERGE}"),
    "layer_replication": ((), f"repeated layers are not supported; {MERGE}"),
    "megatron_config": ((), "adapters of Megatron's layers are not supported"),
    "use_qalora": ((), "QALoRA pools the inputs of a layer, which is not supported"),
    "use_bdlora": ((), f"block-diagonal factors are not supported; {MERGE}"),
    "arrow_config": ((), "routing between adapters is not supported; load one of them"),
    "kasa_config": ((), f"KaSA changes the base weights; {MERGE}"),
    "monteclora_config": ((), "sampled factors are not supported"),
    "init_lora_weights": (
        (True, "gaussian", "eva", "orthogonal", "mica"),
        TRAINED,
    ),
}
# Settings that are read, and those of training, of other names, and of notes, which change no result.
READ = (
    "peft_type",
    "r",
    "lora_alpha",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "alora_invocation_tokens",
)
INERT = (
    *("alora_invocation_string", "auto_mapping", "base_model_name_or_path", "corda_config"),
    *("ensure_weight_tying", "eva_config", "exclude_modules", "fan_in_fan_out", "inference_mode"),
    *("layers_pattern", "layers_to_transform", "loftq_config", "lora_dropout", "lora_ga_config"),
    *("megatron_core", "peft_version", "qalora_group_size", "revision", "runtime_config"),
    *("target_modules", "target_parameters", "task_type", "velora_config"),
)
# Part of a tensor's name -> what it belongs to.
REFUSED_TENSORS: Mapping[str, str] = {
    "lora_magnitude_vector": "a magnitude of DoRA",
    "lora_embedding_": "an adapter of an embedding",
    ".modules_to_save.": "a whole trained module",
    "token_adapter": "trained tokens",
    ".lora_A.bias": "a bias of a factor",
    ".lora_B.bias": "a bias of a factor",
    "lora_diag": "a diagonal of KaSA",
}


@dataclass(frozen=True, slots=True)
class _Settings:
    """adapter_config.json with its getters, and patterns of ranks and alphas by module name."""

    config: Config
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]

    def rank(self, module: str) -> int:
        default = self.config.count("r", 8, most=MAX_RANK)
        return first_match(self.ranks, module, default)

    def scale(self, module: str, rank: int) -> float:
        alpha = first_match(self.alphas, module, self.config.number("lora_alpha", 8))
        return alpha / (sqrt(rank) if self.config.flag("use_rslora", False) else rank)


def read_peft(config: bytes, weights: Safetensors, path: str) -> AdapterFile:
    """The adapter of adapter_config.json's text and the header of its weights; `path` is for errors.

    Raises ModelFormatError for malformed settings and factors that do not fit, UnsupportedModelError for
    another method and for settings and tensors that are not supported, by name.
    """
    values = parse_object(config, path=path, what=CONFIG)
    settings = _settings(Config(values, f"{path}: {CONFIG}" if path else CONFIG), len(weights.tensors) // 2)
    factors = [Factor(_plain(t.name, path), t.type, t.shape, t.offset) for t in weights.tensors.values()]
    if len({factor.name for factor in factors}) < len(factors):
        raise format_error(path, "a tensor occurs twice, with and without the prefix base_model.model.")
    pairs = pair_up(factors, ENDINGS, path)
    return AdapterFile(
        format="peft",
        path=path,
        pairs={pair.module: pair for pair in _pairs(pairs, settings, path)},
        invocation=_invocation(settings.config),
        facts=dict(_facts(settings.config)),
    )


def _settings(config: Config, n_modules: int) -> _Settings:
    kind = config.text("peft_type")
    if kind != "LORA":
        refuse(config.path, "peft_type", kind, f"supported is LORA; {MERGE}")
    for key, (supported, why) in REFUSED.items():
        value = config.values.get(key)
        if value and value not in supported:
            refuse(config.path, key, value, why)
    known = {*REFUSED, *READ, *INERT}
    if unknown := sorted(key for key, value in config.values.items() if value and key not in known):
        refuse(
            config.path,
            unknown[0],
            config.values[unknown[0]],
            "an unknown setting, so results may differ",
        )
    ranks, alphas = config.section("rank_pattern"), config.section("alpha_pattern")
    check_work([*ranks.values, *alphas.values], n_modules)
    return _Settings(
        config,
        {name: ranks.count(name, most=MAX_RANK) for name in ranks.values},
        {name: alphas.number(name) for name in alphas.values},
    )


def _plain(name: str, path: str) -> str:
    """A tensor's name without PEFT's prefix. Raises UnsupportedModelError for a tensor that is no factor."""
    found = next((what for part, what in REFUSED_TENSORS.items() if part in name), "")
    if found or not name.endswith(ENDINGS):
        message = f"tensor {name} is {found or 'no factor of LoRA'}, which is not supported; {MERGE}"
        raise UnsupportedModelError(located(path, message), kind="tensor", name=name, path=path)
    return name.removeprefix(PREFIX)


def _pairs(pairs: Mapping[str, tuple[Factor, Factor]], settings: _Settings, path: str) -> Iterator[Pair]:
    for name, (a, b) in pairs.items():
        module, depth = name.replace(INNER, ""), name.count(INNER)
        parameters = _parameters(module, settings.config)
        if parameters:
            yield _of_parameter(module, depth, parameters, (a, b), settings, path)
        elif depth:
            _refuse_inner(name, path)
        else:
            rank = settings.rank(module)
            if a.shape[:1] != (rank,):
                raise _misfit(module, rank, (a, b), path)
            yield make_pair(module, a, b, scale=settings.scale(module, rank), path=path)


def _parameters(module: str, config: Config) -> list[str]:
    """The parameters of a stack of experts that `target_parameters` names, in the order of their wrapping."""
    if module.rpartition(".")[2] != EXPERTS:
        return []
    targets = config.texts("target_parameters")
    names = [(each, f".{module}.{each}") for each in EXPERT_PARAMETERS]
    return [each for each, full in names if any(full.endswith(f".{target}") for target in targets)]


def _of_parameter(
    module: str,
    depth: int,
    parameters: list[str],
    factors: tuple[Factor, Factor],
    settings: _Settings,
    path: str,
) -> Pair:
    """The pair of a parameter that stacks experts: the first one is wrapped innermost."""
    if depth >= len(parameters):
        _refuse_inner(module + INNER * depth, path)
    name = f"{module}.{parameters[len(parameters) - 1 - depth]}"
    rank = settings.rank(name)
    experts, rest = divmod(factors[0].shape[0] if factors[0].shape else 0, rank)
    if rest or not experts:
        raise _misfit(name, rank, factors, path)
    scale = settings.scale(name, rank)
    return make_pair(name, *factors, scale=scale, path=path, layout="joined", experts=experts)


def _misfit(module: str, rank: int, factors: tuple[Factor, Factor], path: str) -> ModelFormatError:
    shapes = f"{factors[0].shape} and {factors[1].shape}"
    message = f"{module}: r is {rank} in {CONFIG}, but its factors are {shapes}"
    return format_error(path, message, tensor=factors[0].name, got=shapes, want=rank)


def _refuse_inner(name: str, path: str) -> NoReturn:
    message = (
        f"{name}: a wrapped parameter that target_parameters does not name; supported are "
        f"{' and '.join(EXPERT_PARAMETERS)} of experts"
    )
    raise UnsupportedModelError(located(path, message), kind="tensor", name=name, path=path)


def _invocation(config: Config) -> tuple[int, ...]:
    tokens = tuple(config.counts("alora_invocation_tokens"))
    if len(tokens) > MAX_INVOCATION:
        message = f"{len(tokens)} invocation tokens; at most {MAX_INVOCATION} are allowed"
        raise format_error(config.path, message, got=len(tokens), want=MAX_INVOCATION)
    return tokens


def _facts(config: Config) -> Iterator[tuple[str, str]]:
    yield "alpha", f"{config.number('lora_alpha', 8):g}"
    yield "scaling", "alpha / sqrt(rank)" if config.flag("use_rslora", False) else "alpha / rank"
    values: JsonObject = config.values
    for key, name in {"base_model_name_or_path": "base", "task_type": "task"}.items():
        if isinstance(value := values.get(key), str) and value:
            yield name, value[:200]
