"""Products on Metal: linear maps, gated and added, for few rows and for many, and lookups of rows.

A matrix is the file's own blocks as uint8 `[rows, bytes]`; x and y are float32. `count`, such as the words
of a step, has the number of live rows at `count_at`; the other rows cost nothing and become zeros. The bits
of a row depend on the matrix's shape alone (`metal/product.metal`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from camelid.formats.quants import row_bytes
from camelid.plan.op_rows_fused import deferred_cols
from camelid_native.mlx.arrays import Array, mx
from camelid_native.mlx.metal.launch import CODEC_PARTS, LANES, Grid, Kernel, Value, launch

UNIT = 8  # weights that a codec decodes at once
MOST_FEW = 8  # rows of x of the kernel that decodes each weight once for all of them
FEW_OUTPUTS, TILE_OUTPUTS, TILE_ROWS = 4, 8, 32  # outputs of a simdgroup (of all parts); rows of a tile
SIMDGROUPS = 4
PLAIN_TYPES = frozenset({"f32", "f16", "bf16", "i8", "i16"})
TYPES = PLAIN_TYPES | CODEC_PARTS.keys()
GATES = {"swiglu_oai": "gate_swiglu_oai"}  # gates that also change `up`

PRODUCT = ("math", "act", "{gate}", "codec_{type}", "product", "rms", "finish")
_INPUTS = ("weights", "x", "count", "bias", "added")
FEW = Kernel(header=(*PRODUCT, "defer", "store"), body=("linear",), inputs=_INPUTS)
TILE = Kernel(header=(*PRODUCT, "defer", "store", "tile"), body=("linear_tile",), inputs=_INPUTS)
_DEFERRED = {"inputs": (*_INPUTS, "gain"), "outputs": ("y", "z")}
FEW_DEFERRED, TILE_DEFERRED = replace(FEW, **_DEFERRED), replace(TILE, **_DEFERRED)
EMBED = Kernel(header=("codec_{type}",), body=("embed",), inputs=("weights", "ids", "count"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A product: its matrix [outputs, cols], and what becomes of its sums."""

    weight_type: str
    outputs: int
    cols: int
    act: str = ""
    scale: float = 1.0
    norm_eps: float | None = None


def fits(weight_type: str, cols: int) -> bool:
    """True if the kernels have the type and read whole units of its rows."""
    return weight_type in TYPES and cols % UNIT == 0


def linear(
    x: Array,
    blocks: Array,
    *,
    weight_type: str,
    outputs: int,
    cols: int,
    count: Array,
    count_at: int = 0,
    bias: Array | None = None,
    act: str = "",
    added: Array | None = None,
    scale: float = 1.0,
    norm_eps: float | None = None,
) -> Array:  # x [T, cols] -> y [T, outputs]
    """y = weight @ x + bias.

    With `act`, the matrix has rows of gate, then of up, `outputs` each, and y = act(gate) * up. With `added`,
    y = added + scale * y. With `norm_eps`, x is a deferred norm of `cols` values (`plan/op_rows_fused.py`).
    """
    form = Form(weight_type=weight_type, outputs=outputs, cols=cols, act=act, scale=scale, norm_eps=norm_eps)
    return _product(x, blocks, form, count, count_at, bias, added)[0]


def linear_add_norm(
    x: Array,
    blocks: Array,
    *,
    weight_type: str,
    outputs: int,
    cols: int,
    count: Array,
    added: Array,
    gain: Array,
    count_at: int = 0,
    bias: Array | None = None,
    scale: float = 1.0,
) -> tuple[Array, Array]:  # x [T, cols] -> y [T, outputs], z [T, outputs + outputs / 4]
    """y = added + scale * (weight @ x + bias), and its deferred norm z with this gain."""
    form = Form(weight_type=weight_type, outputs=outputs, cols=cols, scale=scale)
    y, z = _product(x, blocks, form, count, count_at, bias, added, gain)
    return y, z


