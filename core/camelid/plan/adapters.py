"""Plans with adapters: the sites of low-rank terms, their slots as state, and the terms behind linear maps.

`with_adapters` runs after all rewrites of a plan. A fused op whose inner value a term changes is replaced by
the ops that it consists of, over the same weights, so that a weight is loaded once for programs with and
without adapters.
"""

from __future__ import annotations

import re
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from camelid.formats.quants import row_bytes
from camelid.plan.op_rows_adapters import FEATURE, HEADER_FLOATS, KIND, slot_cols
from camelid.plan.ops import make_op, row_of
from camelid.plan.plan import Attr, Buffer, Op, Plan, StateRef, StateSpec, View, whole
from camelid.plan.qkv import qkv_parts
from camelid.plan.stages import join_stages
from camelid.plan.weights import Weight

BLOCK = re.compile(r"(?:\w+\.)?blk\.\d+\.")
JOINED = "+"  # between the names of joined weights
TABLE = "token_embd"  # a tied head multiplies by the token table, which no adapter of a matrix changes
Ops = tuple[Op, ...]
Shape = tuple[int, int, int]  # columns in, columns out, experts
# Values -> float16 bits of the values divided by a power of two, and the power.
Halve = Callable[["memoryview[float]"], "tuple[memoryview[int], float]"]


class Term(Protocol):
    """A low-rank term of one matrix or stack, as `model/adapter.py` defines it."""

    @property
    def rank(self) -> int: ...
    @property
    def scale(self) -> float: ...
    @property
    def a(self) -> memoryview[float]: ...
    @property
    def b(self) -> memoryview[float]: ...


@dataclass(frozen=True, slots=True)
class Site:
    """A matrix [out, in], or a stack of them, that a term can change, and its place in a slot."""

    group: str
    layer: int
    tensor: int
    n_in: int
    n_out: int
    experts: int = 0


@dataclass(frozen=True, slots=True)
class AdapterLayout:
    """The sites of a model by weight name, and the state groups of slots of capacity `rank`."""

    rank: int
    sites: Mapping[str, Site]
    states: tuple[StateSpec, ...]
    kv_type: str = "f32"  # of A and B in the slots

    @property
    def slot_bytes(self) -> int:
        return sum(state.unit_bytes for state in self.states)


def adapter_layout(plans: Iterable[Plan], rank: int, kv_type: str = "f32") -> AdapterLayout:
    """The layout of the linear maps of plans before any rewrite.

    Blocks with equal matrices form one state group, since the layers of a group have equal tensors; matrices
    outside blocks form one without layers.
    """
    blocks: dict[str, dict[str, Shape]] = {}
    for name, shape in _matrices(plans):
        block = found[0] if (found := BLOCK.match(name)) else ""
        blocks.setdefault(block, {})[name] = shape
    kinds: dict[tuple[object, ...], list[str]] = {}
    for block, matrices in blocks.items():
        kinds.setdefault(_signature(block, matrices), []).append(block)
    groups = enumerate((members, blocks[members[0]]) for members in kinds.values())
    states = [_state(i, members, matrices, rank, kv_type) for i, (members, matrices) in groups]
    sites = {
        name: Site(state.name, _number(block), tensor, *shape)
        for state, members in zip(states, kinds.values(), strict=True)
        for block in members
        for tensor, (name, shape) in enumerate(blocks[block].items())
    }
    return AdapterLayout(rank, sites, tuple(states), kv_type)


def _signature(block: str, matrices: Mapping[str, Shape]) -> tuple[object, ...]:
    """Equal for blocks of one stack with equal matrices."""
    of_block = ((name.removeprefix(block), shape) for name, shape in matrices.items())
    return (block.rstrip(".0123456789"), *of_block)


def _state(
    number: int, blocks: Sequence[str], matrices: Mapping[str, Shape], rank: int, kv_type: str
) -> StateSpec:
    cols = (slot_cols(rank, *shape, kv_type) for shape in matrices.values())
    tensors = tuple((f"{i}", n) for i, n in enumerate(cols))
    names = tuple(map(_of_any_block, matrices))
    layers = tuple(_number(block) for block in blocks if block)
    return StateSpec(f"{FEATURE}.{number}", KIND, layers, tensors, 1, kv_type, matrices=names)


def _of_any_block(name: str) -> str:
    """The name of a matrix with {} for the number of its block."""
    return BLOCK.sub(lambda found: found[0].rstrip(".0123456789") + ".{}.", name)


def _number(block: str) -> int:
    return int(block.split(".")[-2]) if block else 0


def _matrices(plans: Iterable[Plan]) -> Iterator[tuple[str, Shape]]:
    """The weights of linear maps by name."""
    for op in (op for plan in plans for op in plan.ops):
        if op.name in ("linear", "linear_experts") and op.weight("weight").name != TABLE:
            weight = op.weight("weight")
            experts = weight.shape[0] if op.name == "linear_experts" else 0
            yield weight.name, (weight.cols, weight.shape[-2], experts)


