"""Runs training plans of small models: losses and gradients of one run, on any backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tests.support.model.file_runs import Loaded

from camelid.backends.base import Backend, OpenSpec, PoolSize, Program
from camelid.backends.reference.backend import ReferenceBackend
from camelid.model.decoder import lower
from camelid.plan.differentiate import differentiate
from camelid.plan.op_rows_training import TRAINED
from camelid.plan.plan import Plan
from camelid.plan.step import Capacity, ProgramKey
from camelid.plan.training_forward import Terms, terms_of
from camelid.training.examples import Example, Run, runs_of
from camelid.training.settings import TrainingSettings

F64 = NDArray[np.float64]
CAPACITY = Capacity(rows=40, sequences=8, outputs=24, updates=0)
EXAMPLES = (
    Example(prompt=(3, 17, 40, 9), answer=(11, 60, 7), role="learn", weight=2.0),
    Example(prompt=(17, 5, 33), answer=(8, 2, 2, 50), role="keep"),
    Example(prompt=(40, 9, 21, 21, 6), answer=(30, 1), role="avoid"),
    Example(prompt=(9, 40), answer=(44, 12, 19), role="learn"),
)


@dataclass(frozen=True)
class Trainable:
    """A model's training plan, with its terms."""

    loaded: Loaded
    terms: Terms
    plan: Plan

    @classmethod
    def of(cls, loaded: Loaded, *, keeps: str = "layers", with_base: bool = True, rank: int = 2) -> Trainable:
        key = ProgramKey(entry="mixed", capacity=CAPACITY)
        plan = lower(loaded.model, key, cuts=tuple(range(1, len(loaded.model.spec.layers) + 1)))
        terms = terms_of(plan.ops, rank=rank, scale=1.5)
        return cls(loaded, terms, differentiate(plan, wrt=terms, with_base=with_base, keeps=keeps))

    def random_values(self, seed: int = 3) -> F64:
        """Values of A and B, all of which matter."""
        values = np.random.default_rng(seed).normal(0, 0.3, self.terms.n_values)
        return values.astype(np.float32).astype(np.float64)


def run_of(examples: Sequence[Example] = EXAMPLES, invocation: Sequence[int] = ()) -> Run:
    settings = TrainingSettings(kl=0.7, unlikelihood=1.3)
    runs = [*runs_of(examples, CAPACITY, scales=settings.scales, invocation=invocation, n_groups=4)]
    assert len(runs) == 1
    return runs[0]


@dataclass
class Ready:
    """A training plan on a backend."""

    backend: Backend
    program: Program
    dtype: type
    terms: Terms

    def step(self, values: F64, run: Run) -> tuple[F64, F64]:
        """(losses [O, 3], gradient [n]) of a run with these values of A and B."""
        return asyncio.run(self._step(values, run))

    async def _step(self, values: F64, run: Run) -> tuple[F64, F64]:
        state = np.concatenate([values, np.zeros_like(values)]).astype(self.dtype)
        await self.backend.write_state(TRAINED, 0, state.tobytes())
        ticket = self.backend.run(self.program, *run.encoded(self.program.plan))
        await self.backend.read(ticket)
        losses = np.frombuffer((await self.backend.read_boundary(ticket))["losses"], self.dtype)
        held = np.frombuffer(await self.backend.read_state(TRAINED, 0), self.dtype)
        return losses.reshape(-1, 3).astype(np.float64), held[len(values) :].astype(np.float64)


def ready(
    trainable: Trainable,
    make: Callable[[], Backend] = ReferenceBackend,
    *,
    spec: OpenSpec = OpenSpec(activations="f64"),  # noqa: B008 - frozen
    dtype: type = np.float64,
) -> Ready:
    return asyncio.run(_ready(trainable, make(), spec, dtype))


async def _ready(trainable: Trainable, backend: Backend, spec: OpenSpec, dtype: type) -> Ready:
    plan, sources = trainable.plan, trainable.loaded.sources
    await backend.open(spec)
    weights = plan.weights()
    used = {part.source for weight in weights.values() for part in weight.parts}
    await backend.load([*weights.values()], {n: s for n, s in sources.items() if n in used})
    await backend.allocate(plan.states, {s.name: PoolSize(units=2) for s in plan.states})
    return Ready(backend, await backend.compile(plan), dtype, trainable.terms)


def slopes(loss: Callable[[F64], float], values: F64, directions: Sequence[F64], width: float = 1e-4) -> F64:
    """Derivatives along directions, by central differences of fourth order."""
    found = []
    for direction in directions:
        near, far = (
            loss(values + by * direction) - loss(values - by * direction) for by in (width, 2 * width)
        )
        found.append((8.0 * near - far) / (12.0 * width))
    return np.array(found)
