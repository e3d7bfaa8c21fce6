"""Gradients and AdamW on the reference against torch, transformers and PEFT in float64 (golden file)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.golden import make_training as golden
from tests.support.hf_models import load_case, write_hf
from tests.support.model.file_runs import load_hf
from tests.support.training_runs import F64, Ready, Trainable, ready, run_of

from camelid.plan.differentiate import update_plan
from camelid.plan.op_rows_training import TRAINED
from camelid.plan.training_forward import Term
from camelid.training.examples import Example
from camelid.training.train import one_row

pytestmark = pytest.mark.conformance

MOST_ERROR = 1e-6
WANTED = json.loads(golden.FILE.read_text())


@pytest.fixture(scope="module")
def trainable(tmp_path_factory: pytest.TempPathFactory) -> Trainable:
    folder = tmp_path_factory.mktemp("model")
    write_hf(folder, load_case(golden.CASE))
    return Trainable.of(load_hf(folder), rank=golden.RANK)


def examples() -> list[Example]:
    return [
        Example(prompt=prompt, answer=answer, role=role, weight=weight)
        for prompt, answer, role, weight in golden.EXAMPLES
    ]


@dataclass(frozen=True)
class Matrix:
    """A or B of a term: its floats, and PEFT's shape; B is transposed."""

    which: str
    place: slice
    shape: tuple[int, int]

    def as_peft(self, values: F64) -> F64:
        part = values[self.place]
        return part.reshape(self.shape) if self.which == "a" else part.reshape(self.shape[::-1]).T


def parts(term: Term) -> tuple[Matrix, Matrix]:
    a = Matrix("a", slice(term.at, term.b_at), (term.rank, term.n_in))
    return a, Matrix("b", slice(term.b_at, term.end), (term.n_out, term.rank))


def first_values(trainable: Trainable) -> F64:
    values = np.zeros(trainable.terms.n_values)
    for term in trainable.terms.of.values():
        for own in parts(term):
            value = golden.first_values(term.name, own.shape, own.which)
            values[own.place] = (value.T if own.which == "b" else value).ravel()
    return values


def in_order(trainable: Trainable, values: F64) -> F64:
    """Values in the golden file's order."""
    terms = sorted(trainable.terms.of.values(), key=lambda term: term.name)
    return np.concatenate([own.as_peft(values).ravel() for term in terms for own in parts(term)])


def test_losses_and_gradients_are_torchs(trainable: Trainable) -> None:
    losses, gradient = ready(trainable).step(first_values(trainable), run_of(examples()))
    assert np.allclose(losses.sum(axis=0), golden.unpacked(WANTED["losses"]), rtol=MOST_ERROR)
    for term in trainable.terms.of.values():
        for own in parts(term):
            name = f"{term.name} {own.which}"
            wanted, found = golden.unpacked(WANTED["gradients"][name]), own.as_peft(gradient).ravel()
            assert np.linalg.norm(found - wanted) < MOST_ERROR * np.linalg.norm(wanted), name


def test_steps_are_torchs(trainable: Trainable) -> None:
    values = asyncio.run(_three_steps(ready(trainable), first_values(trainable)))
    moved = values - first_values(trainable)
    wanted = golden.unpacked(WANTED["after"]) - in_order(trainable, first_values(trainable))[::7]
    found = in_order(trainable, moved)[::7]
    assert np.linalg.norm(found - wanted) < MOST_ERROR * np.linalg.norm(wanted)


async def _three_steps(at: Ready, values: F64) -> F64:
    first, second = golden.BETAS
    backend, plan = at.backend, at.program.plan
    update = await backend.compile(update_plan(plan, first_beta=first, second_beta=second))
    run, zeros = run_of(examples()), np.zeros_like(values)
    await backend.write_state(TRAINED, 0, np.concatenate([values, zeros]).tobytes())
    for n in range(1, golden.STEPS + 1):
        backend.run(at.program, *run.encoded(plan))
        how = _how(golden.RATE, 1 - first**n, 1 - second**n, golden.CLIP, golden.DECAY)
        backend.run(update, one_row(update.plan), {"how": how.tobytes()})
    held: NDArray[Any] = np.frombuffer(await backend.read_state(TRAINED, 0))
    assert not held[len(values) :].any(), "the gradient begins anew"
    return held[: len(values)]


def _how(*numbers: float) -> NDArray[np.float32]:
    return np.array([*numbers, 0.0], np.float32)
