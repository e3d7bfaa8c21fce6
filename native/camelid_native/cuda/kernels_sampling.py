"""Kernel rows of sampling and of routers: selections from a row of logits."""

from __future__ import annotations

from dataclasses import replace

from camelid.plan.plan import Op, Plan
from camelid_native.cuda.kernel import Context, Kernel, OpKernels, row_grid, width_grid
from camelid_native.cuda.signature import Values

ROUTER_GATES = {"softmax": 0, "sigmoid": 1, "topk_softmax": 2, "sparsemixer": 3}
MOST_EXPERTS = 1024  # as in router.cu


def _vocab(op: Op, _: Context) -> Values:
    return {"vocab": op.view("logits").cols}


def _returns_logits(_: Op, c: Context) -> bool:
    return "all_logits" in c.plan.key.features


def _router_values(op: Op, _: Context) -> Values:
    numbers = {name: op.integer(name) for name in ("normalize", "n_groups", "n_groups_used")}
    sizes = {"n_experts": op.view("logits").cols, "slots": op.view("ids").cols}
    return {**numbers, **sizes, "scale": op.number("scale")}


def _router_refusal(op: Op, _: Plan) -> str:
    n = op.view("logits").cols
    return f"{n} experts; at most {MOST_EXPERTS}" if n > MOST_EXPERTS else ""


# A compiler that seeks more blocks of a multiprocessor spills registers of `sample`.
SAMPLE = Kernel("sample", row_grid("logits"), _vocab, defines=lambda op, c: {"LEAST_BLOCKS": 1})

KERNELS: dict[str, OpKernels] = {
    "sample": OpKernels(
        (SAMPLE, replace(SAMPLE, grid=width_grid("logits"), name="keep", when=_returns_logits))
    ),
    "candidates": OpKernels((replace(SAMPLE, name="candidates"),)),
    "router": OpKernels(
        (Kernel("router", row_grid("logits"), _router_values),),
        ("normalize", "scale", "n_groups", "n_groups_used"),
        {"gate": ROUTER_GATES},
        _router_refusal,
    ),
}
