"""Kernel rows of elementwise ops, norms, gathers and sampling."""

from __future__ import annotations

from camelid.backends.webgpu.kernel import (
    Constants,
    Context,
    Files,
    Grid,
    Kernel,
    row_grid,
    rows_of,
    width,
    width_grid,
)
from camelid.plan.plan import Op

ACTS: dict[str, Files] = {
    "silu": ("act_silu",),
    "sigmoid": ("act_sigmoid",),
    "tanh": ("smooth_tanh", "act_tanh"),
    "relu": ("act_relu",),
    "relu2": ("act_relu2",),
    "gelu": ("smooth_tanh", "act_gelu"),
    "gelu_erf": ("act_gelu_erf",),
}
GATES: dict[str, Files] = {
    **{act: (*files, "gate_plain") for act, files in ACTS.items()},
    "swiglu_oai": ("gate_swiglu_oai",),
}
VOCAB_LANES = 256  # WebGPU's default limit; one workgroup reads a whole vocabulary
NORM_KINDS = {"rms": 0, "layer": 1, "l2": 2}


def ring_constants(op: Op, c: Context) -> Constants:
    spec = c.plan.state(op.state("tokens").group)
    return {"GROUP": c.plan.group(spec.name), "RING_ROWS": spec.unit_rows}


def group_size(op: Op) -> int:
    """Columns of a group of x."""
    return op.integer("size") or op.view("x").cols


def _norm_constants(op: Op, _: Context) -> Constants:
    size = group_size(op)
    step = size if op.has("gain") and op.weight("gain").rows > 1 else 0
    return {"SIZE": size, "GAIN_STEP": step, "EPS": op.number("eps")}


def group_grid(op: Op, _: Context) -> Grid:
    """A grid with one workgroup per group of x."""
    return (op.view("x").cols // group_size(op), rows_of(op, "x"), 1)


def _add_constants(op: Op, _: Context) -> Constants:
    return {"C": op.view("x").cols, "SCALE": op.number("scale")}


def _add_norm_constants(op: Op, c: Context) -> Constants:
    return _add_constants(op, c) | {"EPS": op.number("eps")}


def _mul_constants(op: Op, _: Context) -> Constants:
    return {"C": op.view("x").cols, "EACH": op.view("x").cols // op.view("r").cols}


def _combine_constants(op: Op, _: Context) -> Constants:
    return {"C": op.view("y").cols, "SLOTS": op.view("probs").cols}


def _vocab_constants(op: Op, _: Context) -> Constants:
    return {"V": op.view("logits").cols, "LANES": VOCAB_LANES}


def _sample_constants(op: Op, c: Context) -> Constants:
    return _vocab_constants(op, c) | ring_constants(op, c)


def _scaled(files: Files, attr: str) -> Kernel:
    """The kernel of `unary` with a number."""

    def constants(op: Op, _: Context) -> Constants:
        return {"C": op.view("x").cols, attr.upper(): op.number(attr)}

    return Kernel((*files, "unary"), ("x",), constants, width_grid("x"), attrs=(attr,))


KERNELS: dict[str, Kernel] = {
    "norm": Kernel(("reduce", "norm"), ("y", "x", "gain?", "bias?"), _norm_constants, group_grid,
                   attrs=("eps", "size"), words={"kind": NORM_KINDS}),
    "add": Kernel(("add",), ("x", "r"), _add_constants, width_grid("x"), attrs=("scale",)),
    "add_norm": Kernel(("reduce", "add_norm"), ("y", "x", "r", "gain"), _add_norm_constants, row_grid("y"),
                       attrs=("eps", "scale")),
    "mul": Kernel(("mul",), ("x", "r"), _mul_constants, width_grid("x"),
                  within=Kernel(("mul_within",), ("x",), _mul_constants, width_grid("x"))),
    "scale": _scaled(("scale",), "by"),
    "softcap": _scaled(("smooth_tanh", "softcap"), "cap"),
    "clamp": _scaled(("clamp",), "limit"),
    "xielu": Kernel(("smooth_tanh", "xielu", "unary"), ("x", "alpha"), width("x"), width_grid("x")),
    "unary": Kernel(("unary",), ("x",), width("x"), width_grid("x"), acts=ACTS),
    "glu": Kernel(("glu",), ("y", "gate", "up"), width("y"), width_grid("y"), acts=GATES,
                  within=Kernel(("glu_within",), ("y", "gate"), width("y"), width_grid("y"), acts=GATES)),
    "combine": Kernel(("combine",), ("y", "x", "probs"), _combine_constants, width_grid("y")),
    "gather_rows": Kernel(("gather_rows",), ("y", "x"), width("y"), width_grid("y")),
    "sample": Kernel(("reduce", "place", "topk", "philox", "adjust", "sample"),
                     ("logits", "tokens.id+", "result+"), _sample_constants, row_grid("logits")),
    "candidates": Kernel(("reduce", "place", "topk", "candidates"), ("logits", "candidates+"),
                         _vocab_constants, row_grid("logits")),
}  # fmt: skip
