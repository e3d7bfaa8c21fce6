"""Kernel rows of adapters: low-rank terms by the slot of each row, and the norm behind a term.

Terms of one x in columns of one buffer, as those of queries, keys and values, run as one dispatch, and a
deferred norm runs in the dispatch of the term before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from camelid.backends.webgpu.kernel import Constants, Context, Grid, Kernel, rows_of, tiles
from camelid.plan.op_rows_adapters import FEATURE, slot_cols
from camelid.plan.op_rows_fused import QUAD
from camelid.plan.plan import Op, Plan

GROUP_LANES, SOFTWARE_GROUP_LANES = (
    256,
    64,
)  # of a workgroup of low_rank.wgsl; lanes cost more at its barriers
SITES = ("", "_1", "_2")  # suffixes of the roles and attributes of the sites of a dispatch
SHARED = (
    "rank",
    "n_in",
    "scale",
    "deferred",
    "eps",
)  # attributes that the sites of a dispatch have in common
NORM = "norm_behind"
UNUSED = ("none?",) * 4  # bindings that norm_behind.wgsl leaves to its op
STATES = tuple(f"adapters{site}.#{'?' if site else ''}" for site in SITES)


def _n_sites(op: Op) -> int:
    return sum(op.has(f"adapters{site}") for site in SITES)


def _columns(op: Op) -> list[int]:
    """Columns of y of each site; with experts those of one of them."""
    n_used = op.view("ids").cols if op.has("ids") else 1
    return [op.view(f"y{site}").cols // n_used for site in SITES[: _n_sites(op)]]


def _lanes(c: Context) -> int:
    return SOFTWARE_GROUP_LANES if c.is_software else GROUP_LANES


def _tile(op: Op, c: Context) -> int:
    """Quads of columns of a workgroup: all on a software adapter, which gains nothing by more workgroups."""
    return tiles(max(_columns(op)), QUAD) if c.is_software else GROUP_LANES


def _grid(op: Op, c: Context) -> Grid:
    n_used = op.view("ids").cols if op.has("ids") else 1
    return sum(tiles(n, QUAD * _tile(op, c)) for n in _columns(op)), rows_of(op, "y"), n_used


def _constants(op: Op, c: Context) -> Constants:
    rank, n_in = op.integer("rank"), op.integer("n_in")
    experts = op.integer("experts") if op.has("ids") else 0
    dots = min(1 << (rank - 1).bit_length(), _lanes(c))
    sizes: Constants = {"RANK": rank, "K": n_in, "LANES": _lanes(c), "DOTS": dots, "TILE": _tile(op, c)}
    for site, n in zip(SITES, _columns(op), strict=False):
        sizes |= {f"N{site}": n, f"SLOT_FLOATS{site}": slot_cols(rank, n_in, n, experts)}
    return sizes | {"IS_OUTPUT": int(op.view("y").rows == "O")}


def _term_constants(op: Op, c: Context) -> Constants:
    how: Constants = {"IS_DEFERRED": op.integer("deferred"), "EPS": op.number("eps")}
    return _constants(op, c) | how | {"SCALE": op.number("scale")}


def _experts_constants(op: Op, c: Context) -> Constants:
    n_in, n_out = op.integer("n_in"), _columns(op)[0]
    x_slot = 0 if op.view("x").cols == n_in else n_in // QUAD
    return _constants(op, c) | {"EXPERTS": op.integer("experts"), "X_SLOT": x_slot, "Y_SLOT": n_out}


def _refuses_slot(op: Op, plan: Plan) -> str:
    kind = plan.state(op.state("adapters").group).kind
    return "" if kind == "adapter" else f"a slot in state of kind {kind}"


def _refuses_experts(op: Op, plan: Plan) -> str:
    n_in = op.integer("n_in")
    return f"experts of {n_in} inputs, not a multiple of {QUAD}" if n_in % QUAD else _refuses_slot(op, plan)


def _form(row: Kernel, op: Op) -> Kernel:
    """With a norm behind the term, the kernel of both."""
    if not op.has("z"):
        return row
    return replace(row, files=(*row.files[1:], NORM), bindings=(*row.bindings, "z", "gain"))


def joined_plan(plan: Plan) -> Plan:
    """The plan, with terms of one x as one op, and with norms joined to the terms before them.

    The joined ops are of this backend alone; its arena is that of the joined plan.
    """
    if FEATURE not in plan.key.features:
        return plan
    return replace(plan, stages=tuple(replace(s, ops=tuple(_joined_ops(s.ops))) for s in plan.stages))


def _joined_ops(ops: Sequence[Op]) -> Iterator[Op]:
    last: Op | None = None
    for op in ops:
        both = _joined(last, op) if last else None
        if last and not both:
            yield last
        last = both or op
    if last:
        yield last


def _joined(last: Op, op: Op) -> Op | None:
    if last.name != "low_rank" or last.has("z"):
        return None
    if op.name == "defer_norm" and _n_sites(last) == 1 and op.view("y") == last.view("y"):
        more = (("z", op.view("z")), ("gain", op.weight("gain")))
        return replace(last, operands=(*last.operands, *more))
    return _with_site(last, op) if op.name == "low_rank" and _are_beside(last, op) else None


def _are_beside(last: Op, op: Op) -> bool:
    """True if a dispatch can have the sites of both: one x, one buffer of y, and columns of their own."""
    shares = all(dict(last.attrs)[name] == dict(op.attrs)[name] for name in SHARED)
    views = [last.view(f"y{site}") for site in SITES[: _n_sites(last)]]
    y = op.view("y")
    is_apart = all(y.offset >= v.offset + v.cols or v.offset >= y.offset + y.cols for v in views)
    same = views[0].buffer == y.buffer and last.view("x") == op.view("x")
    return len(views) < len(SITES) and shares and same and is_apart


def _with_site(last: Op, op: Op) -> Op:
    site = SITES[_n_sites(last)]
    operands = ((f"y{site}", op.view("y")), (f"adapters{site}", op.state("adapters")))
    attrs = (*last.attrs, (f"tensor{site}", op.integer("tensor")))
    return replace(last, operands=(*last.operands, *operands), attrs=attrs)


def _defer_grid(op: Op, _: Context) -> Grid:
    return tiles(op.view("y").cols, QUAD * 64), rows_of(op, "y"), 1


KERNELS = {
    "low_rank": Kernel(("nothing_behind", "one_expert", "reduce", "low_rank"), ("y", "x", *STATES),
                       _term_constants, _grid, attrs=("tensor", *SHARED), refuses=_refuses_slot, form=_form),
    "low_rank_experts": Kernel(("nothing_behind", "experts", "reduce", "low_rank"),
                               ("y", "x", *STATES, "ids"), _experts_constants, _grid,
                               attrs=("tensor", "rank", "n_in", "experts"), refuses=_refuses_experts),
    "defer_norm": Kernel(("defer_norm", NORM), ("y", *UNUSED, "z", "gain"),
                         lambda op, c: {"N": op.view("y").cols}, _defer_grid),
}  # fmt: skip
