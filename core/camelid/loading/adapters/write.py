"""Adapters written for PEFT and for llama.cpp, with the names and orders of their base model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from camelid.errors import CamelidError, UnsupportedModelError
from camelid.formats.adapters import peft
from camelid.formats.adapters.pairs import AdapterFile
from camelid.formats.adapters.write import PairOut, write_gguf_adapter, write_peft
from camelid.loading.adapters.modules import Factors, modules_of, naming_of_file
from camelid.loading.adapters.open import namings_of
from camelid.loading.model_file import ModelFile
from camelid.model.adapter import Adapter
from camelid.model.adapters.origins import Naming

Modules = Mapping[str, list[Factors]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a file states beside the factors: names, invocation tokens, and for GGUF the architecture; PEFT's
    targets are all names of modules unless `targets` has shorter ones."""

    name: str
    invocation: tuple[int, ...] = ()
    arch: str = ""
    base: str = ""
    task: str | None = None
    targets: tuple[str, ...] = ()

    @classmethod
    def of(cls, file: AdapterFile, name: str) -> Facts:
        """Facts of a new adapter with the modules of a file."""
        facts = file.facts
        return cls(
            name=name,
            invocation=file.invocation,
            arch=facts.get("architecture", ""),
            base=facts.get("base", ""),
            task=facts.get("task"),
        )


def save_gguf(adapter: Adapter, model: ModelFile, path: str | PathLike[str]) -> None:
    """Writes a GGUF adapter for GGUF files of the model, with the order of their rows.

    llama.cpp scales each term by one alpha over its rank; terms of other scales have it in B. Raises
    ModelFormatError if the file cannot be written.
    """
    facts = Facts(name=adapter.name, invocation=adapter.invocation, arch=model.spec.arch)
    write_modules(path, modules_of(adapter, naming_of_file(model), model), "gguf", facts)


def save_peft(adapter: Adapter, model: ModelFile, path: str | PathLike[str], *, base: str = "") -> None:
    """Writes a PEFT directory with the modules that the base model publishes; `base` is its name there.

    Raises ModelFormatError if it cannot be written, UnsupportedModelError for a term without a module.
    """
    modules, naming = _published(adapter, model)
    facts = Facts(
        name=adapter.name,
        invocation=adapter.invocation,
        base=base,
        task=_task(model),
        targets=tuple(_targets([name for name, found in modules.items() if len(found) == 1], naming)),
    )
    write_modules(path, modules, "peft", facts)


def write_modules(path: str | PathLike[str], modules: Modules, to: str, facts: Facts) -> None:
    """Writes factors by module in the format "peft" or "gguf". Raises ModelFormatError if it cannot."""
    if to == "gguf":
        alpha = _alpha(modules)
        pairs = [_gguf_pair(name, found, alpha) for name, found in modules.items()]
        write_gguf_adapter(
            path, pairs, alpha=alpha, arch=facts.arch, name=facts.name, invocation=facts.invocation
        )
        return
    parameters = {name for name, found in modules.items() if len(found) > 1}
    pairs = [_peft_pair(name, found, parameters) for name, found in modules.items()]
    write_peft(path, pairs, _config(modules, parameters, facts))


def _published(adapter: Adapter, model: ModelFile) -> tuple[Modules, Naming]:
    """The modules by the first naming that has them all."""
    errors: list[CamelidError] = []
    for naming in namings_of(model):
        try:
            prefix = naming.prefix if _is_inner(model) else ""
            modules = modules_of(adapter, naming, model)
            return {name.removeprefix(prefix): found for name, found in modules.items()}, naming
        except CamelidError as error:
            errors.append(error)
    message = f"{model.name}: architecture {model.spec.arch} has no published names; export to GGUF"
    none = UnsupportedModelError(message, kind="architecture", name=model.spec.arch)
    raise errors[0] if errors else none


def _is_inner(model: ModelFile) -> bool:
    """True for a class without a head, whose modules have no prefix."""
    if model.directory:
        classes = model.directory.settings.texts("architectures")
        return any(name.endswith("Model") and "Head" not in name for name in classes)
    return model.spec.embeds and not any(name.startswith("cls") for name in model.model.weights)


