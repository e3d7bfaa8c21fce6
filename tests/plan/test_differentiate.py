"""Training plans of whole models: gradients against finite differences, memory, and what is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import decoders, load_case, write_hf
from tests.support.model.file_runs import Loaded, load_gguf, load_hf
from tests.support.training_runs import CAPACITY, EXAMPLES, F64, Ready, Trainable, ready, run_of, slopes

from camelid.backends.base import PoolSize
from camelid.backends.reference.backend import KERNELS
from camelid.backends.reference.frame import ExactFrame, StatePools
from camelid.backends.reference.store import WeightStore
from camelid.errors import PlanError
from camelid.model.decoder import lower
from camelid.plan.differentiate import differentiate, update_plan
from camelid.plan.memory import plan_arena
from camelid.plan.op_rows_training import FISHER, MOMENTS, TRAINED
from camelid.plan.ops import make_op
from camelid.plan.plan import Buffer, Plan, StateRef, StateSpec, whole
from camelid.plan.step import Capacity, ProgramKey, Step
from camelid.plan.training_forward import terms_of
from camelid.training.examples import AVOID, KEEP, LEARN
from camelid.training.train import one_row

MOST_ERROR = 1e-6
KINKED = {
    "arcee",
    "arcee_bias",
    "bitnet",
    "nemotron",
    "nemotron_bias",
}  # squared ReLU: differences cross kinks
FEW = ("llama31", "qwen3", "gemma2", "gpt_neox", "cohere2", "phi2", "olmo2", "granite")
REFUSED = {
    "mixtral": "router",
    "mamba": "conv1d",
    "deepseek_v2": "linear_heads",
    "gpt_oss": "sinks",
    "bloom": "bias",
    "gemma4": "part of a buffer",
    "arwkv7": "token_shift",
}


def load(name: str, folder: Path) -> Loaded:
    write_hf(folder, load_case(name))
    return load_hf(folder)


def _error(trainable: Trainable, invocation: tuple[int, ...] = ()) -> float:
    """Relative error of the gradient along random directions of length 1."""
    at, run, values = ready(trainable), run_of(invocation=invocation), trainable.random_values()
    rng = np.random.default_rng(1)
    directions = [d / np.linalg.norm(d) for d in rng.normal(size=(4, len(values)))]
    losses, gradient = at.step(values, run)
    assert (np.abs(losses).sum(axis=0) > 0).all(), "each loss is engaged"
    wanted = slopes(lambda x: float(at.step(x, run)[0].sum()), values, directions, 2e-3)
    found = np.array([gradient @ direction for direction in directions])
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def _trainable_names() -> list[str]:
    return sorted({case.name for case in decoders()} - {*REFUSED} - KINKED)


@pytest.mark.parametrize("name", FEW)
def test_gradients_of_models_are_finite_differences(name: str, tmp_path: Path) -> None:
    assert _error(Trainable.of(load(name, tmp_path))) < MOST_ERROR


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", _trainable_names())
def test_gradients_of_all_models_are_finite_differences(name: str, tmp_path: Path) -> None:
    try:
        trainable = Trainable.of(load(name, tmp_path))
    except PlanError:
        pytest.skip("an op without a gradient")
    assert _error(trainable) < 1e-5


def test_activated_gradients_are_finite_differences(tmp_path: Path) -> None:
    examples = [replace(e, prompt=(*e.prompt, 70, 71)) for e in EXAMPLES]
    trainable = Trainable.of(load("qwen3", tmp_path))
    at, run, values = ready(trainable), run_of(examples, (70, 71)), trainable.random_values()
    assert list(run.acts[:8]) != [1.0] * 8
    direction = np.random.default_rng(2).normal(size=len(values))
    direction /= np.linalg.norm(direction)
    wanted = slopes(lambda x: float(at.step(x, run)[0].sum()), values, [direction], 2e-3)[0]
    assert abs(at.step(values, run)[1] @ direction - wanted) < MOST_ERROR * abs(wanted)


def test_a_prompt_before_the_invocation_is_the_bases(tmp_path: Path) -> None:
    """The loss of a row before the adapter acts does not depend on the adapter."""
    trainable = Trainable.of(load("qwen3", tmp_path))
    at, run = ready(trainable), run_of([replace(EXAMPLES[0], prompt=(3, 17), answer=(70, 11))], (17,))
    run.acts[1] = 0.0  # the row that predicts the first answer token
    losses = [
        at.step(values, run)[0] for values in (trainable.random_values(), 0 * trainable.random_values())
    ]
    assert losses[0][0, 0] == losses[1][0, 0]
    assert losses[0][1, 0] != losses[1][1, 0]


def test_kept_products_change_no_gradient(tmp_path: Path) -> None:
    loaded = load("gemma2", tmp_path)
    few, many = (Trainable.of(loaded, keeps=keeps) for keeps in ("layers", "products"))
    values, run = few.random_values(), run_of()
    (losses, gradient), (again, same) = (ready(t).step(values, run) for t in (few, many))
    assert np.array_equal(losses, again)
    assert np.allclose(gradient, same, rtol=1e-12, atol=1e-14)
    products = {"linear_exact", "attend_causal"}
    assert [sum(op.name in products for op in t.plan.ops) for t in (few, many)] == [74, 50]


@pytest.mark.parametrize("role", [LEARN, KEEP, AVOID])
def test_each_loss_alone(role: str, tmp_path: Path) -> None:
    trainable = Trainable.of(load("qwen3", tmp_path))
    at, values = ready(trainable), trainable.random_values()
    run = run_of([replace(example, role=role) for example in EXAMPLES])
    losses, gradient = at.step(values, run)
    column = [LEARN, KEEP, AVOID].index(role)
    assert (losses.sum(axis=0)[column] > 0) and np.delete(losses, column, axis=1).any() == np.False_
    direction = np.random.default_rng(2).normal(size=len(values))
    direction /= np.linalg.norm(direction)
    wanted = slopes(lambda x: float(at.step(x, run)[0].sum()), values, [direction], 2e-3)[0]
    assert abs(gradient @ direction - wanted) < MOST_ERROR * abs(wanted)


def test_the_base_has_no_divergence_from_itself(tmp_path: Path) -> None:
    trainable = Trainable.of(load("qwen3", tmp_path))
    losses, gradient = ready(trainable).step(0.0 * trainable.random_values(), run_of([EXAMPLES[1]]))
    assert np.abs(losses).max() < 1e-12 and np.abs(gradient).max() < 1e-12


def test_company_changes_no_gradient(tmp_path: Path) -> None:
    """The gradient of a run is the sum of its sequences' gradients, each in a run of its own."""
    trainable = Trainable.of(load("cohere2", tmp_path))
    at, values = ready(trainable), trainable.random_values()
    both = [replace(e, role=LEARN, answer=(5, 9)) for e in EXAMPLES[:2]]
    together = at.step(values, run_of(both))[1]
    alone = [at.step(values, run_of([replace(e, weight=e.weight / 2)]))[1] for e in both]
    assert np.allclose(together, sum(alone), rtol=1e-10, atol=1e-12)


