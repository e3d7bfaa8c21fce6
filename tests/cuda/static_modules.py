"""The modules of the kernel table, for every weight type, cache type and capacity of the op cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, product

from tests.cuda.rig import open_rig
from tests.support.parity.cases import OP_CASES, one_of_each_kind
from tests.support.parity.cases_experts import fused_cases

from camelid.backends.base import PoolSize
from camelid.backends.common.op_runner import case_plan
from camelid.engine.programs import DECODE, MIXED
from camelid.loading.deployment import Deployment
from camelid.loading.options import LoadOptions
from camelid.model.kv_types import KV_TYPES
from camelid.model.presets import PRESETS
from camelid.model.sizes import bare_model
from camelid.plan.plan import Op
from camelid_native.cuda.compiler import Module
from camelid_native.cuda.kernel import Context
from camelid_native.cuda.kernels import KERNELS, refusal
from camelid_native.cuda.matrix_units import multiplies_codes, multiplies_halves
from camelid_native.cuda.signature import Signature, signatures
from camelid_native.cuda.types import EXACT_TYPES, HALF_TYPES, REPACKED, WEIGHT_TYPES

SPARE = (0, 1, 3, 64)  # rows more than a case has: kernels differ by the capacity of rows
PAGES = (4, 512)  # of a sequence's state: a long context may have kernels of its own
INSTRUCTIONS = ((False, False), (True, False), (True, True))  # matrix instructions of codes and of halves
CODEC = "codec_"


@cache
def all_modules() -> Sequence[Module]:
    """Every module, in order of the op cases that need it first, then files of ops without cases."""
    used = dict.fromkeys(module for op, context in _uses() for module in _modules_of(op, context))
    files = {kernel.file for row in KERNELS.values() for kernel in row.launches}
    alone = map(Module, sorted(files - {module.file for module in used}))
    orderings = [Module("planes"), *(Module("repack", (f"repack_{kind}",)) for kind in REPACKED)]
    return [*used, *alone, *orderings]


def sample() -> Sequence[Module]:
    """Modules with every file, header, macro and kind of matrix instructions of `all_modules`."""
    seen, chosen = set[object](), list[Module]()
    for module in all_modules():
        is_half = "MANY" in dict(module.defines) and bool(weight_types(module) & HALF_TYPES)
        parts = {module.file, *headers_of(module), *((module.file, one, is_half) for one in module.defines)}
        if not parts <= seen:
            chosen.append(module)
            seen |= parts
    return chosen


def kernels_of(module: Module) -> Sequence[Signature]:
    """The kernels of a module's text."""
    return list(signatures(module.text).values())


def weight_types(module: Module) -> set[str]:
    """The types of weights of a module."""
    return {name.removeprefix(CODEC) for name in headers_of(module) if name.startswith(CODEC)}


def headers_of(module: Module) -> Sequence[str]:
    """The headers of a module, those of its namespaces too."""
    return (*module.headers, *dict.fromkeys(chain.from_iterable(own for _, own in module.spaces)))


def is_product(module: Module, kernel: Signature) -> bool:
    """True for a product by integer dot products, or by matrix instructions."""
    rounds = weight_types(module) - EXACT_TYPES or "MANY" in dict(module.defines)
    return bool(rounds) and {"weight", "codes"} <= {p.name for p in kernel.parameters}


def has_instructions(arch: str, module: Module) -> bool:
    """True if an architecture runs the module: if it has its matrix instructions, or lacks those that its
    tiles of experts would have.
    """
    macros = dict(module.defines)
    if "SORTED" in macros and "codes" in headers_of(module):
        return multiplies_codes(arch) == ("GEMM" in macros)
    if "GEMM" in macros:
        return multiplies_codes(arch)
    return "MANY" not in macros or multiplies_halves(arch)


def title(module: Module, kernel: Signature) -> str:
    """The kernel with its module's headers and macros, for a table."""
    own = [name for name in headers_of(module) if not module.spaces or name.startswith((CODEC, "kv_"))]
    return " ".join((kernel.name, *own, *("=".join(define) for define in module.defines)))


def _uses() -> Iterator[tuple[Op, Context]]:
    """Ops with their plans: of cases that differ in kind, at several capacities, and of an 8B model."""
    known = (case for case in (*OP_CASES, *fused_cases()) if case.op in KERNELS)
    cases = one_of_each_kind([c for c in known if {w.type for w in c.weights.values()} <= WEIGHT_TYPES])
    for case, spare, pages, has in product(cases, SPARE, PAGES, INSTRUCTIONS):
        plan, _ = case_plan(replace(case, spare=case.spare + spare))
        pools = {state.name: PoolSize(pages, 2, pages) for state in plan.states}
        yield from ((op, Context(plan, pools, *has)) for op in plan.ops)
    for kv_type, program in product(KV_TYPES, (DECODE, MIXED)):
        options = LoadOptions(backend="cuda", kv_type=kv_type, parallel=32)
        model = bare_model(PRESETS["8b"], "q8_0")
        deployment = Deployment.of(model, options, open_rig().capabilities())
        context = Context(deployment.plan(program), deployment.kv_cache().sizes())
        yield from ((op, context) for op in context.plan.ops)


def _modules_of(op: Op, context: Context) -> Iterator[Module]:
    if refusal(op, context.plan):
        return
    for part in KERNELS[op.name].lower(op, context.plan):
        launches = (kernel for kernel in KERNELS[part.name].launches if kernel.when(part, context))
        yield from (kernel.module(part, context) for kernel in launches)