def pack(
    layout: AdapterLayout, terms: Mapping[str, Sequence[tuple[Term, float]]], halve: Halve | None = None
) -> dict[str, bytes]:
    """A slot's unit of each state group, from the terms of each site with their factors.

    Several terms of one site act together: their ranks add up, to at most the layout's rank. `halve` rounds
    the values for a layout of f16.
    """
    units: dict[str, bytes] = {}
    for state in layout.states:
        data, at = bytearray(state.unit_bytes), 0
        named = {(s.layer, s.tensor): name for name, s in layout.sites.items() if s.group == state.name}
        for layer in state.layers or (0,):
            for tensor, (_, cols) in enumerate(state.tensors):
                name, n = named[layer, tensor], row_bytes(state.kv_type, cols)
                if name in terms:
                    slot = memoryview(data)[at : at + n]
                    _fill(slot, layout.rank, layout.sites[name], terms[name], halve)
                at += n
        units[state.name] = bytes(data)
    return units


def _fill(
    slot: memoryview[int], most: int, site: Site, terms: Sequence[tuple[Term, float]], halve: Halve | None
) -> None:
    """Writes terms to the bytes of one site: scales, rank, A, B transposed."""
    n_experts, first, a_at = max(site.experts, 1), 0, 4 * (most + HEADER_FLOATS)
    header, values = slot[:a_at].cast("f"), slot[a_at:].cast("H" if halve else "f")
    for term, factor in terms:
        whole_a, a_power = _values(term.a, halve)
        whole_b, b_power = _values(term.b, halve)
        for i in range(term.rank):
            header[first + i] = term.scale * factor * a_power * b_power
        for e in range(n_experts):
            n = term.rank * site.n_in
            a, b = (e * most + first) * site.n_in, (n_experts * site.n_in + e * site.n_out) * most
            values[a : a + n] = whole_a[e * n : (e + 1) * n]
            own = array(values.format, whole_b[e * term.rank * site.n_out : (e + 1) * term.rank * site.n_out])
            for i in range(term.rank):
                at = b + (first + i) * site.n_out
                values[at : at + site.n_out] = own[i :: term.rank]
        first += term.rank
    header[most] = first


def _values(values: memoryview[float], halve: Halve | None) -> tuple[memoryview[Any], float]:
    return halve(values) if halve else (values, 1.0)


def with_adapters(plan: Plan, layout: AdapterLayout) -> Plan:
    """The plan with a term behind each linear map of a site, for each adapter slot of the step."""
    parts = [(stage.name, tuple(_expanded(stage.ops, layout))) for stage in plan.stages]
    key = replace(plan.key, features=plan.key.features | {FEATURE})
    stages = join_stages(parts, given=plan.given, made=plan.made)
    return replace(plan, key=key, stages=stages, states=(*plan.states, *layout.states))


def _expanded(ops: Ops, layout: AdapterLayout) -> Iterator[Op]:
    """The ops with their terms; the terms of linear maps of one x, side by side, follow all of the maps."""
    held: list[Op] = []
    x: View | None = None
    for part, behind in _parts(_gathered(ops), layout):
        if held and not (part.name == "linear" and part.view("x") == x):
            yield from held
            held = []
        yield part
        terms = TERMS[part.name](part, layout) if part.name in TERMS else ()
        if part.name == "linear":
            held, x = [*held, *terms], part.view("x")
        else:
            yield from (*terms, *behind)
    yield from held


def _parts(ops: Iterable[Op], layout: AdapterLayout) -> Iterator[tuple[Op, Ops]]:
    """The ops of which changed fused ops consist, each with the op behind its term."""
    for op in ops:
        for part in PARTS[op.name](op) if op.name in PARTS and _is_changed(op, layout) else (op,):
            yield part, _norm_behind(op, part)


def _gathered(ops: Iterable[Op]) -> Iterator[Op]:
    """The ops, linear maps of one x directly behind the first of them, unless an op between forbids it."""
    left = deque(ops)
    while left:
        op = left.popleft()
        yield op
        if op.name == "linear":
            more = _of_same_x(op, left)
            yield from more
            for each in more:
                left.remove(each)


def _of_same_x(op: Op, behind: Iterable[Op]) -> Ops:
    """The linear maps of the op's x that can move before the ops between."""
    x, out, between = op.view("x"), list[Op](), list[Op]()
    for other in behind:
        if other.name == "linear" and other.view("x") != x:
            break
        if x.buffer in _written(other):
            break
        y = other.view("y").buffer if other.name == "linear" else None
        if y and not any(y == view.buffer for each in between for _, view in each.views()):
            out.append(other)
        else:
            between.append(other)
    return tuple(out)


def _written(op: Op) -> set[Buffer]:
    row = row_of(op.name)
    return {
        op.view(role.rstrip("?")).buffer for role in (*row.writes, *row.updates) if op.has(role.rstrip("?"))
    }


def _is_changed(op: Op, layout: AdapterLayout) -> bool:
    return any(name in layout.sites for w in op.weights() for name in w.name.split(JOINED))


def _norm_behind(op: Op, part: Op) -> Ops:
    """The deferred norm of a `linear_add_norm` behind its sum."""
    if op.name != "linear_add_norm" or part.name != "linear_add":
        return ()
    return (make_op("defer_norm", {"z": op.view("z"), "y": op.view("y"), "gain": op.weight("gain")}, {}),)


