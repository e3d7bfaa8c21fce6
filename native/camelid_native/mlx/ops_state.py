"""MLX kernels of the KV cache: kv_write, and attention over all pages of a sequence's table.

Attention gathers the whole capacity of the table for every row. That fits the tests and small models on a
CPU; a GPU has a kernel that reads only the pages in use (`metal/attend.metal`).
"""

from __future__ import annotations

from camelid.plan.plan import Op, StateRef
from camelid.plan.tiers import BATCH, TAIL
from camelid_native.mlx.arrays import I32, Array, indices, mx
from camelid_native.mlx.kv_rows import KV_TYPES
from camelid_native.mlx.ops_basic import capped
from camelid_native.mlx.trace import Trace


def op_kv_write(op: Op, f: Trace) -> None:
    state = op.state("state")
    place = places(f, state)
    for name in (role for role in ("k", "v") if op.has(role)):
        f.put((state.group, state.layer, name), place, encoded(f, state, f.read(op.view(name))))


def places(f: Trace, state: StateRef) -> Array:  # [T]
    """The row of a pool that each row of a step writes."""
    n, row = f.spec(state).unit_rows, f.row_word("state_row")
    unit = f.pages_of_rows(state.group, (row // n)[:, None])[:, 0]
    return mx.where(f.is_live, unit * n + row % n, 0)


def encoded(f: Trace, state: StateRef, values: Array) -> Array:  # [T, cols] -> [T, width]
    return KV_TYPES[f.spec(state).kv_type].encode(values)


def op_attention(op: Op, f: Trace) -> None:
    state, n_heads, n_kv_heads = op.state("state"), op.integer("n_heads"), op.integer("n_kv_heads")
    q = f.read(op.view("q"))
    q = q.reshape(len(q), n_kv_heads, n_heads // n_kv_heads, -1)  # [T, K, G, D]
    is_seen = _is_seen(op, f, state)  # [T, keys]
    k = _cached(op, f, "k").reshape(*is_seen.shape, n_kv_heads, -1)  # [T, keys, K, D]
    has_v = "v" in dict(f.spec(state).tensors)
    v = _cached(op, f, "v").reshape(*is_seen.shape, n_kv_heads, -1) if has_v else k
    v = v[..., : op.view("y").cols // n_heads]
    scores = (q @ k.transpose(0, 2, 3, 1)) * op.number("scale")  # [T, K, G, keys]
    y = attended(op, f, scores, is_seen, v.swapaxes(1, 2), _bias(op, f))
    f.write(op.view("y"), y.reshape(len(q), -1))


def attended(op: Op, f: Trace, scores: Array, is_seen: Array, v: Array, bias: Array | None) -> Array:
    """Softmax of scores [T, K, G, keys] over the seen keys [T, keys], times v [T, K, keys, V].

    Unseen keys may be of any bits, NaN too. A bias is [T, K, G, keys].
    """
    cap = op.number("softcap")
    scores = capped(scores, cap) if cap else scores
    scores = scores if bias is None else scores + bias
    scores = mx.where(is_seen[:, None, None], scores, -mx.inf)
    probs = _with_sinks(op, f, scores) if op.has("sinks") else mx.softmax(scores, axis=-1)
    return probs @ mx.where(is_seen[:, None, :, None], v, 0.0)


def _with_sinks(op: Op, f: Trace, scores: Array) -> Array:  # [T, K, G, keys]
    """Softmax with one more score per head, whose share is dropped."""
    *shape, n_keys = scores.shape
    sinks = mx.broadcast_to(f.weights.vector(op.weight("sinks")).reshape(*shape[1:], 1), (*shape, 1))
    return mx.softmax(mx.concatenate([scores, sinks], axis=-1), axis=-1)[..., :n_keys]


def _is_seen(op: Op, f: Trace, state: StateRef) -> Array:  # [T, keys]
    """True for the state rows, of the table's capacity, that a row attends to."""
    keys = _keys(f, state)
    row = f.row_word("state_row")[:, None]
    kept = keys >= f.group_word(f.of_rows, state.group, "write")[:, None]
    if op.word("mask") == "chunked":
        kept = kept & (keys >= row // op.integer("window") * op.integer("window"))
    elif op.integer("window"):
        kept = kept & (keys + op.integer("window") > row)
    if op.word("mask") == "held":
        return kept & (keys < f.group_word(f.of_rows, state.group, "held")[:, None])
    if op.has("tail"):
        first = f.group_word(f.of_rows, op.state("tail").group, "write")[:, None]
        kept = kept & (_is_stored(op, f) | (keys >= first))
    return kept & (keys <= row)


def _keys(f: Trace, state: StateRef) -> Array:  # [1, keys]
    return indices(f.table_cols[state.group] * f.spec(state).unit_rows)[None]


def _bias(op: Op, f: Trace) -> Array | None:  # [T, K, G, keys]
    """The bias by the distance of a key, for a causal mask; keys behind the row are masked."""
    if not op.has("bias"):
        return None
    table = f.weights.matrix(op.weight("bias"))  # [n, H]
    row = f.row_word("state_row")[:, None].astype(I32)
    distance = mx.clip(row - _keys(f, op.state("state")).astype(I32), 0, len(table) - 1)  # [T, keys]
    by_key = table[distance].swapaxes(1, 2)  # [T, H, keys]
    return by_key.reshape(len(by_key), op.integer("n_kv_heads"), -1, by_key.shape[2])


def _cached(op: Op, f: Trace, name: str) -> Array:  # [T, keys, cols]
    """Keys or values of each row's sequence: of two tiers, recent rows are the tail's."""
    stored = _gathered(f, op.state("state"), name)
    if not op.has("tail"):
        return stored
    recent = _gathered(f, op.state("tail"), name)
    return mx.where(_is_stored(op, f)[..., None], stored, recent)


def _is_stored(op: Op, f: Trace) -> Array:  # [T, keys]
    """True for keys before `first_tail_row`, which a row reads from the store."""
    row = f.row_word("state_row")[:, None]
    border = mx.maximum(row + 1, TAIL) - TAIL
    return _keys(f, op.state("state")) < border // BATCH * BATCH


def _gathered(f: Trace, state: StateRef, name: str) -> Array:  # [T, keys, cols]
    spec = f.spec(state)
    numbers = indices(f.table_cols[state.group])[None]
    first = f.pages_of_rows(state.group, numbers)[..., None] * spec.unit_rows  # [T, pages, 1]
    rows = (first + indices(spec.unit_rows)).reshape(len(first), -1)
    return KV_TYPES[spec.kv_type].decode(f.state[state.group, state.layer, name][rows])
