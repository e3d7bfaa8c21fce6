"""Low-rank terms of adapters on Metal, whose slots are read in place, and ops of which fused ones consist.

A buffer is read and written whole: its other columns are copied by the kernel that adds a term.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from camelid.plan.op_rows_fused import QUAD, deferred_cols
from camelid_native.mlx.arrays import Array
from camelid_native.mlx.metal.launch import LANES, Grid, Kernel, StepForm, Value, launch
from camelid_native.mlx.metal.products import GATES, gate_file

SIMDGROUPS = 4

_INPUTS = ("held", "ids", "step")
DOTS = Kernel(
    header=("step", "adapter", "rms"), body=("low_rank_dots",), inputs=("x", *_INPUTS), outputs=("u",)
)
SPREAD = Kernel(header=("step", "adapter"), body=("low_rank_spread",), inputs=("added", "u", *_INPUTS))
DEFER_NORM = Kernel(header=("defer",), body=("defer_norm",), inputs=("y", "gain", "count"), outputs=("z",))
GLU = Kernel(header=("math", "act", "{gate}"), body=("glu",), inputs=("gate", "up", "count"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Columns of a buffer [T, cols], from `first` on."""

    buffer: Array
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A matrix [n_out, n_in], or a stack of them, and its slots [units, floats] of capacity `rank`.

    `scale` is a factor of the term. With `norm_eps`, x is a deferred norm.
    """

    held: Array
    rank: int
    n_in: int
    n_out: int
    experts: int = 0
    scale: float = 1.0
    norm_eps: float | None = None


def low_rank(
    y: Columns,
    x: Array,
    site: Site,
    step: Array,
    form: StepForm,
    *,
    ids: Array | None = None,
    count_at: int,
    is_of_outputs: bool = False,
) -> Array:  # y [T, cols], x [T, n_in, or one vector for each slot], ids [T, U] -> [T, cols]
    """The buffer of y with its rows' terms added. Word `count_at` of the step has the number of rows."""
    n_rows, n_slots = len(y.buffer), 1 if ids is None else ids.shape[1]
    constants: dict[str, Value] = {
        **_constants(site, form, x.shape[1], n_slots),
        "COUNT_AT": count_at,
        "OF_OUTPUTS": is_of_outputs,
        "COLS": y.buffer.shape[1],
        "FIRST": y.first,
        "SCALE": float(site.scale),
    }
    arrays = {"x": x, "held": site.held, "step": step, "ids": x if ids is None else ids, "added": y.buffer}
    grid = Grid(groups=(-(-site.rank // SIMDGROUPS), n_rows * n_slots, 1), simdgroups=SIMDGROUPS)
    shape = (n_rows * n_slots, site.rank)
    arrays["u"] = launch(DOTS, arrays, constants=constants, grid=grid, shapes=[shape])[0]
    grid = Grid(groups=(-(-y.buffer.shape[1] // LANES), n_rows, 1))
    return launch(SPREAD, arrays, constants=constants, grid=grid, shapes=[y.buffer.shape])[0]


def _constants(site: Site, form: StepForm, x_cols: int, n_slots: int) -> Mapping[str, Value]:
    return {
        "ROW_WORDS": form.row_words,
        "SEQUENCE_WORDS": form.sequence_words,
        "UNITS": site.held.shape[0],
        "WIDTH": site.held.shape[1],
        "MOST": site.rank,
        "N_IN": site.n_in,
        "N_OUT": site.n_out,
        "EXPERTS": max(site.experts, 1),
        "IS_STACK": site.experts > 0,
        "SLOTS": n_slots,
        "VECTORS": x_cols // site.n_in if site.experts else 1,
        "X_COLS": x_cols,
        "SIMDGROUPS": SIMDGROUPS,
        "K": site.n_in,
        "IS_NORMED": site.norm_eps is not None,
        "EPS": float(site.norm_eps or 0.0),
    }


def defer_norm(
    y: Array, gain: Array, *, count: Array, count_at: int = 0
) -> Array:  # [T, N] -> [T, N + N / 4]
    """The deferred norm of y, with the bits of `products.linear_add_norm`."""
    n_rows, cols = y.shape
    constants: dict[str, Value] = {"N": cols, "COUNT_AT": count_at}
    grid, shapes = Grid(groups=(-(-cols // QUAD // LANES), n_rows, 1)), [(n_rows, deferred_cols(cols))]
    arrays = {"y": y, "gain": gain, "count": count}
    return launch(DEFER_NORM, arrays, constants=constants, grid=grid, shapes=shapes)[0]


def glu(
    gate: Columns, up: Columns, cols: int, act: str, *, count: Array, count_at: int = 0
) -> Array:  # -> [T, cols]
    """act(gate) * up, with the bits of a gated product."""
    n_rows = len(gate.buffer)
    constants: dict[str, Value] = {
        "N": cols,
        "COUNT_AT": count_at,
        "ACT": "act_none" if act in GATES else f"act_{act}",
        "GATE_COLS": gate.buffer.shape[1],
        "GATE_AT": gate.first,
        "UP_COLS": up.buffer.shape[1],
        "UP_AT": up.first,
    }
    arrays = {"gate": gate.buffer, "up": up.buffer, "count": count}
    grid, files = Grid(groups=(-(-cols // LANES), n_rows, 1)), {"gate": gate_file(act)}
    return launch(GLU, arrays, constants=constants, grid=grid, shapes=[(n_rows, cols)], files=files)[0]
