"""Joins more to a `qkv` or `norm_qkv`: the norms of heads, and the write to the tail of the KV cache.

`linear; norm_rope_write` becomes `qkv` with gains, also with a linear map of v of its own. `kv_write` to the
tail becomes a part of the `qkv` before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from camelid.plan.dtypes import F32
from camelid.plan.op_rows_fused import QKV
from camelid.plan.ops import make_op
from camelid.plan.plan import Op, Operand, View
from camelid.plan.qkv import cut
from camelid.plan.tiers import tail_of

Ops = tuple[Op, ...]


def fuse_qkv_heads(ops: Ops, _: int) -> Ops:
    """Replaces linear maps and the norms, rotation and write of their columns, then the write to a tail."""
    out: list[Op] = []
    for op in ops:
        maps = _maps(out, op) if op.name == "norm_rope_write" else []
        if maps:
            out[-len(maps) :] = [_with_norms(maps, op)]
        elif op.name == "kv_write" and out and _is_tail(out[-1], op):
            out[-1] = make_op(
                out[-1].name, {**dict(out[-1].operands), "tail": op.state("state")}, dict(out[-1].attrs)
            )
        else:
            out.append(op)
    return tuple(out)


def _maps(out: Sequence[Op], write: Op) -> list[Op]:
    """The last map, or the last two, of the columns of queries and keys, then of values; else none."""
    x, (turned, _, v) = write.view("x"), cut(write, "x")
    for views in ([x], [turned, v]):
        last = list(out[-len(views) :])
        if [_output(op) for op in last] == views and len({_source(op) for op in last}) == 1:
            return last
    return []


def _output(op: Op) -> View | None:
    """The output of a linear map of float32, None for other ops."""
    return op.view("y") if op.name in QKV.values() and op.view("x").dtype == F32 else None


def _source(op: Op) -> object:
    return op.name, op.view("x"), op.attrs


def _with_norms(maps: Sequence[Op], write: Op) -> Op:
    linear, *values = maps
    name = next(name for name, part in QKV.items() if part == linear.name)
    operands: dict[str, Operand] = {**dict(linear.operands), "y": write.view("x")}
    operands |= {role: operand for role, operand in write.operands if role != "x"}
    for own in values:
        operands |= {f"v_{role}": own.weight(role) for role in ("weight", "bias") if own.has(role)}
    attrs = {name: value for name, value in write.attrs if name != "eps"}
    return make_op(name, operands, {**attrs, **dict(linear.attrs), "head_eps": write.number("eps")})


def _is_tail(last: Op, write: Op) -> bool:
    """True if a `qkv` without a tail writes the same columns to the store of this tail."""
    if last.name not in QKV or last.has("tail"):
        return False
    _, *columns = cut(last, "y")
    store, tail = last.state("state"), write.state("state")
    is_own = (tail.group, tail.layer) == (tail_of(store.group), store.layer)
    return is_own and write.has("v") and columns == [write.view("k"), write.view("v")]
