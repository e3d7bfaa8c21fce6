"""The side of torch and PEFT in `tests/perf/training.py`; imports nothing of Camelid.

The model is transformers' Llama of the file's shape in float32 with random weights: values do not change the
speed. LoRA is PEFT's on all linear maps of the layers. A step pads its examples to runs of at most `ROWS`
rows, as the usual collators do, and labels answers only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

Examples = Sequence[tuple[Sequence[int], Sequence[int]]]  # prompt and answer of each
ROWS = 512
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def open_torch(shape: dict[str, Any], examples: Examples, *, rank: int, threads: int) -> Callable[[], float]:
    """A function that trains one step and returns its loss."""
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    peft: Any = import_module("peft")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**shape, attn_implementation="sdpa")
    base = transformers.LlamaForCausalLM(config).float()
    lora = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=TARGETS, task_type="CAUSAL_LM")
    model = peft.get_peft_model(base, lora)
    model.train()
    own = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(own, lr=1e-4, weight_decay=0.0)
    batches = [_padded(torch, batch) for batch in _batches(examples)]
    n_answers = sum(len(answer) for _, answer in examples)

    def step() -> float:
        optimizer.zero_grad()
        total = 0.0
        for batch, n in batches:
            loss = model(**batch).loss * (n / n_answers)
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(own, 1.0)
        optimizer.step()
        return total

    return step


def _batches(examples: Examples) -> Iterator[Examples]:
    """Examples of similar length, together at most ROWS rows when padded."""
    batch: list[tuple[Sequence[int], Sequence[int]]] = []
    for example in sorted(examples, key=lambda e: -len(e[0]) - len(e[1])):
        longest = max(len(p) + len(a) for p, a in [*batch, example])
        if batch and longest * (len(batch) + 1) > ROWS:
            yield batch
            batch = []
        batch.append(example)
    yield batch


def _padded(torch: Any, batch: Examples) -> tuple[dict[str, Any], int]:
    longest = max(len(prompt) + len(answer) for prompt, answer in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for i, (prompt, answer) in enumerate(batch):
        n = len(prompt) + len(answer)
        ids[i, :n] = torch.tensor([*prompt, *answer])
        mask[i, :n] = 1
        labels[i, len(prompt) : n] = torch.tensor(list(answer))
    n_answers = sum(len(answer) for _, answer in batch)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}, n_answers
