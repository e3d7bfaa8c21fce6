"""Training plans on cpu against the reference: whole models, all weight types, any number of threads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from tests.native.test_matrix import ONE_OF_EACH, values, weight
from tests.native.test_panels import TYPES
from tests.support.exhaustive import exhaustive, in_turn, share_of
from tests.support.hf_models import load_case, write_hf
from tests.support.model.file_runs import Loaded, load_hf
from tests.support.native.kernels import F32, VARIANTS, run_op
from tests.support.training_runs import EXAMPLES, F64, Trainable, ready, run_of

from camelid.backends.base import Backend, OpenSpec
from camelid.backends.common.op_runner import OpCase, Quantized
from camelid.backends.reference.backend import ReferenceBackend
from camelid.training.settings import TrainingSettings
from camelid.training.train import Training, train
from camelid_native.cpu.backend import CpuBackend

pytestmark = pytest.mark.parity

MOST_ERROR = 1e-5  # of float32 sums
NAMES = ("llama31", "qwen3", "gemma2", "gpt_neox", "cohere2", "gpt2")
SHAPES = ((40, 512, 3), (800, 256, 37), (16, 256, 100))  # out, in, rows: one and two parts of linear_back
ONLY_SOME = [name if name in ONE_OF_EACH else exhaustive(name) for name in TYPES]


def relative(found: F32 | F64, wanted: F64) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def on_cpu(trainable: Trainable, variant: str, threads: int, at: F64) -> tuple[F64, F64]:
    spec = OpenSpec(adapter=variant, threads=threads)
    return ready(trainable, CpuBackend, spec=spec, dtype=np.float32).step(at, run_of())


@pytest.mark.parametrize(("name", "variant"), in_turn(NAMES, VARIANTS))
def test_losses_and_gradients_are_the_references(name: str, variant: str, tmp_path: Path) -> None:
    write_hf(tmp_path, load_case(name))
    trainable = Trainable.of(load_hf(tmp_path))
    at = trainable.random_values()
    losses, gradient = ready(trainable).step(at, run_of())
    found, own = on_cpu(trainable, variant, 1, at)
    assert relative(found, losses) < MOST_ERROR and relative(own, gradient) < MOST_ERROR
    for threads in (2, 3):
        again, same = on_cpu(trainable, variant, threads, at)
        assert np.array_equal(again, found) and np.array_equal(same, own), "threads change no bit"


@pytest.mark.parametrize("variant", share_of(dict.fromkeys((VARIANTS[-1], *VARIANTS))))
def test_a_training_with_all_losses_is_the_references(variant: str, tmp_path: Path) -> None:
    write_hf(tmp_path, load_case("qwen3"))
    loaded = load_hf(tmp_path)
    settings = TrainingSettings(steps=4, rank=3, ewc=0.5, rate=5e-3, decay=0.1, rows=16)
    exact = trained(loaded, ReferenceBackend(), OpenSpec(activations=""), settings)
    found = [trained(loaded, CpuBackend(), OpenSpec(adapter=variant, threads=n), settings) for n in (1, 3)]
    assert found[0].adapter.digest == found[1].adapter.digest
    for own, wanted in zip(found[0].steps, exact.steps, strict=True):
        assert own.losses == pytest.approx(dict(wanted.losses), rel=1e-3, abs=1e-6)
        assert own.gradient == pytest.approx(wanted.gradient, rel=1e-3)


def trained(loaded: Loaded, backend: Backend, spec: OpenSpec, settings: TrainingSettings) -> Training:
    async def run() -> Training:
        await backend.open(spec)
        return await train(loaded.model, loaded.sources, backend, examples=EXAMPLES, settings=settings)

    return asyncio.run(run())


def random_rows(rows: int, cols: int, seed: int) -> F32:
    return np.random.default_rng(seed).normal(size=(rows, cols)).astype(np.float32)


def back_case(matrix: Quantized, dx: F32, dy: F32, *, adds: int) -> OpCase:
    views = {"dx": dx, "dy": dy}
    return OpCase(op="linear_back", views=views, weights={"weight": matrix}, attrs={"adds": adds})


@pytest.mark.parametrize("variant", share_of(dict.fromkeys((VARIANTS[-1], *VARIANTS))))
@pytest.mark.parametrize("type_name", ONLY_SOME)
def test_exact_products_round_no_input(type_name: str, variant: str) -> None:
    for n_out, n_in, n_rows in SHAPES:
        matrix = weight(type_name, n_out, n_in)
        x, dy = random_rows(n_rows, n_in, 1), random_rows(n_rows, n_out, 2)
        forward = OpCase(op="linear_exact", views={"y": dy, "x": x}, weights={"weight": matrix})
        y = run_op(forward, variant, 2)["y"]
        assert relative(y, x.astype(np.float64) @ values(matrix).T) < MOST_ERROR
        dx = run_op(back_case(matrix, x, dy, adds=0), variant, 2)["dx"]
        assert relative(dx, dy.astype(np.float64) @ values(matrix)) < MOST_ERROR


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_gradient_adds_to_what_is_there(variant: str) -> None:
    matrix, x, dy = weight("q8_0", 40, 64), random_rows(5, 64, 1), random_rows(5, 40, 2)
    case = back_case(matrix, x, dy, adds=1)
    wanted = x.astype(np.float64) + dy.astype(np.float64) @ values(matrix)
    assert relative(run_op(case, variant, 3)["dx"], wanted) < MOST_ERROR


@pytest.mark.parametrize("kept", [0, 1])
def test_a_planted_error_is_found(kept: int, tmp_path: Path) -> None:
    """Values of A 1 % off change losses and gradients by more than the tolerance."""
    write_hf(tmp_path, load_case("qwen3"))
    trainable = Trainable.of(load_hf(tmp_path))
    at = trainable.random_values()
    wanted = ready(trainable).step(at, run_of())[kept]
    found = on_cpu(trainable, VARIANTS[-1], 2, 1.01 * at)[kept]
    assert relative(found, wanted) > 10 * MOST_ERROR
