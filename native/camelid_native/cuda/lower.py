"""The launches of a plan: every kernel of every op with its grid and arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from camelid.plan.plan import Op, Plan
from camelid_native.cuda.device import aligned
from camelid_native.cuda.kernel import Context, Kernel
from camelid_native.cuda.kernels import KERNELS
from camelid_native.cuda.library import Library
from camelid_native.cuda.places import Places
from camelid_native.cuda.program import Launch
from camelid_native.cuda.signature import Values
from camelid_native.cuda.sums import Parts, SumPlaces, parts_of, sum_of
from camelid_native.cuda.twins import Twin, slot_bytes, twins_of

ROUNDING = "quantize"  # the kernel that a twin makes needless


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory beside the arena, zeros at first: of the greediest op, the slots of twins, counters, then parts
    of sums over devices.
    """

    op_bytes: int
    slots: tuple[int, ...]
    counter_bytes: int
    parts: Parts

    @property
    def n_bytes(self) -> int:
        return self.op_bytes + sum(self.slots) + self.counter_bytes + self.parts.n_bytes

    def counters_at(self, base: int) -> int:
        return self.slot_at(base, len(self.slots))

    def parts_at(self, base: int) -> int:
        return self.counters_at(base) + self.counter_bytes

    def slot_at(self, base: int, slot: int) -> int:
        return base + self.op_bytes + sum(self.slots[:slot])


def launches_of(context: Context, places: Places, scratch_at: int, library: Library) -> list[Launch]:
    """The launches of all ops, in order."""
    ops = ops_of(context.plan)
    twins, scratch = twins_of(ops), scratch_of(context)
    bases = {twin: scratch.slot_at(scratch_at, twin.slot) for twin in twins}
    placed = {twin: _twin_places(twin, ops, context, base) for twin, base in bases.items()}
    made = {twin.maker: placed[twin] for twin in twins}
    read = {number: placed[twin] for twin in twins for number in twin.readers}
    sums = SumPlaces(scratch.parts, scratch.parts_at(scratch_at))
    found: list[Launch] = []
    for number, (op, kernels) in enumerate(used_kernels(context)):
        twin = dict(zip(("out_codes", "out_factors"), made.get(number, (0, 0)), strict=True))
        own = dict(zip(("codes", "factors"), read[number], strict=True)) if number in read else {}
        counters = {"counters": scratch.counters_at(scratch_at)}
        more: Values = {**counters, **twin, **own, **sums.values(op)}
        found += _op_launches(op, kernels, context, places, scratch_at, library, more)
    return found


def used_kernels(context: Context) -> list[tuple[Op, list[Kernel]]]:
    """Each op with its launches. One whose input has a twin rounds nothing."""
    ops = ops_of(context.plan)
    readers = {number for twin in twins_of(ops) for number in twin.readers}
    return [
        (op, [kernel for kernel in _used(op, context) if number not in readers or kernel.file != ROUNDING])
        for number, op in enumerate(ops)
    ]


def ops_of(plan: Plan) -> list[Op]:
    """The ops of a plan, each as its kernels run it."""
    return [part for op in plan.ops for part in KERNELS[op.name].lower(op, plan)]


def part_counts(plan: Plan) -> list[int]:
    """The number of ops that run in place of each op of a plan."""
    return [len(KERNELS[op.name].lower(op, plan)) for op in plan.ops]


def scratch_of(context: Context) -> Scratch:
    """The memory that a plan needs beside its arena."""
    ops = ops_of(context.plan)
    sizes = slot_bytes(twins_of(ops), ops, context.plan)
    used = used_kernels(context)
    most = max((sum(map(aligned, _scratch(*one, context).values())) for one in used), default=0)
    counters = max((kernel.counters(op, context) for op, kernels in used for kernel in kernels), default=0)
    slots = tuple(aligned(sizes[slot]) for slot in sorted(sizes))
    return Scratch(most, slots, aligned(4 * counters), parts_of(ops, context))


def _twin_places(twin: Twin, ops: list[Op], context: Context, at: int) -> tuple[int, int]:
    """Addresses of a twin's codes and factors."""
    return at, at + context.rows(ops[twin.maker], "y") * twin.cols


def _used(op: Op, context: Context) -> list[Kernel]:
    return [kernel for kernel in KERNELS[op.name].launches if kernel.when(op, context)]


def _op_launches(
    op: Op,
    kernels: list[Kernel],
    context: Context,
    places: Places,
    scratch_at: int,
    library: Library,
    more: Values,
) -> Iterator[Launch]:
    sizes = _scratch(op, kernels, context)
    starts = accumulate(map(aligned, sizes.values()), initial=scratch_at)
    common = {**places.values(op, KERNELS[op.name]), **dict(zip(sizes, starts, strict=False)), **more}
    for kernel in kernels:
        signature, handle = library.kernel(kernel.module(op, context), kernel.function)
        arguments = signature.packed({**common, **kernel.values(op, context)})
        total = sum_of(op, context, common)
        yield Launch(handle, kernel.grid(op, context), signature.threads, arguments, total)


def _scratch(op: Op, kernels: Sequence[Kernel], context: Context) -> Mapping[str, int]:
    """Bytes by parameter of the memory between the launches of an op."""
    return {name: n for kernel in kernels for name, n in kernel.scratch(op, context).items()}