def _product(
    x: Array,
    blocks: Array,
    form: Form,
    count: Array,
    count_at: int,
    bias: Array | None,
    added: Array | None,
    gain: Array | None = None,
) -> list[Array]:
    n_rows, is_few = x.shape[0], x.shape[0] <= MOST_FEW
    parts, outputs = 2 if form.act else 1, form.outputs
    own = (FEW_OUTPUTS if is_few else TILE_OUTPUTS) // parts
    constants: dict[str, Value] = {
        **matrix_sizes(form.weight_type, outputs, form.cols),
        **flags(form, bias is not None, added is not None),
        **_deferral(gain is not None),
        "OUTPUTS": own,
        "ROWS": n_rows,
        "X_COLS": x.shape[1],
        "COUNT_AT": count_at,
        "SIMDGROUPS": SIMDGROUPS,
    }
    arrays = {"weights": blocks, "x": x, "count": count, "gain": x if gain is None else gain}
    arrays |= {"bias": x if bias is None else bias, "added": x if added is None else added}
    simds = -(-outputs // own)
    groups = (-(-simds // SIMDGROUPS), 1, 1) if is_few else (simds, -(-n_rows // TILE_ROWS), 1)
    grid = Grid(groups=groups, simdgroups=SIMDGROUPS)
    names = {"type": form.weight_type, "gate": gate_file(form.act)}
    kernel, shapes = FEW if is_few else TILE, [(n_rows, outputs)]
    if gain is not None:
        kernel = FEW_DEFERRED if is_few else TILE_DEFERRED
        shapes.append((n_rows, deferred_cols(outputs)))
    dtypes = [mx.float32] * len(shapes)
    return launch(kernel, arrays, constants=constants, grid=grid, shapes=shapes, dtypes=dtypes, files=names)


def _deferral(is_deferred: bool) -> Mapping[str, Value]:
    return {
        "IS_DEFERRED": is_deferred,
        "Z": "z" if is_deferred else "y",
        "GAIN": "gain" if is_deferred else "x",
    }


def embed(
    ids: Array,
    blocks: Array,
    *,
    weight_type: str,
    cols: int,
    count: Array,
    count_at: int = 0,
    scale: float = 1.0,
) -> Array:  # ids u32 [T] -> y [T, cols]
    """y[t] = scale * weight[ids[t]]."""
    n_rows, n_units = ids.shape[0], cols // UNIT
    constants: dict[str, Value] = {
        **matrix_sizes(weight_type, 0, cols),
        "SCALE": float(scale),
        "COUNT_AT": count_at,
    }
    grid = Grid(groups=(-(-n_units // LANES), n_rows, 1))
    arrays = {"weights": blocks, "ids": ids, "count": count}
    shapes, names = [(n_rows, cols)], {"type": weight_type}
    return launch(EMBED, arrays, constants=constants, grid=grid, shapes=shapes, files=names)[0]


def gate_file(act: str) -> str:
    """The file that defines `gated` for an activation or gate; "" is none."""
    return GATES.get(act, "gate_plain") if act else "gate_none"


def matrix_sizes(weight_type: str, outputs: int, cols: int) -> Mapping[str, Value]:
    """Constants of a matrix [outputs, cols]."""
    return {"N": outputs, "K": cols, "UNITS": cols // UNIT, "ROW_BYTES": row_bytes(weight_type, cols)}


def flags(form: Form, has_bias: bool, has_added: bool) -> Mapping[str, Value]:
    """Constants of what becomes of sums (`metal/finish.metal`)."""
    act = form.act
    return {
        "ACT": f"act_{act}" if act and act not in GATES else "act_none",
        "PARTS": 2 if act else 1,
        "HAS_BIAS": has_bias,
        "HAS_ADDED": has_added,
        "IS_NORMED": form.norm_eps is not None,
        "EPS": float(form.norm_eps or 0.0),
        "SCALE": float(form.scale),
    }