def _arena(n_layers: int, rows: int, folder: Path, keeps: str = "layers") -> int:
    path = folder / f"{n_layers}.gguf"
    write_tiny_llama(path, seed=1, n_layers=n_layers, hidden=64, n_heads=4, n_kv_heads=2, head_dim=16, ffn=96)
    capacity = Capacity(rows=rows, sequences=4, outputs=16, updates=0)
    key = ProgramKey(entry="mixed", capacity=capacity)
    plan = lower(load_gguf(path).model, key, cuts=tuple(range(1, n_layers + 1)))
    wrt = terms_of(plan.ops, rank=4, scale=1.0)
    return plan_arena(differentiate(plan, wrt=wrt, keeps=keeps)).n_bytes


def test_a_layer_costs_one_row_of_the_stream_a_token(tmp_path: Path) -> None:
    """The stated bound: per layer and row the stream, C floats; all else is that of one layer."""
    small, large = (_arena(n_layers, 64, tmp_path) for n_layers in (4, 10))
    assert large - small == 6 * 64 * 4 * 64
    wide = _arena(10, 128, tmp_path)
    assert wide < 2 * large
    assert _arena(10, 64, tmp_path, "products") > 2 * large


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_without_gradients_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=REFUSED[name]):
        Trainable.of(load(name, tmp_path))


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    trainable = Trainable.of(load("qwen3", tmp_path))
    plan = lower(trainable.loaded.model, ProgramKey(entry="mixed", capacity=CAPACITY), cuts=(1, 2))
    with pytest.raises(PlanError, match="keeps"):
        differentiate(plan, wrt=trainable.terms, keeps="all")
    with pytest.raises(PlanError, match="rank is 65"):
        terms_of(plan.ops, rank=65, scale=1.0)
    with pytest.raises(PlanError, match=r"blk\.0\.attn_q"):
        terms_of(plan.ops, rank=1, scale=1.0, is_target=lambda name: False)


