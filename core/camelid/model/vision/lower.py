"""Lowers a tower to plans: runs of its encoder's layers, then the projector to rows for the decoder.

The rows of a plan are one image's patches; those of one row for the decoder follow each other. Every plan
takes one buffer and makes one. Rows attend within a sequence of the step, so a new plan begins where layers
change between attention in windows and in the whole image. The projector's plan reads the same bytes as
joined rows, or averages each sequence of patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from camelid.model.layers import apply_layer
from camelid.model.lowering import Lowering
from camelid.model.rope import rope_weights
from camelid.model.vision.projectors import PROJECTORS
from camelid.model.vision.spec import Tower
from camelid.plan.builder import PlanBuilder
from camelid.plan.plan import Plan, View
from camelid.plan.step import Capacity, ProgramKey

VISION = "vision"  # name of the entry
N_CHANNELS = 2  # of a patch: row and column in the image


@dataclass(frozen=True, slots=True)
class Run:
    """A plan's part of the tower: layers `start` to `end`; none for the projector."""

    start: int
    end: int
    is_windowed: bool = False

    @property
    def is_projector(self) -> bool:
        return self.start == self.end


def runs_of(tower: Tower) -> tuple[Run, ...]:
    """The runs of layers with one kind of attention, and the projector."""
    spec = tower.spec
    kinds = [bool(spec.window) and i not in spec.full_layers for i in range(spec.layers.n_layers)]
    runs: list[Run] = []
    for is_windowed, layers in groupby(enumerate(kinds), key=lambda item: item[1]):
        numbers = [i for i, _ in layers]
        runs.append(Run(numbers[0], numbers[-1] + 1, is_windowed))
    return (*runs, Run(spec.layers.n_layers, spec.layers.n_layers))


def lower_tower(tower: Tower, run: Run, n_patches: int) -> Plan:
    """The plan of one run for images of up to `n_patches` patches."""
    joins = run.is_projector and not PROJECTORS[tower.spec.projector].pools
    rows = n_patches // tower.spec.merge**2
    capacity = Capacity(
        rows=rows if joins else n_patches, sequences=max(rows, 1), outputs=max(rows, 1), updates=0
    )
    key = ProgramKey(entry=VISION, capacity=capacity, features=frozenset({f"layers_{run.start}_{run.end}"}))
    plan = PlanBuilder(key, (), n_channels=N_CHANNELS)
    c = Lowering(plan, tower.spec.layers, {**tower.weights, **rope_weights(tower.spec.layers)})
    y = _projected(c, tower) if run.is_projector else _encoded(c, tower, run)
    plan.made(y)
    return plan.build()


def _encoded(c: Lowering, tower: Tower, run: Run) -> View:
    """The patches after the run's layers; [T, C]."""
    x = _patches(c, tower) if run.start == 0 else c.plan.given("x", tower.spec.layers.hidden_size)
    for i in range(run.start, run.end):
        x = apply_layer(c, x, i)
    return c.norm_if(x, "v.post_ln") if run.end == tower.spec.layers.n_layers else x


def _patches(c: Lowering, tower: Tower) -> View:
    """The embedded patches; a convolution whose stride is its kernel is a linear map of each patch."""
    x = c.linear(c.plan.given("pixels", tower.spec.patch_cols), "v.patch_embd", "x")  # [T, C]
    if "v.position_embd" in c.weights:
        c.plan.embed_position(x, c.weights["v.position_embd"])
    return x


def _projected(c: Lowering, tower: Tower) -> View:
    """Rows for the decoder: the norm of each row's average patch, projected; [O, side_cols]."""
    x = c.plan.pool(c.plan.given("x", tower.spec.layers.hidden_size), "mean")  # [O, C]
    gain = c.weights["mm.soft_emb_norm"]
    return c.linear(c.plan.norm(x, gain, tower.spec.layers.norm_eps), "mm.input_projection", "rows")


def tower_plans(tower: Tower, n_patches: int) -> Sequence[Plan]:
    """The plans of all runs, in order."""
    return [lower_tower(tower, run, n_patches) for run in runs_of(tower)]
