"""RWKV-7: time mix, a generalized delta rule, and channel mix (Goose, arXiv 2503.14456)."""

from __future__ import annotations

from camelid.model.lowering import RECURRENT, Lowering, Tensors
from camelid.model.spec import ModelSpec, RwkvSpec
from camelid.plan.plan import StateRef, View
from camelid.plan.weights import Weight

TIME, CHANNEL = range(2)  # parts of the state `shift`
FIRST_VALUES = "first_values"


def rwkv7_first(c: Lowering, h: View, i: int) -> View:
    """The time mix of the first layer, whose values later layers read; [T, C] -> [T, C]."""
    mixed = _mixed(c, h, i)
    c.earlier[FIRST_VALUES] = v = c.linear(mixed["v"], f"blk.{i}.time_mix_value", "first_values")
    return _time_mix(c, mixed, v, i)


def rwkv7(c: Lowering, h: View, i: int) -> View:
    """The time mix of a later layer: v = v + share * (first layer's v - v), by column; [T, C] -> [T, C]."""
    mixed, blk, first = _mixed(c, h, i), f"blk.{i}.", c.earlier[FIRST_VALUES]
    v, share = c.linear(mixed["v"], blk + "time_mix_value", "v"), _pair(c, mixed["v"], blk + "time_mix_v")
    taken, given = c.plan.glu(share, first, "sigmoid"), c.plan.glu(share, v, "sigmoid")  # [T, C] each
    c.plan.add(v, taken)
    c.plan.add(v, given, -1.0)
    return _time_mix(c, mixed, v, i)


def channel_mix(c: Lowering, h: View, i: int) -> View:
    """value(act(key(h mixed with the row before it))); [T, C] -> [T, C]."""
    blk, state = f"blk.{i}.channel_mix_", StateRef(RECURRENT, i)
    k = c.plan.token_shift(h, c.weights[blk + "lerp_k"], state=state, part=CHANNEL)
    k = c.linear(k, blk + "key", "key")  # [T, F]
    c.plan.unary(k, c.layer(i).act)
    return c.linear(k, blk + "value", "value")


def rwkv_state(spec: ModelSpec) -> Tensors:
    """State tensors of a layer: the last inputs of time mix and channel mix, and one matrix per head."""
    n_shifts = 1 + any(layer.mlp.startswith("channel_mix") for layer in spec.layers)
    return ("shift", n_shifts * spec.hidden_size), ("scan", spec.hidden_size * sizes(spec).head_dim)


def _mixed(c: Lowering, h: View, i: int) -> dict[str, View]:
    """The inputs of the time mix by letter, each h mixed with the row before it in its own way; [T, C]."""
    lerp, state = c.weights[f"blk.{i}.time_mix_lerp_fused"], StateRef(RECURRENT, i)
    y = c.plan.token_shift(h, lerp, state=state, part=TIME)  # [T, n*C], n letters: 5 or 6
    return dict(zip("rwkvag"[: lerp.rows], c.split(y, *[h.cols] * lerp.rows), strict=True))


def low_rank(c: Lowering, x: View, name: str, act: str = "", bias: Weight | None = None) -> View:
    """name2 @ act(name1 @ x) + bias, matrices of low rank; [T, C] -> [T, C]."""
    y = c.linear(x, name + "1", "rank")
    if act:
        c.plan.unary(y, act)
    return c.plan.linear(y, c.weights[name + "2"], "pair", bias)


def _pair(c: Lowering, x: View, name: str, act: str = "") -> View:
    """`low_rank` with the bias name0, if the model has it."""
    return low_rank(c, x, name, act, c.weights.get(name + "0"))


def _time_mix(c: Lowering, mixed: dict[str, View], v: View, i: int) -> View:
    """output((norm(scan(r, w, k, v, a)) + bonus) * g), norm and g if the model has them; [T, C] -> [T, C]."""
    size, blk = sizes(c.spec), f"blk.{i}.time_mix_"
    r = c.linear(mixed["r"], blk + "receptance", "r")  # [T, C], as all others
    k = c.linear(mixed["k"], blk + "key", "k")
    w, a = _pair(c, mixed["w"], blk + "w", "tanh"), _pair(c, mixed["a"], blk + "a")
    c.plan.unary(a, "sigmoid")
    k_k, k_a, r_k = (c.weights[blk + name] for name in ("k_k", "k_a", "r_k"))
    heads = {"k": k, "v": v, "a": a}
    y = c.plan.scan_rwkv7(
        r, w=w, **heads, state=StateRef(RECURRENT, i), n_heads=size.n_heads, k_k=k_k, k_a=k_a
    )
    y = norm_heads(c, y, i)
    c.plan.bonus_rwkv7(y, r=r, **heads, n_heads=size.n_heads, k_a=k_a, r_k=r_k)
    if "g" in mixed:
        c.plan.mul(y, _pair(c, mixed["g"], blk + "g", "sigmoid"))
    return c.linear(y, blk + "output", "o")


def norm_heads(c: Lowering, y: View, i: int) -> View:
    """The layer norm of each head, if the model has it; [T, C] -> [T, C]."""
    name, size = f"blk.{i}.time_mix_ln", sizes(c.spec)
    if name not in c.weights:
        return y
    y = c.plan.norm(y, None, size.norm_eps, kind="layer", size=size.head_dim)
    return c.plan.affine(y, c.weights[name], c.weights.get(f"{name}.bias"))


def sizes(spec: ModelSpec) -> RwkvSpec:
    assert spec.rwkv is not None, "an RWKV layer needs the sizes of spec.rwkv"
    return spec.rwkv