def _linear_add(op: Op) -> Ops:
    operands = {role: operand for role, operand in op.operands if role not in ("z", "gain")}
    return (make_op("linear_add", operands, dict(op.attrs)),)


def _gated(op: Op, name: str, attrs: Mapping[str, Attr]) -> Ops:
    """A linear map to gate and up side by side, and their product."""
    y = op.view("y")
    both = _beside(op, "gate+up", 2 * y.cols)
    halves = {"gate": both.slice(0, y.cols), "up": both.slice(y.cols, y.cols)}
    product = make_op(name, {"y": both, "x": op.view("x"), "weight": op.weight("weight")}, attrs)
    return product, make_op("glu", {"y": y, **halves}, {"act": op.word("act")})


def _beside(op: Op, name: str, cols: int) -> View:
    """A new buffer with the rows of the op's output."""
    y = op.view("y").buffer
    return whole(Buffer(f"{y.name}.{name}", y.rows, cols, y.dtype))


def _linear_glu(op: Op) -> Ops:
    return _gated(op, "linear", {})


def _norm_linear_glu(op: Op) -> Ops:
    return _gated(op, "norm_linear", {"eps": op.number("eps")})


def _experts_glu(op: Op) -> Ops:
    shared, y = {role: op.view(role) for role in ("x", "ids")}, op.view("y")
    out: list[Op] = []
    for half, name in (("", "gate"), ("up_", "up")):
        own = {role: op.weight(half + role) for role in ("weight", "bias") if op.has(half + role)}
        out.append(make_op("linear_experts", {**shared, **own, "y": _beside(op, name, y.cols)}, {}))
    halves = {"gate": out[0].view("y"), "up": out[1].view("y")}
    return *out, make_op("glu", {"y": y, **halves}, {"act": op.word("act")})


def _experts_sum(op: Op) -> Ops:
    n_out, n_used = op.view("y").cols, op.view("ids").cols
    each = _beside(op, "each", n_used * n_out)
    operands = {role: operand for role, operand in op.operands if role not in ("probs", "y")}
    experts = make_op("linear_experts", {**operands, "y": each}, {})
    return experts, make_op("combine", {"y": op.view("y"), "x": each, "probs": op.view("probs")}, {})


# A fused op -> the ops that it consists of, over the same weights.
PARTS: Mapping[str, Callable[[Op], Ops]] = {
    "linear_add_norm": _linear_add,
    "linear_glu": _linear_glu,
    "norm_linear_glu": _norm_linear_glu,
    "qkv": qkv_parts,
    "norm_qkv": qkv_parts,
    "linear_experts_glu": _experts_glu,
    "linear_experts_sum": _experts_sum,
}


def _terms(op: Op, layout: AdapterLayout, attrs: Mapping[str, Attr]) -> Iterator[Op]:
    """The term of each site among the joined rows of a linear map."""
    at = 0
    y = op.view("y")
    for name, n_rows in _joined(op.weight("weight"), layout):
        if name in layout.sites:
            operands = {"y": y.slice(at, n_rows), "x": op.view("x")}
            yield _low_rank("low_rank", operands, layout, name, attrs)
        at += n_rows


def _joined(weight: Weight, layout: AdapterLayout) -> Iterator[tuple[str, int]]:
    """(name, rows) of the matrices whose rows a weight joins."""
    names = weight.name.split(JOINED)
    known = [layout.sites[name].n_out if name in layout.sites else 0 for name in names]
    if len(names) == 1:
        known = [weight.rows]
    yield from zip(names, known, strict=True)


def _low_rank(
    op: str, operands: Mapping[str, View], layout: AdapterLayout, name: str, attrs: Mapping[str, Attr]
) -> Op:
    site = layout.sites[name]
    own: dict[str, Attr] = {"tensor": site.tensor, "rank": layout.rank, "n_in": site.n_in}
    return make_op(op, {**operands, "adapters": StateRef(site.group, site.layer)}, {**own, **attrs})


def _of_linear(op: Op, layout: AdapterLayout) -> Iterator[Op]:
    return _terms(op, layout, {})


def _of_sum(op: Op, layout: AdapterLayout) -> Iterator[Op]:
    return _terms(op, layout, {"scale": op.number("scale")})


def _of_norm_linear(op: Op, layout: AdapterLayout) -> Iterator[Op]:
    return _terms(op, layout, {"deferred": 1, "eps": op.number("eps")})


def _of_experts(op: Op, layout: AdapterLayout) -> Iterator[Op]:
    name = op.weight("weight").name
    if name in layout.sites:
        operands = {role: op.view(role) for role in ("y", "x", "ids")}
        yield _low_rank("low_rank_experts", operands, layout, name, {"experts": layout.sites[name].experts})


# A linear map -> the terms behind it.
TERMS: Mapping[str, Callable[[Op, AdapterLayout], Iterator[Op]]] = {
    "linear": _of_linear,
    "linear_add": _of_sum,
    "norm_linear": _of_norm_linear,
    "linear_experts": _of_experts,
}
