"""Makes archs/*.json with transformers: the logits of tiny random models, one or more per architecture.

Run through `make goldens`: it recomputes everything, compares with the committed files, and shows that every
wrong fact of cases/ moves the logits. `--write` replaces the files; further arguments select cases by name
prefix. `--seed-search NAME` finds a seed for a model whose choices of experts are refused as too close.
make_classless.py makes the files of models that transformers has no class for. transformers runs in
float64 with eager attention and experts; its RMS norms, rotary angles, routers and softmaxes stay in float32.
The difference of an all-float32 run is printed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import load_file
from tests.golden.case_row import CaseRow
from tests.golden.cases import CASES, WRONG
from tests.golden.definitions import DEFINITIONS
from tests.golden.golden_files import bare_case, check_gap, mutations_show, same, search_seed, write_case
from tests.golden.mutation import Mutation
from tests.support import hf_models
from tests.support.hf_models import HfCase, nmse, weights_of, write_hf
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTextEncoding,
    LlamaConfig,
    LlamaModel,
    logging,
)

CLOSEST_EXPERTS = 4e-3  # between the router logits of the last selected expert and the first unselected one
ROUTERS = (".gate", ".router")  # names of routers; a router may have a linear map of such a name
LOGITS_SECOND = {"Llama4Router"}  # routers whose logits follow the probs
PROBS_FIRST = {"Gemma4TextRouter"}  # routers that return no logits: logarithms of probs differ as much

CLASSES = {
    hf_models.GENERATES: AutoModelForCausalLM,
    hf_models.RANKS: AutoModelForSequenceClassification,
    hf_models.TRANSDUCES: AutoModelForSeq2SeqLM,
    hf_models.ENCODER: AutoModelForTextEncoding,
    hf_models.ENCODES: AutoModel,
}

Logits = list[np.ndarray[Any, Any]]


class LlamaBidirectionalConfig(LlamaConfig):
    """config.json of a class that is published beside its weights, not in transformers."""

    model_type = "llama_bidirec"


class LlamaBidirectionalModel(LlamaModel):
    """Rows attend to all rows of their sequence (arXiv 2511.07025), or with `use_bidirectional_attention`
    false to earlier rows alone.
    """

    config_class = LlamaBidirectionalConfig

    def forward(self, input_ids: torch.Tensor, **options: Any) -> Any:
        n_rows = input_ids.shape[1]
        mask = torch.zeros(1, 1, n_rows, n_rows, dtype=self.dtype)  # added to the scores
        is_causal = not self.config.use_bidirectional_attention
        return super().forward(input_ids, attention_mask=None if is_causal else mask, **options)


def model_of(case: HfCase, folder: Path, *, dtype: torch.dtype, strict: bool) -> Any:
    attention = next(row.attention for row in CASES if row.name == case.name)
    options = {"dtype": dtype, "attn_implementation": attention, "experts_implementation": "eager"}
    model, told = CLASSES[case.head].from_pretrained(folder, output_loading_info=True, **options)
    wrong = {name: keys for name, keys in told.items() if keys}
    assert not (strict and wrong), wrong
    return model.eval()


def logits_of(model: Any, case: HfCase) -> Logits:
    """The outputs of each sequence, run separately and without a cache."""
    with torch.no_grad():
        runs = [output_of(model, case, ids) for ids in case.token_ids]
    assert all(np.isfinite(run).all() for run in runs)
    return runs


def output_of(model: Any, case: HfCase, ids: list[int]) -> np.ndarray[Any, Any]:
    if case.head == hf_models.GENERATES:
        return model(torch.tensor([ids]), use_cache=False).logits[0].double().numpy()
    if case.head == hf_models.TRANSDUCES:
        source, target = (torch.tensor([part]) for part in hf_models.halves(ids))
        return model(source, decoder_input_ids=target, use_cache=False).logits[0].double().numpy()
    types = {"token_type_ids": torch.tensor([case.token_types(ids)])} if any(case.token_types(ids)) else {}
    output = model(torch.tensor([ids]), **types)
    rows = output.logits if case.head == hf_models.RANKS else output.last_hidden_state[0]
    return pooled(case, rows.double().numpy())


def pooled(case: HfCase, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The pooled row [1, C] after the dense maps, or the rows of a case without a pooling."""
    if not case.pooling:
        return rows
    row = rows[-1:] if case.pooling == "last" else rows.mean(axis=0, keepdims=True)
    for matrix in hf_models.dense_of(case):
        row = row @ matrix.T.astype(np.float64)
    return row


def run(case: HfCase, mutation: Mutation | None = None, *, dtype: torch.dtype = torch.float64) -> Logits:
    changes = mutation.config if mutation else None
    with tempfile.TemporaryDirectory() as folder:
        write_hf(folder, case, config_changes=changes, neutral=mutation.neutral if mutation else ())
        return logits_of(model_of(case, Path(folder), dtype=dtype, strict=mutation is None), case)