async def _anchored(at: Ready, sums: dict[str, F64], values: F64) -> F64:
    """The gradient of the penalty: AdamW's first average after one update, over 1 - beta."""
    update = await at.backend.compile(update_plan(at.program.plan, anchors=at.terms, first_beta=0.5))
    await at.backend.write_state(TRAINED, 0, np.concatenate([values, 0.0 * values]).tobytes())
    await at.backend.write_state(FISHER, 0, np.concatenate([sums["rows"], sums["cols"]]).tobytes())
    how = np.array([0.0, 0.5, 0.5, 0.0, 0.0, 0.7], np.float32)
    at.backend.run(update, one_row(update.plan), {"how": how.tobytes()})
    held = np.frombuffer(await at.backend.read_state(MOMENTS, 0))
    return 2.0 * held[: len(values)]


def test_the_penalty_is_that_of_the_factored_fisher(tmp_path: Path) -> None:
    trainable = Trainable.of(load("qwen3", tmp_path))
    at, rng = ready(trainable), np.random.default_rng(4)
    places, values = trainable.terms.measured, trainable.random_values()
    sums = {name: rng.uniform(0.1, 1.0, n) for name, n in at.program.plan.state(FISHER).tensors}

    def penalty(x: F64) -> float:
        total = 0.0
        for name, term in trainable.terms.of.items():
            rows = sums["rows"][places[name][0] :][: term.n_out]
            cols = sums["cols"][places[name][1] :][: term.n_in]
            a = x[term.at : term.b_at].reshape(term.rank, -1)
            b = x[term.b_at : term.end].reshape(term.rank, -1).T
            total += float((np.outer(rows, cols) / rows.sum() * (b @ a) ** 2).sum())
        return 0.7 * total

    direction = rng.normal(size=len(values))
    direction /= np.linalg.norm(direction)
    found = asyncio.run(_anchored(at, sums, values)) @ direction
    wanted = slopes(penalty, values, [direction], 1e-2)[0]
    assert abs(found - wanted) < MOST_ERROR * abs(wanted)


def test_the_fisher_sums_are_those_of_each_rows_gradient() -> None:
    x, dy = (np.random.default_rng(i).normal(size=(5, n)) for i, n in ((1, 6), (2, 4)))
    squares = np.array([np.outer(d, v) ** 2 for d, v in zip(dy, x, strict=True)]).sum(axis=0)
    spec = StateSpec(FISHER, "trained", (), (("rows", 7), ("cols", 6)), 1)
    pools = StatePools.allocate([spec], {FISHER: PoolSize(units=1)}, exact=True)
    buffers = {name: whole(Buffer(name, "T", n)) for name, n in (("x", 6), ("dy", 4))}
    operands = {**buffers, FISHER: StateRef(FISHER)}
    op = make_op("measure", operands, {"rows_at": 3, "cols_at": 0})
    plan = Plan(key=ProgramKey(entry="measure", capacity=CAPACITY), stages=(), states=(spec,))
    KERNELS["measure"](op, ExactFrame(plan, Step(), WeightStore(), pools, {"x": x, "dy": dy}, []))
    rows, cols = (pools.tensor(StateRef(FISHER), name)[0, 0] for name in ("rows", "cols"))
    assert np.allclose(rows[3:], squares.sum(axis=1)) and np.allclose(cols, squares.sum(axis=0))
