"""Several devices as one backend, each with its share of every layer: the oracle on 2 and 4 devices."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.parity.test_cria import SEED, answer, wanted
from tests.support.exhaustive import every
from tests.support.hf_models import HfCase, load_cases, write_hf
from tests.support.model import runs
from tests.support.model.file_runs import load_hf, reference_logits, run
from tests.support.model.parallel_runs import parallel
from tests.support.model.stress.shapes import SHAPES

import camelid
from camelid.backends.base import MemoryReport, Result, Ticket
from camelid.backends.common.codecs import decode
from camelid.backends.parallel.backend import ParallelBackend
from camelid.backends.reference.backend import ReferenceBackend, open_parallel
from camelid.errors import BackendError, PlanError, RequestError
from camelid.loading.deployment import Deployment
from camelid.loading.devices import devices_of
from camelid.loading.forecast import estimate_devices, likely_backend
from camelid.loading.model_file import open_model
from camelid.loading.options import LoadOptions
from camelid.model.arch import Arch, Model
from camelid.model.archs import ARCHS
from camelid.model.parallel import COLS, HEAD_NORMS, MLPS, ROWS, ROWS_OF_EACH, SUB_NORMS, shares
from camelid.model.spec import LayerSpec
from camelid.plan.ops import make_op
from camelid.plan.parallel import SUM, segments
from camelid.plan.plan import whole
from camelid.plan.weights import Weight, inline_f32
from cria.graded_items import first_prompts

CASES = load_cases()
BOUND = 1e-5
CRIA = Path(camelid.__file__).with_name("data") / "cria.gguf"
# Words of a reason -> families that run on one device for it.
REASONS = {
    "layers of kind 'mamba'": "mamba mamba_bias falcon_mamba jamba",
    "layers of kind 'mamba2'": "granitemoehybrid granitemoehybrid_dense mamba2 mamba2_bias nemotron_h "
    "nemotron_h_moe nemotron_h_moe_nano",
    "layers of kind 'mamba_heads'": "plamo2",
    "layers of kind 'attention_mamba2'": "falcon_h1 falcon_h1_norm",
    "layers of kind 'single'": "nemotron_h_bias",
    "layers of kind 'delta'": "qwen3_next qwen3_5 qwen3_5_moe",
    "layers of kind 'shortconv'": "lfm2 lfm2_old lfm2_moe",
    "layers of kind 'rwkv6'": "rwkv6",
    "layers of kind 'gated_rwkv6'": "rwkv6qwen2",
    "layers of kind 'rwkv7_first'": "rwkv7 arwkv7 arwkv7_gate",
    "layers of kind 'mla'": "deepseek_v2 deepseek_v3 deepseek_v3_plain minicpm3 plm",
    "layers of kind 'sparse_glu'": "gemma3n",
    "layers of different sizes": "deci gemma4 gemma4_moe nemotron_nas openelm",
    "one head of keys and values": "falcon gpt_bigcode refact",
    "norms whole rows inside a block": "bitnet",
    "norms all heads together": "olmo2 olmo3 olmoe minimax_m2",
    "a model with an encoder": "bert bert_ranking bloom_embedding gemma_embedding jina_bert "
    "jina_bert_ranking nomic_bert_moe xlm_roberta_flash xlm_roberta_flash_ranking "
    "jina_embeddings_v3 llama_bidirec modernbert modernbert_ranking nomic_bert qwen3_embedding qwen3_ranking "
    "xlm_roberta xlm_roberta_ranking t5 flan_t5 mt5 umt5 t5encoder",
}
REFUSED = {name: words for words, names in REASONS.items() for name in names.split()}
OF_PARTS = "QKAkFXSx"  # letters of dimensions that are divided: heads, inner columns of MLPs


def in_f32(weight: Weight) -> Weight:
    raw = np.frombuffer(base64.b64decode(weight.parts[0].data), np.uint8)
    return inline_f32(weight.name, decode(weight.type, raw, weight.rows * weight.cols).tolist(), weight.shape)


def in_floats(model: Model) -> Model:
    """The model with matrices in float32: its experts have one block of 32 columns."""
    return Model(model.spec, {n: w if w.load_ops else in_f32(w) for n, w in model.weights.items()})


STRESS = in_floats(SHAPES["gpt_oss"].model())  # sinks, experts with biases
IDS = SHAPES["gpt_oss"].token_ids[:9]


@pytest.mark.parametrize("case", every(4, [case for case in CASES if case.name not in REFUSED]), ids=str)
def test_logits_equal_those_of_one_device(case: HfCase, tmp_path: Path) -> None:
    loaded = load_hf(write_hf(tmp_path / case.name, case, dtype="f32"))
    longest, n_heads = max(map(len, case.token_ids)), loaded.model.spec.n_kv_heads
    want = reference_logits(loaded, case.token_ids)
    for n in (n for n in (2, 3, 4) if n_heads % n == 0):
        backend = parallel(open_parallel, loaded.model, n, longest)
        got = asyncio.run(run(backend, loaded, case.token_ids, 13))
        assert all(np.abs(a - b).max() <= BOUND for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("case", [case for case in CASES if case.name in REFUSED], ids=str)
def test_families_of_one_device_are_refused_by_name(case: HfCase, tmp_path: Path) -> None:
    model = load_hf(write_hf(tmp_path / case.name, case, dtype="f32")).model
    with pytest.raises(RequestError, match=REFUSED[case.name]) as caught:
        shares(model, 2)
    assert caught.value.field == "tensor_parallel"


def layer_tensors(arch: Arch) -> Iterator[tuple[str, str]]:
    """(name, letters of its dimensions) of the tensors in all layers that can be divided."""
    for mlp in sorted(MLPS):
        yield from {**arch.layer_tensors(LayerSpec(mlp=mlp)), **arch.optional}.items()


@pytest.mark.parametrize(
    "name", [n for n, a in ARCHS.items() if a.mixers[0] == "attention" and not a.is_encoder_decoder]
)
def test_tensors_of_heads_and_inner_columns_are_divided_or_refused(name: str) -> None:
    known = ROWS | ROWS_OF_EACH | COLS | HEAD_NORMS | SUB_NORMS
    left = {n for n, letters in layer_tensors(ARCHS[name]) if {*letters} & {*OF_PARTS}} - known
    assert not left


async def logits_and_state(backend: Any) -> tuple[Any, bytes, bytes]:
    """Logits of a prompt, a page of its keys and values, and the ring of its ids."""
    plan = runs.make_plan(STRESS, len(IDS), context=16)
    state = runs.make_state(plan.states, context=16, n_sequences=1)
    started = await runs.start(backend, [plan], state)
    logits = await started.feed([started.open_stream(IDS)], [(len(IDS),)])
    page = await backend.read_state("kv", 1)
    await backend.write_state("kv", 0, page)
    assert await backend.read_state("kv", 0) == page
    return logits[0], page, await backend.read_state("tokens", 1)


def test_sinks_biases_of_experts_and_state_equal_those_of_one_device() -> None:
    want = asyncio.run(logits_and_state(ReferenceBackend()))
    got = asyncio.run(logits_and_state(parallel(open_parallel, STRESS, 2, 16)))
    assert np.abs(got[0] - want[0]).max() <= BOUND
    pages = [np.frombuffer(found[1], np.float32) for found in (got, want)]
    assert pages[1].any() and np.abs(pages[0] - pages[1]).max() <= BOUND
    assert got[2] == want[2]


def test_a_device_has_its_share_of_the_bytes() -> None:
    own = shares(STRESS, 2)
    matrices = [name for name, w in STRESS.weights.items() if len(w.shape) > 1 and name.startswith("blk.")]
    for name in matrices:
        divided = not name.endswith(("ffn_gate_inp", "ffn_down_exps.bias"))
        assert own[0].weights[name].n_bytes * (2 if divided else 1) == STRESS.weights[name].n_bytes, name
    assert not [name for name in own[1].weights if name.endswith(("attn_output.bias", "down_exps.bias"))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "name"),
    [({"tensor_parallel": 2}, "2xreference"), ({"pipeline_parallel": 2}, "reference+reference")],
)
def test_tokens_of_cria_equal_one_device(how: dict[str, Any], name: str) -> None:
    prompts = first_prompts(SEED, 2)

    async def together() -> list[list[int]]:
        async with await camelid.aload(str(CRIA), backend="reference", **how) as llm:
            assert llm.capabilities.name == name
            return [await answer(llm, prompt) for prompt in prompts]

    assert asyncio.run(together()) == wanted(CRIA, 2)


@pytest.mark.parametrize("option", ["tensor_parallel", "pipeline_parallel"])
def test_memory_of_a_device_is_predicted(option: str) -> None:
    """Not that of the whole model: matrices of layers are divided, and a share has the embedding too."""
    model = asyncio.run(open_model("cria")).model
    how: dict[str, Any] = {"backend": "reference", "context": 64, option: 2}
    options = LoadOptions.of(**how)
    whole = likely_backend(model, options)
    devices = devices_of(whole, len(model.spec.layers))
    found = estimate_devices(Deployment.of(model, options, whole.capabilities()), devices)
    with camelid.load("cria", **how) as llm:
        several: Any = llm._running.backend
        held: list[MemoryReport] = [backend.memory() for backend in several.backends]
    assert [use.weights for use in found] == [use.weight_bytes for use in held]
    assert [sum(use.states.values()) + use.page_tables for use in found] == [use.state_bytes for use in held]
    assert all(use.weights < model.weight_bytes for use in found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tensor_parallel": 3}, "do not divide by it; possible numbers: 1, 2"),
        ({"tensor_parallel": 2, "backend": "cpu"}, "backend 'cpu' runs on one device; only reference, cuda"),
        ({"tensor_parallel": 2, "gpu_layers": 2}, "but gpu_layers is given too"),
        ({"tensor_parallel": 0}, "tensor_parallel is 0"),
        ({"tensor_parallel": 2, "pipeline_parallel": 2}, "but pipeline_parallel is given too"),
        ({"pipeline_parallel": 9}, "pipeline_parallel is 9, but cria has 3 places to cut; expected 1 to 4"),
        ({"pipeline_parallel": 2, "backend": "webgpu"}, "backend 'webgpu' runs on one device; only"),
        ({"tensor_parallel": 2, "adapter": "0,1"}, "backend 'reference' has no adapters"),
    ],
)
def test_what_does_not_fit_names_the_way_out(options: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        camelid.load("cria", **{"backend": "reference", **options})


class Other(ReferenceBackend):
    """A device that draws other ids."""

    async def read(self, ticket: Ticket) -> Result:
        return [row._replace(token_id=row.token_id + 1) for row in await super().read(ticket)]


def test_devices_that_draw_different_ids_are_noticed() -> None:
    def opened(n: int, own: Any) -> ParallelBackend:
        return ParallelBackend([*(ReferenceBackend() for _ in range(n - 1)), Other()], own)

    with pytest.raises(BackendError, match="drew different ids"):
        asyncio.run(logits_and_state(parallel(opened, STRESS, 2, 16)))


def test_a_second_step_must_wait() -> None:
    async def work() -> None:
        backend = parallel(open_parallel, STRESS, 2, 16)
        plan = runs.make_plan(STRESS, len(IDS), context=16)
        started = await runs.start(backend, [plan], runs.make_state(plan.states, context=16, n_sequences=1))
        await started.feed([started.open_stream(IDS)], [(len(IDS),)], drop=True)

    with pytest.raises(BackendError, match="a step is in flight"):
        asyncio.run(work())


def test_a_plan_is_cut_behind_what_is_summed() -> None:
    plan = runs.make_plan(shares(STRESS, 2)[0], 4, context=16)
    parts = segments(plan)
    assert len(parts) == 1 + 2 * len(STRESS.spec.layers)
    assert not [op for part in parts for op in part.plan.ops if op.name == SUM]
    for part in parts[:-1]:
        assert part.total in part.plan.stages[0].outputs


def test_a_sum_over_a_part_of_a_buffer_is_refused() -> None:
    plan = runs.make_plan(shares(STRESS, 2)[0], 4, context=16)
    x = next(op.view("x") for op in plan.ops if op.name == SUM)
    op = make_op(SUM, {"x": replace(whole(x.buffer), cols=x.cols - 4)}, {})
    wrong = replace(plan, stages=(replace(plan.stages[0], ops=(*plan.ops, op)),))
    with pytest.raises(PlanError, match="is a part of its buffer"):
        segments(wrong)
