"""The type of every tensor by mix and shape of model, against llama.cpp's quantizer."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.support.exhaustive import every
from tests.support.mix_models import MODELS, MixModel

from camelid.loading.quantize import choice
from camelid.loading.quantize.choice import Named, Wishes, choose_types, is_70b, missing_imatrix
from camelid.loading.quantize.mixes import MIXES
from camelid.loading.quantize.rules import Facts, always

GOLDEN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "golden" / "mixes.json").read_text()
)
# llama.cpp has no fallback of q1_0 for odd columns and writes nothing.
NOT_WRITTEN = {("columns_96", "q1_0"), ("columns_288", "q1_0"), ("columns_50", "q1_0"), ("mamba", "q1_0")}


def facts_of(model: MixModel, *, imatrix: bool) -> Facts:
    kv = model.kv_heads if isinstance(model.kv_heads, int) else model.kv_heads[0]
    seventy = is_70b(model.arch, model.layers, model.heads, kv)
    return Facts(
        arch=model.arch, gqa=model.heads // kv, experts=model.experts, layers=model.layers, is_70b=seventy,
        imatrix=imatrix,
    )  # fmt: skip


def named(model: MixModel) -> list[Named]:
    return [Named(name, "f32", shape) for name, shape in model.tensors.items()]


def unpacked(model: MixModel, parts: dict[str, str]) -> dict[str, str]:
    """Types by name from runs over the layers; f32 for other names."""
    types = dict.fromkeys(model.tensors, "f32")
    for part, runs in parts.items():
        each = [kind for kind, n in (run.split("*") for run in runs.split()) for _ in range(int(n))]
        types |= {part.replace("*", str(i), 1): kind for i, kind in enumerate(each)}
    return types


def complaints(model_name: str) -> list[str]:
    """Mixes whose types differ from llama.cpp's for a model."""
    model, found = MODELS[model_name], list[str]()
    for mix, with_imatrix in product(MIXES, (False, True)):
        key = f"{mix} imatrix" if with_imatrix else mix
        parts = GOLDEN[model_name].get(key, GOLDEN[model_name][mix])
        types = choose_types(named(model), mix, facts_of(model, imatrix=with_imatrix))
        refused = bool(missing_imatrix(types, mix, [*types] if with_imatrix else [], []))
        if (model_name, mix) in NOT_WRITTEN:
            continue
        if refused or parts is None:
            found += [key] * (refused != (parts is None))
        elif types != unpacked(model, parts):
            found.append(key)
    return found


@pytest.mark.parametrize("name", every(3, [*MODELS]))
def test_types_are_those_of_llama_cpp(name: str) -> None:
    assert {key.partition(" ")[0] for key in GOLDEN[name]} == {*MIXES}
    assert complaints(name) == []


PLANTED: dict[str, tuple[Any, str, Any, str]] = {
    "no rule for values": (choice, "part_of", lambda name: "", "gqa4"),
    "no 70B": (choice, "is_70b", lambda *_: False, "seventy"),
    "routers are quantized": (choice, "KEPT", ("_norm.weight",), "many_experts"),
    "fallback of IQ types is q4_0": (
        choice,
        "FALLBACKS",
        dict.fromkeys(choice.FALLBACKS, "q4_0"),
        "columns_96",
    ),
}


@pytest.mark.parametrize("what", PLANTED)
def test_planted_rules_differ(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, place, wrong, model = PLANTED[what]
    monkeypatch.setattr(module, place, wrong)
    monkeypatch.setitem(globals(), "is_70b", choice.is_70b)
    assert complaints(model)


def test_wishes() -> None:
    tensors, facts = named(MODELS["llama"]), facts_of(MODELS["llama"], imatrix=False)

    def types(**wishes: Any) -> dict[str, str]:
        return choose_types(tensors, "q4_k_m", facts, Wishes(**wishes))

    pure = types(pure=True)
    assert {pure[n] for n in ("output.weight", "token_embd.weight", "blk.0.ffn_down.weight")} == {"q4_k"}
    assert types(output="q8_0")["output.weight"] == "q8_0"
    assert types(embedding="q2_k")["token_embd.weight"] == "q2_k"
    assert types(keep_output=True)["output.weight"] == "f32"
    patterns = types(patterns=(("ffn_(up|down)", "q5_k"), (r"blk\.0\.", "q3_k")))
    assert patterns["blk.0.ffn_down.weight"] == "q5_k"  # the first pattern counts
    assert patterns["blk.0.attn_k.weight"] == "q3_k"
    assert patterns["blk.0.attn_norm.weight"] == "f32"


def test_every_mix_has_its_own_file_type() -> None:
    assert len({mix.file_type for mix in MIXES.values()}) == len(MIXES)
    assert always("q4_k")(choice.Place(0, 1, 0, facts_of(MODELS["llama"], imatrix=False))) == "q4_k"
