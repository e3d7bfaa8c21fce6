"""The launches of a plan: every kernel of every op with its grid and arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from camelid.plan.plan import Op, Plan
from camelid_native.cuda.kernel import Context, Kernel
from camelid_native.cuda.kernels import KERNELS
from camelid_native.cuda.library import Library
from camelid_native.cuda.places import Places
from camelid_native.cuda.program import Launch

ALIGNMENT = 256


def launches_of(context: Context, places: Places, scratch_at: int, library: Library) -> list[Launch]:
    """The launches of all ops, in order. The ops share one range of scratch."""
    return [
        launch
        for op in ops_of(context.plan)
        for launch in _op_launches(op, context, places, scratch_at, library)
    ]


def ops_of(plan: Plan) -> list[Op]:
    """The ops of a plan, each as its kernels run it."""
    return [part for op in plan.ops for part in KERNELS[op.name].lower(op, plan)]


def scratch_bytes(context: Context) -> int:
    """Bytes of scratch of the plan's greediest op."""
    return max((sum(map(_aligned, _scratch(op, context).values())) for op in ops_of(context.plan)), default=0)


def _op_launches(
    op: Op, context: Context, places: Places, scratch_at: int, library: Library
) -> Iterator[Launch]:
    row = KERNELS[op.name]
    sizes = _scratch(op, context)
    starts = accumulate(map(_aligned, sizes.values()), initial=scratch_at)
    common = {**places.values(op, row), **dict(zip(sizes, starts, strict=False))}
    for kernel in row.launches:
        if kernel.when(op, context):
            signature, handle = library.kernel(kernel.module(op, context), kernel.function)
            arguments = signature.packed({**common, **kernel.values(op, context)})
            yield Launch(handle, kernel.grid(op, context), signature.threads, arguments)


def _scratch(op: Op, context: Context) -> Mapping[str, int]:
    """Bytes by parameter of the memory between the launches of an op."""
    used: list[Kernel] = [k for k in KERNELS[op.name].launches if k.when(op, context)]
    return {name: n for kernel in used for name, n in kernel.scratch(op, context).items()}


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT
