"""The modules of the kernel table, for every weight type, cache type and capacity of the op cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from tests.support.parity.cases import OP_CASES, one_of_each_kind

from camelid.backends.common.op_runner import OpCase, case_plan
from camelid_native.cuda.compiler import Module
from camelid_native.cuda.kernel import Context
from camelid_native.cuda.kernels import KERNELS, plan_refusal
from camelid_native.cuda.signature import Signature, signatures
from camelid_native.cuda.types import EXACT_TYPES, WEIGHT_TYPES

SPARE = (0, 1, 3, 64)  # rows more than a case has: kernels differ by the capacity of rows
CODEC = "codec_"


@cache
def all_modules() -> Sequence[Module]:
    """Every module, in order of the op cases that need it first."""
    return list(dict.fromkeys(module for case in _cases() for module in _modules_of(case)))


def sample() -> Sequence[Module]:
    """Modules with every file, every header and every macro of `all_modules` at least once."""
    seen, chosen = set[object](), list[Module]()
    for module in all_modules():
        parts = {module.file, *module.headers, *((module.file, define) for define in module.defines)}
        if not parts <= seen:
            chosen.append(module)
            seen |= parts
    return chosen


def kernels_of(module: Module) -> Sequence[Signature]:
    """The kernels of a module's text."""
    return list(signatures(module.text).values())


def is_product(module: Module, kernel: Signature) -> bool:
    """True for a product of quantized weights and rounded activations."""
    types = {name.removeprefix(CODEC) for name in module.headers if name.startswith(CODEC)}
    return bool(types - EXACT_TYPES) and {"weight", "codes"} <= {p.name for p in kernel.parameters}


def title(module: Module, kernel: Signature) -> str:
    """The kernel with its module's headers and macros, for a table."""
    return " ".join((kernel.name, *module.headers, *("=".join(define) for define in module.defines)))


def _cases() -> list[OpCase]:
    known = (case for case in OP_CASES if case.op in KERNELS)
    return one_of_each_kind([c for c in known if {w.type for w in c.weights.values()} <= WEIGHT_TYPES])


def _modules_of(case: OpCase) -> Iterator[Module]:
    for spare in SPARE:
        plan, _ = case_plan(replace(case, spare=case.spare + spare))
        if not plan_refusal(plan):
            context = Context(plan, {})
            for op in plan.ops:
                launches = (k for k in KERNELS[op.name].launches if k.when(op, context))
                yield from (kernel.module(op, context) for kernel in launches)
