"""Makes training.json with torch, transformers and PEFT in float64: losses, gradients, and three AdamW steps.

`python -m tests.golden.make_training --write`, where they are installed; without `--write` it compares. The
model is the golden case qwen3, whose rows of queries and keys have one order in both libraries. Values of A
and B are random, so that all gradients matter.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.support.hf_models import load_case, write_hf

FILE = Path(__file__).with_name("training.json")
CASE, RANK, ALPHA, RATE, DECAY, CLIP, BETAS, STEPS = "qwen3", 2, 3.0, 2e-3, 0.1, 1.0, (0.9, 0.99), 3
# (prompt, answer, role, weight) as in tests/support/training_runs.py
EXAMPLES = (
    ((3, 17, 40, 9), (11, 60, 7), "learn", 2.0),
    ((17, 5, 33), (8, 2, 2, 50), "keep", 1.0),
    ((40, 9, 21, 21, 6), (30, 1), "avoid", 1.0),
    ((9, 40), (44, 12, 19), "learn", 1.0),
)
SCALES = {"learn": 1.0, "keep": 0.7, "avoid": 1.3}
MODULES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip
F64 = NDArray[np.float64]


def names(n_layers: int) -> list[tuple[str, str]]:
    """(GGUF name, module) of each matrix, by layer."""
    pairs = (
        (f"blk.{i}.{ours}.weight", f"model.layers.{i}.{theirs}")
        for i in range(n_layers)
        for ours, theirs in MODULES.items()
    )
    return sorted(pairs)


def first_values(name: str, shape: tuple[int, ...], which: str) -> F64:
    """Values of A or B of a matrix, float32 numbers."""
    seed = sum(map(ord, name + which))
    return np.random.default_rng(seed).normal(0, 0.3, shape).astype(np.float32).astype(np.float64)


def packed(values: F64) -> str:
    return base64.b64encode(values.astype("<f8").tobytes()).decode()


def unpacked(text: str) -> F64:
    return np.frombuffer(base64.b64decode(text), "<f8")


def losses(torch: Any, model: Any, base: Any) -> Any:
    """[likelihood, kl, unlikelihood], each a mean over its tokens, times weights and scales."""
    n = {role: sum(len(a) for _, a, r, _ in EXAMPLES if r == role) for role in SCALES}
    found = dict.fromkeys(SCALES, torch.zeros((), dtype=torch.float64))
    for prompt, answer, role, weight in EXAMPLES:
        ids = torch.tensor([[*prompt, *answer][:-1]])
        rows = slice(len(prompt) - 1, None)
        logs = torch.log_softmax(model(ids).logits[0, rows], -1)
        target = logs[torch.arange(len(answer)), torch.tensor(answer)]
        if role == "learn":
            each = -target
        elif role == "avoid":
            each = -torch.log1p(-target.exp())
        else:
            with torch.no_grad():
                base_logs = torch.log_softmax(base(ids).logits[0, rows], -1)
            each = (base_logs.exp() * (base_logs - logs)).sum(-1)
        found[role] = found[role] + each.sum() * weight * SCALES[role] / n[role]
    return torch.stack([found[role] for role in SCALES])


def compute() -> dict[str, Any]:
    import peft  # of the environment that makes golden files
    import torch
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        write_hf(folder, load_case(CASE))
        load = AutoModelForCausalLM.from_pretrained
        base, wrapped = (load(folder, dtype=torch.float64, attn_implementation="eager") for _ in range(2))
    targets = [module.rsplit(".", 1)[1] for module in MODULES.values()]
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets)
    model = peft.get_peft_model(wrapped, config).double()
    pairs = names(base.config.num_hidden_layers)
    own = {}
    for name, module in pairs:
        layer = model.get_submodule(f"base_model.model.{module}")
        for which, linear in (("a", layer.lora_A["default"]), ("b", layer.lora_B["default"])):
            linear.weight.data = torch.tensor(first_values(name, tuple(linear.weight.shape), which))
            own[name, which] = linear.weight
    found = losses(torch, model, base)
    found.sum().backward()
    result = {"losses": packed(found.detach().numpy())}
    result["gradients"] = {f"{n} {w}": packed(p.grad.numpy().ravel()) for (n, w), p in own.items()}
    optimizer = torch.optim.AdamW(own.values(), lr=RATE, betas=BETAS, eps=1e-8, weight_decay=DECAY)
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses(torch, model, base).sum().backward()
        torch.nn.utils.clip_grad_norm_([*own.values()], CLIP)
        optimizer.step()
    result["after"] = packed(np.concatenate([p.detach().numpy().ravel() for p in own.values()])[::7])
    return result


def main() -> int:
    found = compute()
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(found) + "\n")
    wanted = json.loads(FILE.read_text())
    pairs = [(found[n], wanted[n]) for n in ("losses", "after")]
    pairs += [(found["gradients"][n], w) for n, w in wanted["gradients"].items()]
    error = max(float(np.abs(unpacked(a) - unpacked(b)).max()) for a, b in pairs)
    print(f"largest difference to the committed file: {error:.1e}")
    return int(error > 1e-10)


if __name__ == "__main__":
    raise SystemExit(main())
