"""Lowers a tower to plans: runs of its encoder's layers, and the projectors to rows for the decoder.

The rows of an encoder's plan are one image's patches; those of one row for the decoder follow each other.
Rows attend within a sequence of the step, so a new plan begins where layers change between attention in
windows and in the whole image, and behind a layer whose output a projector reads. A projector's plan reads
the patches' bytes as joined rows, or averages each sequence of patches.
"""

from __future__ import annotations

from dataclasses import dataclass

from camelid.model.layers import apply_layer
from camelid.model.lowering import Lowering
from camelid.model.rope import rope_weights
from camelid.model.vision.projectors import PROJECTORS
from camelid.model.vision.spec import Tower
from camelid.plan.builder import PlanBuilder
from camelid.plan.plan import Plan, View
from camelid.plan.step import Capacity, ProgramKey

VISION = "vision"  # name of the entry
N_CHANNELS = 2  # of a patch: row and column in the image, or its row of the position table


@dataclass(frozen=True, slots=True)
class Run:
    """A plan's part of the tower: the layers `start` to `end`, or the projector behind layer `start` - 1."""

    start: int
    end: int
    is_windowed: bool = False

    @property
    def is_projector(self) -> bool:
        return self.start == self.end


def runs_of(tower: Tower) -> tuple[Run, ...]:
    """The runs in order. The projectors of tapped layers, and that of the last, follow their layers."""
    spec = tower.spec
    n = spec.layers.n_layers
    windowed = [bool(spec.window) and i not in spec.full_layers for i in range(n)]
    ends = [i + 1 for i in range(n) if i + 1 == n or windowed[i] != windowed[i + 1] or i in spec.taps]
    runs: list[Run] = []
    for start, end in zip([0, *ends], ends, strict=False):
        runs.append(Run(start, end, windowed[start]))
        runs += [Run(end, end)] if end - 1 in spec.taps and end < n else []
    return (*runs, Run(n, n))


def lower_tower(tower: Tower, run: Run, n_patches: int) -> Plan:
    """The plan of one run for images of up to `n_patches` patches."""
    joins = run.is_projector and not PROJECTORS[tower.spec.projector].pools
    n_rows = max(n_patches // tower.spec.merge**2, 1)
    capacity = Capacity(rows=n_rows if joins else n_patches, sequences=n_rows, outputs=n_rows, updates=0)
    key = ProgramKey(entry=VISION, capacity=capacity, features=frozenset({f"layers_{run.start}_{run.end}"}))
    plan = PlanBuilder(key, (), n_channels=N_CHANNELS)
    c = Lowering(plan, tower.spec.layers, {**tower.weights, **rope_weights(tower.spec.layers)})
    plan.made(_projected(c, tower, run) if run.is_projector else _encoded(c, tower, run))
    return plan.build()


def _encoded(c: Lowering, tower: Tower, run: Run) -> View:
    """The patches after the run's layers; [T, C]."""
    x = _patches(c, tower) if run.start == 0 else c.plan.given("x", tower.spec.layers.hidden_size)
    for i in range(run.start, run.end):
        x = apply_layer(c, x, i)
    is_last = run.end == tower.spec.layers.n_layers
    return c.norm(x, "v.post_ln") if is_last and PROJECTORS[tower.spec.projector].pools else x


def _patches(c: Lowering, tower: Tower) -> View:
    """The embedded patches; a convolution whose stride is its kernel is a linear map of each patch.

    Both frames of a still image are the same, so a kernel over two frames is two maps of one patch. Positions
    are a row of a table, or by weights of all its rows where images have any size.
    """
    pixels = c.plan.given("pixels", tower.spec.patch_cols)
    x = c.linear(pixels, "v.patch_embd", "x")  # [T, C]
    if "v.patch_embd.weight.1" in c.weights:
        c.plan.add(x, c.plan.linear(pixels, c.weights["v.patch_embd.weight.1"]))
    if tower.spec.n_positions and tower.spec.resizing.size:
        c.plan.embed_position(x, c.weights["v.position_embd"])
    elif tower.spec.n_positions:
        weights = c.plan.given("places", tower.spec.n_positions)
        c.plan.add(x, c.plan.linear(weights, c.weights["v.position_embd"]))
    return x


def _projected(c: Lowering, tower: Tower, run: Run) -> View:
    """Rows for the decoder; [O, out] of averaged patches, [T, out] of joined patches."""
    if PROJECTORS[tower.spec.projector].pools:
        return _averaged(c, tower)
    hidden_size = tower.spec.layers.hidden_size
    x = c.plan.given("x", hidden_size * tower.spec.merge**2)  # [T, M]
    if run.end == tower.spec.layers.n_layers:
        return _mapped(c, c.norm(x, "v.post_ln", hidden_size), "mm.0", "mm.2")
    tap = f"v.deepstack.{run.end - 1}"
    return _mapped(c, c.norm(x, f"{tap}.norm"), f"{tap}.fc1", f"{tap}.fc2")


def _mapped(c: Lowering, x: View, first: str, second: str) -> View:
    """second(gelu(first(x))); [T, M] -> [T, out]."""
    y = c.linear(x, first, "up")
    c.plan.unary(y, "gelu_erf")
    return c.linear(y, second, "rows")


def _averaged(c: Lowering, tower: Tower) -> View:
    """The projected norm of each row's average patch; [O, out]."""
    x = c.plan.pool(c.plan.given("x", tower.spec.layers.hidden_size), "mean")  # [O, C]
    gain = c.weights["mm.soft_emb_norm"]
    return c.linear(c.plan.norm(x, gain, tower.spec.layers.norm_eps), "mm.input_projection", "rows")
