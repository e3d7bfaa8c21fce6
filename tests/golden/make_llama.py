"""Makes llama_logits.json with transformers: the logits of three tiny random models.

Run through `make goldens`: it recomputes everything and compares with the committed file; `--write` replaces
it. Weights come from a seeded NumPy generator, so that the tests can make the same models.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.golden.llama_cases import CASES, FILE, TOKEN_IDS, LlamaCase
from tests.support.llama_names import as_published
from transformers import LlamaConfig, LlamaForCausalLM


def config(case: LlamaCase) -> LlamaConfig:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": case.rope_theta}
    if case.original_context:
        rope |= {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        rope["original_max_position_embeddings"] = case.original_context
    return LlamaConfig(
        vocab_size=320,
        hidden_size=case.hidden,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=case.n_heads,
        num_key_value_heads=case.n_kv_heads,
        head_dim=case.head_dim,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        rope_parameters=rope,
        tie_word_embeddings=case.tied,
        attention_bias=False,
    )


def rope_factors(case: LlamaCase, model: LlamaForCausalLM) -> list[float] | None:
    """Llama 3.1's divisors of the plain frequencies, in this model."""
    if not case.original_context:
        return None
    pairs = np.arange(case.head_dim // 2)
    plain = case.rope_theta ** (-2.0 * pairs / case.head_dim)
    return [float(f) for f in plain / model.model.rotary_emb.inv_freq.double().numpy()]


def state_dict(case: LlamaCase, weights: dict[str, Any]) -> dict[str, torch.Tensor]:
    published = as_published(weights, n_heads=case.n_heads, n_kv_heads=case.n_kv_heads)
    return {name: torch.tensor(value) for name, value in published.items()}


def golden(case: LlamaCase, folder: Path) -> dict[str, Any]:
    torch.manual_seed(0)
    model = LlamaForCausalLM(config(case)).eval()
    factors = rope_factors(case, model)
    weights = case.write(folder / f"{case.name}.gguf", factors)
    missing, unexpected = model.load_state_dict(state_dict(case, weights), strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    with torch.no_grad():
        logits = model(torch.tensor([TOKEN_IDS])).logits[0, ::5, ::3]
    rounded = [[float(f"{v:.6g}") for v in row] for row in logits.double().tolist()]
    return {"rope_factors": factors, "logits": rounded}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        made = {case.name: golden(case, Path(folder)) for case in CASES}
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(made, separators=(",", ":")) + "\n")
        return 0
    kept = json.loads(FILE.read_text())
    worst = max(
        float(np.abs(np.array(made[name]["logits"]) - np.array(kept[name]["logits"])).max()) for name in made
    )
    print(f"{FILE.name}: largest difference {worst:.2e}, allowed 1e-4")
    return 0 if worst < 1e-4 and made.keys() == kept.keys() else 1


if __name__ == "__main__":
    raise SystemExit(main())
