"""Joins the norms of a layer's queries and keys, their rotation, and the write to the KV cache.

`norm q; rope; norm k; rope; kv_write` becomes `norm_rope_write`, which works in place on one buffer of
queries, keys and values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from camelid.plan.dtypes import F32
from camelid.plan.join import place, placed
from camelid.plan.ops import make_op
from camelid.plan.plan import Buffer, Op, View, whole
from camelid.plan.qkv import TABLES, angles_of, cut, side_by_side, turns_text

Ops = tuple[Op, ...]
Places = dict[str, View]  # of buffers, by name
Reads = dict[Buffer, list[View]]  # views that ops read or update, by buffer
PARTS = ["norm", "rope", "norm", "rope"]


def fuse_norm_rope(ops: Ops, _: int) -> Ops:
    """Replaces norms, rotations and write by one op. A linear map of v may stand before the write."""
    out, places, reads = list[Op](), Places(), _reads(ops)
    for op in ops:
        at = len(out) - len(PARTS) - int(op.name == "kv_write" and _ends_in_map(out, op))
        parts = out[max(at, 0) :][: len(PARTS)]
        if op.name == "kv_write" and _fits(parts, op, reads):
            own = _places(parts, op)
            out[at:] = [*out[at + len(PARTS) :], _fused(parts, op, own)]
            places |= own
        else:
            out.append(op)
    return tuple(placed(op, places) for op in out)


def _ends_in_map(ops: Sequence[Op], kv_write: Op) -> bool:
    """True if the last op is the linear map of v."""
    is_map = bool(ops) and ops[-1].name in ("linear", "norm_linear")
    return is_map and kv_write.has("v") and ops[-1].view("y") == kv_write.view("v")


def _fits(parts: Sequence[Op], kv_write: Op, reads: Reads) -> bool:
    """True if the parts normalize and rotate q, then k alike, and q, k and v fill their buffers."""
    if [op.name for op in parts] != PARTS or not kv_write.has("v"):
        return False
    norms, ropes = parts[::2], parts[1::2]
    if not all(map(turns_text, ropes)):
        return False
    is_alike = norms[0].number("eps") == norms[1].number("eps") and _n_angles(ropes) == 1
    are_norms = all(map(_is_of_heads, norms, ropes))
    is_chain = all(norm.view("y") == rope.view("x") for norm, rope in zip(norms, ropes, strict=True))
    if not is_alike or not are_norms or not is_chain or norms[1].view("y") != kv_write.view("k"):
        return False
    return _is_covered(parts, kv_write) and not _reads_more(parts, reads)


def _n_angles(ropes: Iterable[Op]) -> int:
    """Number of distinct attributes and tables."""
    return len({(rope.attrs, *(rope.weight(role).name for role in TABLES)) for rope in ropes})


def _is_of_heads(norm: Op, rope: Op) -> bool:
    """True for an RMS norm with one gain for all heads, from one whole float32 buffer to another."""
    head_dim, y = rope.integer("head_dim"), norm.view("y")
    size = norm.integer("size") or norm.view("x").cols  # 0: one head alone
    of_heads = (norm.word("kind"), size) == ("rms", head_dim)
    has_gain = norm.has("gain") and norm.weight("gain").shape == (head_dim,) and not norm.has("bias")
    return of_heads and has_gain and y == whole(y.buffer) and {y.dtype, norm.view("x").dtype} == {F32}


def _is_covered(parts: Sequence[Op], kv_write: Op) -> bool:
    """True if q, k and v lie side by side in this order, in joined buffers without other columns."""
    views, places = _views(parts, kv_write), _places(parts, kv_write)
    side = [place(view, places) for view in views]
    ends = list(accumulate(view.cols for view in views))
    is_exact = {view.dtype for view in views} == {F32}
    return is_exact and [v.offset for v in side] == [0, *ends[:-1]] and ends[-1] == side[0].buffer.cols


def _views(parts: Sequence[Op], kv_write: Op) -> list[View]:
    return [parts[0].view("x"), parts[2].view("x"), kv_write.view("v")]


def _places(parts: Sequence[Op], kv_write: Op) -> Places:
    """Places of the buffers of q, k and v in one, and of the normed q and k, which are its first columns."""
    joined = side_by_side(list(dict.fromkeys(view.buffer for view in _views(parts, kv_write))))
    return joined | {n.view("y").buffer.name: place(n.view("x"), joined) for n in parts[::2]}


def _reads(ops: Ops) -> Reads:
    reads: Reads = {}
    for op in ops:
        for role, view in op.views():
            if role != "y":
                reads.setdefault(view.buffer, []).append(view)
    return reads


def _reads_more(parts: Sequence[Op], reads: Reads) -> bool:
    """True if an op besides the norms reads q or k as it was before them."""
    views = [norm.view("x") for norm in parts[::2]]
    return any(sum(_overlap(view, own) for view in reads[own.buffer]) > 1 for own in views)


def _overlap(a: View, b: View) -> bool:
    return a.offset < b.offset + b.cols and b.offset < a.offset + a.cols


def _fused(parts: Sequence[Op], kv_write: Op, places: Mapping[str, View]) -> Op:
    norm_q, rope, norm_k, _ = parts
    x = whole(place(norm_q.view("x"), places).buffer)
    tables = {role: rope.weight(role) for role in TABLES}
    gains = {"q_gain": norm_q.weight("gain"), "k_gain": norm_k.weight("gain")}
    cols = {f"{role}_cols": kv_write.view(role).cols for role in ("k", "v")}
    attrs = {**angles_of(rope), **cols, "eps": norm_q.number("eps")}
    return make_op("norm_rope_write", {"x": x, **gains, **tables, "state": kv_write.state("state")}, attrs)


def norm_rope_parts(op: Op) -> Ops:
    """The two ops that a `norm_rope_write` consists of."""
    _, k, v = cut(op, "x")
    rest = {role: operand for role, operand in op.operands if role != "state"}
    return (
        make_op("norm_rope", rest, dict(op.attrs)),
        make_op("kv_write", {"k": k, "v": v, "state": op.state("state")}, {}),
    )
