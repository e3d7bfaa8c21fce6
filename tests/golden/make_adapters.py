"""Makes adapters/*.json with PEFT: logits of tiny random models with an adapter, and combined products.

Run by the Python that has torch, transformers and peft: `python -m tests.golden.make_adapters` recomputes and
compares; `--write` replaces the files; further arguments select cases by name prefix. Models are those of
archs/*.json, in float64. `composed.json` holds dW of PEFT's `add_weighted_adapter` on a toy model.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
from peft import LoraConfig, get_peft_model
from peft.utils import merge_utils
from safetensors.torch import load_file
from tests.golden.make_archs import model_of, output_of
from tests.support.adapter_files import FOLDER, ROWS, load_adapter_case, numbers
from tests.support.hf_models import load_case, nmse, write_hf
from transformers import logging

ALLOWED = 1e-11


@dataclass(frozen=True)
class Row:
    """An adapter of the golden model `base`; numbers of the factors have this spread."""

    name: str
    base: str
    facts: dict[str, Any]
    spread: float = 0.25


EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
ROWS_OF_CASES = (
    Row(
        "llama_patterns",
        "llama31",
        {
            "target_modules": "all-linear",
            "use_rslora": True,
            "rank_pattern": {"^model.layers.0.self_attn.q_proj": 8, "down_proj": 2},
            "alpha_pattern": {r"model\.layers\.\d+\.mlp\.(gate|up)_proj": 5, "v_proj": 3},
        },
    ),
    Row("qwen2_layer", "qwen2", {"target_modules": ["q_proj", "v_proj"], "layers_to_transform": [1]}),
    Row("gemma2", "gemma2", {"target_modules": r".*\.(q|k|o|up|down)_proj"}),
    Row("phi3", "phi3_short", {"target_modules": "all-linear"}),
    Row("falcon", "falcon_40b", {"target_modules": "all-linear"}),
    Row("gpt_neox", "gpt_neox", {"target_modules": "all-linear"}),
    Row("bloom", "bloom", {"target_modules": ["query_key_value"]}),
    Row("gpt2", "gpt2", {"target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}),
    Row("mixtral", "mixtral", {"target_modules": ["q_proj", "k_proj"], "target_parameters": EXPERTS}),
    Row("gpt_oss", "gpt_oss", {"target_modules": ["q_proj"], "target_parameters": EXPERTS}),
    Row(
        "granitemoe",
        "granitemoe",
        {"target_modules": ["o_proj"], "target_parameters": ["gate_up_proj", "down_proj"]},
    ),
    Row(
        "qwen2_moe_down",
        "qwen2_moe",
        {"target_modules": ["gate_proj", "shared_expert_gate"], "target_parameters": EXPERTS[1:]},
    ),
    Row("mamba", "mamba", {"target_modules": ["in_proj", "x_proj"]}),
    Row("qwen3_next", "qwen3_next", {"target_modules": "all-linear"}, 0.15),
    Row("qwen3_5", "qwen3_5", {"target_modules": "all-linear"}, 0.15),
    Row("deepseek_v2", "deepseek_v2", {"target_modules": "all-linear"}, 0.15),
    Row("falcon_h1", "falcon_h1", {"target_modules": ["in_proj", "q_proj", "k_proj", "down_proj"]}),
    Row("nemotron_h", "nemotron_h", {"target_modules": ["in_proj", "q_proj", "up_proj"]}),
    Row("t5", "t5", {"target_modules": ["q", "k", "wo"]}, 0.05),
    Row("bert", "bert", {"target_modules": ["query", "value", "intermediate.dense"]}),
)


def made(row: Row) -> dict[str, Any]:
    """The facts of a case, with logits in float64."""
    case = load_case(row.base)
    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=6, **row.facts)
    with tempfile.TemporaryDirectory() as folder:
        base = write_hf(Path(folder) / "base", case)
        model = get_peft_model(model_of(case, base, dtype=torch.float64, strict=True), config).eval()
        model.save_pretrained(Path(folder) / "adapter")
        stored = load_file(Path(folder) / "adapter" / "adapter_model.safetensors")
        settings = json.loads((Path(folder) / "adapter" / "adapter_config.json").read_text())
        shapes = {name: list(tensor.shape) for name, tensor in sorted(stored.items())}
        values = {
            name: torch.tensor(numbers(f"{row.name}/{name}", s, row.spread)) for name, s in shapes.items()
        }
        peft.set_peft_model_state_dict(model, values)
        with torch.no_grad():
            logits = [output_of(model, case, ids)[-ROWS:] for ids in case.token_ids]
    for key in ("base_model_name_or_path", "peft_version", "auto_mapping"):
        settings.pop(key, None)
    for key in ("target_modules", "target_parameters"):  # sets, saved in any order
        settings[key] = sorted(settings[key]) if isinstance(settings.get(key), list) else settings.get(key)
    moved = nmse(logits, [run[-ROWS:] for run in case.logits])
    print(f"{row.name}: {len(shapes) // 2} modules, logits moved by {moved:.1e}")
    assert moved > 1e-2
    return {
        "base": row.base, "spread": row.spread, "config": settings, "tensors": shapes,
        "width": logits[0].shape[1], "logits": logits,
    }  # fmt: skip


def write(name: str, facts: dict[str, Any]) -> None:
    packed = [base64.b64encode(run.astype("<f4").tobytes()).decode() for run in facts["logits"]]
    lines = [f'"{key}": {json.dumps(value)}' for key, value in facts.items() if key != "logits"]
    lines.append(f'"logits": {json.dumps(packed, indent=0)}')
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def same(name: str, facts: dict[str, Any]) -> bool:
    kept = load_adapter_case(name)
    error = nmse([run.astype(np.float32) for run in facts["logits"]], kept.logits)
    print(f"{name}: NMSE {error:.1e} to the committed file, allowed {ALLOWED:.0e}")
    return error < ALLOWED and kept.config == facts["config"] and kept.tensors == facts["tensors"]


# Combinations of two adapters of a toy model with PEFT's names of methods.
SHAPES = {"wide": (12, 20), "tall": (18, 10)}  # [out, in]
WEIGHTS = (0.75, -0.5)
COMBINED: Mapping[str, tuple[str, dict[str, Any]]] = {
    "cat": ("cat", {}),
    "linear": ("linear", {}),
    "svd": ("svd", {"svd_rank": 3}),
    "ties": ("ties_svd", {"svd_rank": 3, "density": 0.4}),
    "dare": ("dare_linear_svd", {"svd_rank": 3, "density": 0.6}),
}


class Toy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name, (n_out, n_in) in SHAPES.items():
            setattr(self, name, torch.nn.Linear(n_in, n_out, bias=False, dtype=torch.float64))

    def forward(self, x: Any) -> Any:
        return x


def composed() -> dict[str, Any]:
    """dW of each method and module, and the masks that DARE used."""
    out: dict[str, Any] = {"shapes": SHAPES, "weights": WEIGHTS, "products": {}}
    for method, (name, facts) in COMBINED.items():
        model = toy()
        with fixed_masks():
            model.base_model.add_weighted_adapter(["a0", "a1"], [*WEIGHTS], "new", name, **facts)
        modules = {key: model.base_model.model.get_submodule(key) for key in SHAPES}
        out["products"][method] = {
            key: base64.b64encode(
                module.get_delta_weight("new").detach().numpy().astype("<f8").tobytes()
            ).decode()
            for key, module in modules.items()
        }
    return out


def toy() -> Any:
    config = LoraConfig(r=3, lora_alpha=6, target_modules=[*SHAPES], init_lora_weights=False)
    model = get_peft_model(Toy(), config, adapter_name="a0")
    model.add_adapter("a1", LoraConfig(r=3, lora_alpha=3, target_modules=[*SHAPES], init_lora_weights=False))
    with torch.no_grad():
        for key, (n_out, n_in) in SHAPES.items():
            module = model.base_model.model.get_submodule(key)
            for adapter in ("a0", "a1"):
                module.lora_A[adapter].weight.copy_(
                    torch.tensor(numbers(f"{adapter}/{key}/A", (3, n_in), 0.5))
                )
                module.lora_B[adapter].weight.copy_(
                    torch.tensor(numbers(f"{adapter}/{key}/B", (n_out, 3), 0.5))
                )
    return model.double()


class fixed_masks:
    """Bernoulli draws of PEFT by the masks of our own definition, in its order of modules and adapters."""

    def __enter__(self) -> None:
        from camelid.loading.adapters.combine import Recipe, dare_mask

        draws = iter([(key, n) for key in SHAPES for n in (0, 1)])
        self.kept: Callable[..., Any] = torch.bernoulli

        def draw(probs: Any) -> Any:
            key, n = next(draws)
            mask = dare_mask(tuple(probs.shape), Recipe(method="dare", density=0.6, seed=5), f"{key}/0", n)
            return torch.tensor(mask).to(probs.dtype)

        merge_utils.torch.bernoulli = draw

    def __exit__(self, *_: object) -> None:
        torch.bernoulli = self.kept


def same_composed(got: dict[str, Any]) -> bool:
    """True if the committed products are these, but for rounding."""
    kept = json.loads((FOLDER / "composed.json").read_text())
    worst = 0.0
    for method, products in got["products"].items():
        for key, text in products.items():
            ours, theirs = (
                np.frombuffer(base64.b64decode(t), "<f8") for t in (text, kept["products"][method][key])
            )
            worst = max(worst, float(np.abs(ours - theirs).max()))
    print(f"composed: {worst:.1e} from the committed products")
    return worst < 1e-9


def main() -> int:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    chosen = tuple(word for word in sys.argv[1:] if not word.startswith("--")) or ("",)
    good, writes = True, "--write" in sys.argv
    for row in (row for row in ROWS_OF_CASES if row.name.startswith(chosen)):
        facts = made(row)
        if writes:
            write(row.name, facts)
        good = same(row.name, facts) and good
    if "composed".startswith(chosen):
        facts = composed()
        if writes:
            (FOLDER / "composed.json").write_text(json.dumps(facts, indent=1) + "\n")
        good = same_composed(facts) and good
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