def _alpha(modules: Modules) -> float:
    """The alpha of most modules, so that most have their numbers unchanged."""
    found = Counter(each[0].scale * each[0].rank for each in modules.values())
    return float(np.float32(found.most_common(1)[0][0]))


def _gguf_pair(name: str, found: Sequence[Factors], alpha: float) -> PairOut:
    """A pair whose B has the part of its scale that alpha over its rank lacks."""
    rank, is_stack = found[0].rank, len(found) > 1
    factor = found[0].scale * rank / alpha if alpha else 1.0
    a = np.stack([each.a for each in found]) if is_stack else found[0].a
    b = np.stack([each.b for each in found]) if is_stack else found[0].b
    b = b if abs(factor - 1.0) < 1e-12 else b * factor
    return PairOut(name, a.shape, b.shape, _bytes(a), _bytes(b))


def _peft_pair(name: str, found: Sequence[Factors], parameters: set[str]) -> PairOut:
    if name not in parameters:
        a, b = found[0].a, found[0].b
        return PairOut(name, a.shape, b.shape, _bytes(a), _bytes(b))
    a = np.concatenate([each.a for each in found])  # [experts * rank, in]
    b = np.stack([each.b for each in found], axis=-1).reshape(len(found[0].b), -1)  # [out, rank * experts]
    return PairOut(_wrapped(name, parameters), a.shape, b.shape, _bytes(a), _bytes(b))


def _wrapped(name: str, parameters: set[str]) -> str:
    """The module of a parameter in PEFT's file: the first parameter of a module is wrapped innermost."""
    module, _, parameter = name.rpartition(".")
    own = [each for each in peft.EXPERT_PARAMETERS if f"{module}.{each}" in parameters]
    if parameter not in own:
        raise UnsupportedModelError(
            f"{name}: PEFT has no stack of this name; export to GGUF", kind="module", name=name
        )
    return module + peft.INNER * (len(own) - 1 - own.index(parameter))


def _bytes(values: Any) -> Callable[[], bytes]:
    return lambda: np.ascontiguousarray(values, "<f4").tobytes()


def _config(modules: Modules, parameters: set[str], facts: Facts) -> dict[str, object]:
    ranks = {name: found[0].rank for name, found in modules.items()}
    alphas = {name: found[0].scale * found[0].rank for name, found in modules.items()}
    rank, alpha = (Counter(each.values()).most_common(1)[0][0] for each in (ranks, alphas))
    return {
        "peft_type": "LORA",
        "task_type": facts.task,
        "base_model_name_or_path": facts.base or None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": _whole(alpha),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "use_rslora": False,
        "rank_pattern": {name: each for name, each in ranks.items() if each != rank},
        "alpha_pattern": {name: _whole(each) for name, each in alphas.items() if each != alpha},
        "target_modules": list(facts.targets) or sorted(modules.keys() - parameters),
        "target_parameters": sorted(parameters) or None,
        "alora_invocation_tokens": list(facts.invocation) or None,
    }


def _task(model: ModelFile) -> str | None:
    """PEFT's name of the model's task; None for embeddings and rankings, whose class PEFT does not wrap."""
    if model.spec.embeds:
        return None
    return "SEQ_2_SEQ_LM" if model.spec.is_encoder_decoder else "CAUSAL_LM"


def _whole(number: float) -> float | int:
    return int(number) if number == int(number) else number


def _targets(modules: list[str], naming: Naming) -> list[str]:
    """The last names of the modules where the adapter changes all of that name, else their whole names."""
    names = {module.rpartition(".")[2] for module in modules}
    all_of_them = {module for module in _primary(naming) if module.rpartition(".")[2] in names}
    is_whole = all_of_them in ({*modules}, {naming.prefix + module for module in modules})
    return sorted(names) if is_whole else sorted(modules)


def _primary(naming: Naming) -> Iterator[str]:
    """The modules of the naming without their aliases."""
    for module, origins in naming.origins.items():
        if not all(origin.is_alias for origin in origins):
            yield module