def saved_shapes(row: CaseRow) -> dict[str, list[int]]:
    """Tensors that save_pretrained writes for this config, in order of names."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(row.config))
        head = hf_models.head_of(row.config["architectures"][0])
        model = CLASSES[head].from_config(AutoConfig.from_pretrained(folder))
        model.save_pretrained(folder)
        with safe_open(Path(folder) / "model.safetensors", "np") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in sorted(file.keys())}
    named = {name.removeprefix(row.prefix): list(shape) for name, shape in shapes.items()}
    masks = {f"h.{i}.attn.bias": [1, 1, 64, 64] for i in range(row.config["n_layer"])} if row.masks else {}
    heads = {"lm_head.weight": named["shared.weight"]} if row.untied else {}
    return dict(sorted((named | masks | heads).items()))


def check_tensors(row: CaseRow, case: HfCase) -> None:
    """transformers loads and saves exactly the written tensors: names, shapes and bits."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as again:
        model_of(case, write_hf(folder, case), dtype=torch.float32, strict=True).save_pretrained(again)
        saved = load_file(Path(again) / "model.safetensors")
    mine = {row.prefix + name: value for name, value in weights_of(case).items() if value.ndim < 4}
    assert saved.keys() == mine.keys(), saved.keys() ^ mine.keys()
    assert all(np.array_equal(saved[name], mine[name]) for name in mine)


def router_gap(module: Any, logits: Any, bias: Any) -> float:
    """The least difference, over all tokens, between the last chosen expert or group and the first of the
    others: of logits; of probabilities that a bias corrects.
    """
    used, logits = module.top_k, logits.double()
    gate = torch.softmax if hasattr(module, "moe_statics") else lambda x, _: x.sigmoid()
    scores = logits if bias is None else gate(logits, -1) + bias.double().flatten()
    n_groups, n_groups_used = (
        getattr(module, "num_group", None) or 1,
        getattr(module, "topk_group", None) or 1,
    )
    if n_groups == n_groups_used:
        return gap(scores, used)
    grouped = scores.view(len(scores), n_groups, -1)
    ranks = grouped.topk(2, dim=-1).values.sum(dim=-1)  # [T, groups]
    least = ranks.topk(n_groups_used, dim=-1).values[:, -1:]
    allowed = grouped.masked_fill((ranks < least)[..., None], -torch.inf).flatten(1)
    return min(gap(ranks, n_groups_used), gap(allowed, used))


def router_bias(module: Any, args: Any) -> Any:
    """The correction of the choice: a parameter of the router, or its second argument."""
    owner = getattr(module, "moe_statics", module)
    return args[1] if len(args) > 1 else getattr(owner, "e_score_correction_bias", None)


def gap(scores: Any, used: int) -> float:
    ranked = scores.sort(dim=-1, descending=True).values
    return float((ranked[:, used - 1] - ranked[:, used]).min())


def n_used(model: Any, router: str) -> int:
    """Experts that a router chooses, stated by the router or by the block around the router; 0: no router."""
    modules = (model.get_submodule(name) for name in (router, router.rpartition(".")[0]))
    found = next((module.top_k for module in modules if hasattr(module, "top_k")), 0)
    return found or getattr(getattr(model.get_submodule(router), "config", None), "top_k_experts", None) or 0


def check_routers(case: HfCase) -> None:
    """Every token's choice of experts is stable under float32 rounding."""
    gaps: list[float] = []

    def note(module: Any, args: Any, output: Any) -> None:
        logits = output[type(module).__name__ in LOGITS_SECOND] if isinstance(output, tuple) else output
        logits = logits.double().log() if type(module).__name__ in PROBS_FIRST else logits
        gaps.append(router_gap(module, logits, router_bias(module, args)))

    with tempfile.TemporaryDirectory() as folder:
        model = model_of(case, write_hf(folder, case), dtype=torch.float64, strict=True)
        for name, module in model.named_modules():
            is_router = name.endswith(ROUTERS) and not name.rpartition(".")[0].endswith(ROUTERS)
            if is_router and (used := n_used(model, name)):
                module.top_k = used
                module.register_forward_hook(note)
        logits_of(model, case)
    closest = min(gaps, default=torch.inf)
    assert gaps or not case.config.get("num_experts_per_tok"), f"{case.name}: no router was seen"
    check_gap(case, closest, CLOSEST_EXPERTS)


def golden(row: CaseRow) -> HfCase:
    case = bare_case(row, saved_shapes(row))
    check_tensors(row, case)
    check_routers(case)
    case.logits.extend(run(case))
    return case


def show_float32(case: HfCase) -> None:
    print(f"  {nmse(run(case, dtype=torch.float32), case.logits):8.1e}  float32 throughout")


def main() -> int:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    AutoConfig.register(LlamaBidirectionalConfig.model_type, LlamaBidirectionalConfig)
    AutoModel.register(LlamaBidirectionalConfig, LlamaBidirectionalModel)
    chosen = tuple(word for word in sys.argv[1:] if not word.startswith("--")) or ("",)
    good = {row.case for row in WRONG} == {row.name for row in CASES} - {"gpt2_bare_names"}
    rows = (row for row in CASES if row.config["model_type"] not in DEFINITIONS)
    if "--seed-search" in sys.argv:
        return 0 if all(search_seed(row, golden) for row in rows if row.name in chosen) else 1
    for row in (row for row in rows if row.name.startswith(chosen)):
        case = golden(row)
        if "--write" in sys.argv:
            write_case(case)
        show_float32(case)
        good = same(case) and mutations_show(case, run) and good
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
