"""T5 (arXiv 1910.10683): an encoder, and a decoder that attends to its rows. Biases by bucketed distance,
shared by the layers of a stack; unscaled scores; ReLU and a tied head, or (v1.1) gates and an untied head.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tests.support.model.stress import plain
from tests.support.model.stress.shape import Mutation, Values, changed, filled, random_ids, without
from tests.support.model.stress_encoder import Pair
from tests.support.model.stress_runs import Edit, bypass, edit_ops, random_weights, with_attr

from camelid.model.arch import Model
from camelid.model.spec import EncoderSpec, LayerSpec, ModelSpec
from camelid.plan.plan import Op, Plan, StateRef
from camelid.plan.weights import LoadOp, Weight, inline_f32

C, F, V, H, D, EPS = 32, 40, 96, 4, 6, 1e-6
N_ENCODER, N_DECODER = 3, 2
BUCKETS, MOST = 16, 24  # one-sided: 8 exact, then 8 up to 24; two-sided: half per side

ENCODES = LayerSpec(mixer="bidirectional", mlp="mlp", act="relu", rope="")
DECODES = LayerSpec(residual="cross", mlp="mlp", act="relu", rope="")
SPEC = ModelSpec(
    arch="stress", name="t5", n_layers=N_DECODER, n_heads=H, n_kv_heads=H, head_dim=D, hidden_size=C,
    ffn_size=F, vocab_size=V, context_length=64, norm_eps=EPS, layers=(DECODES,) * N_DECODER, is_tied=True,
    attention_scale=1.0, logit_scale=C**-0.5, encoder=EncoderSpec(layers=(ENCODES,) * N_ENCODER),
    max_distance=MOST,
)  # fmt: skip

SELF = {
    "attn_norm": (C,),
    "attn_q": (H * D, C),
    "attn_k": (H * D, C),
    "attn_v": (H * D, C),
    "attn_o": (C, H * D),
}
CROSS = {f"cross_{name}": shape for name, shape in SELF.items()}
FEED = {"ffn_norm": (C,), "ffn_up": (F, C), "ffn_down": (C, F)}


def shapes() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"token_embd": (V, C), "output": (V, C)}
    stacks = {"enc": (N_ENCODER, SELF | FEED), "dec": (N_DECODER, SELF | CROSS | FEED)}
    for stack, (n_layers, names) in stacks.items():
        found |= {f"{stack}.output_norm": (C,), f"{stack}.blk.0.attn_rel_b": (BUCKETS, H)}
        for i in range(n_layers):
            found |= {f"{stack}.blk.{i}.{name}": shape for name, shape in names.items()}
            found[f"{stack}.blk.{i}.ffn_gate"] = (F, C)
    return found


NUMBERS = random_weights(shapes(), 61)
PAIRS: list[Pair] = [
    (random_ids(62, 44, V), [0, *random_ids(63, 39, V)]),
    (random_ids(64, 1, V), [0, *random_ids(65, 4, V)]),
    (random_ids(66, 17, V), [0, *random_ids(67, 30, V)]),
]


def model(mutation: Mutation | None = None, *, is_gated: bool = False) -> Model:
    """Weights by block name: attn_o of the file format is the output of any self-attention."""
    how = mutation or Mutation()
    left_out = () if is_gated else ("ffn_gate", "output")
    values = {n: v for n, v in NUMBERS.items() if n.rpartition(".")[2] not in left_out}
    weights = {n: inline_f32(n, v.ravel().tolist(), v.shape) for n, v in how.weights(values).items()}
    named = {n.replace(".attn_o", ".attn_output"): weight for n, weight in weights.items()}
    return Model(replace(_gated() if is_gated else SPEC, **how.spec), named)


def _gated() -> ModelSpec:
    feed = {"mlp": "glu", "act": "gelu"}
    encoder = EncoderSpec(layers=(replace(ENCODES, **feed),) * N_ENCODER)
    layers = (replace(DECODES, **feed),) * N_DECODER
    return replace(SPEC, encoder=encoder, layers=layers, is_tied=False, logit_scale=1.0)


def oracle(*, is_gated: bool = False) -> list[Any]:  # [T, V] of each pair
    w = {name: value.astype(np.float64) for name, value in NUMBERS.items()}
    head = w["output"] if is_gated else w["token_embd"] * C**-0.5
    return [transduce(w, source, target, is_gated) @ head.T for source, target in PAIRS]


def transduce(w: plain.Weights, source: Any, target: Any, is_gated: bool) -> Any:  # [T, C]
    feed = gated if is_gated else relu
    near = bias(w["enc.blk.0.attn_rel_b"], len(source), is_causal=False)
    x = w["token_embd"][source]
    for i in range(N_ENCODER):
        blk = f"enc.blk.{i}."
        h = norm(w, x, blk + "attn_norm")
        x = x + attention(w, h, h, blk + "attn_", near)
        x = x + feed(w, norm(w, x, blk + "ffn_norm"), blk)
    seen = norm(w, x, "enc.output_norm")
    near = bias(w["dec.blk.0.attn_rel_b"], len(target), is_causal=True)
    x = w["token_embd"][target]
    for i in range(N_DECODER):
        blk = f"dec.blk.{i}."
        h = norm(w, x, blk + "attn_norm")
        x = x + attention(w, h, h, blk + "attn_", near)
        x = x + attention(w, norm(w, x, blk + "cross_attn_norm"), seen, blk + "cross_attn_", 0.0)
        x = x + feed(w, norm(w, x, blk + "ffn_norm"), blk)
    return norm(w, x, "dec.output_norm")


def norm(w: plain.Weights, x: Any, name: str) -> Any:
    return plain.rms(x, w[name], EPS)


def attention(w: plain.Weights, x: Any, seen: Any, blk: str, near: Any) -> Any:
    q, k, v = (
        (a @ w[blk + name].T).reshape(len(a), H, D) for a, name in ((x, "q"), (seen, "k"), (seen, "v"))
    )
    shares = plain.softmax(np.einsum("thd,shd->hts", q, k) + near)
    return np.einsum("hts,shd->thd", shares, v).reshape(len(x), -1) @ w[blk + "o"].T


def relu(w: plain.Weights, x: Any, blk: str) -> Any:
    return np.maximum(x @ w[blk + "ffn_up"].T, 0) @ w[blk + "ffn_down"].T


def gated(w: plain.Weights, x: Any, blk: str) -> Any:
    return (plain.gelu(x @ w[blk + "ffn_gate"].T) * (x @ w[blk + "ffn_up"].T)) @ w[blk + "ffn_down"].T


def bias(table: Any, n: int, *, is_causal: bool) -> Any:  # [H, n, n]
    offset = np.arange(n) - np.arange(n)[:, None]  # of a key, relative to its query
    if is_causal:
        values = table[buckets(np.maximum(-offset, 0), len(table), MOST)]
        return np.where(offset > 0, -np.inf, np.moveaxis(values, 2, 0))
    half = len(table) // 2
    after = np.where(offset > 0, half, 0)
    return np.moveaxis(table[buckets(np.abs(offset), half, MOST) + after], 2, 0)


def buckets(distance: Any, n_buckets: int, most: int) -> Any:
    """Half the buckets hold one distance each, the other half grow logarithmically up to `most`."""
    n_exact = n_buckets // 2
    ratio = np.log(np.maximum(distance, 1) / n_exact) / np.log(most / n_exact)
    far = n_exact + np.floor(ratio * (n_buckets - n_exact)).astype(int)
    return np.where(distance < n_exact, distance, np.minimum(far, n_buckets - 1))


def _in(entry: str, edit: Edit) -> Mutation:
    """Edits only that entry's plan."""
    return Mutation(edit=lambda plan: edit(plan) if plan.key.entry == entry else plan)


def _picks(entry: str, change: Any) -> Mutation:
    """Replaces the buckets of the distances by change(numbers)."""

    def other(weight: Any) -> Any:
        if not isinstance(weight, Weight) or not weight.name.endswith("attn_rel_b"):
            return weight
        of, *numbers = weight.load_ops[0].args
        return replace(weight, load_ops=(LoadOp("pick", (of, *change(numbers))),))

    def edit(op: Op) -> Op:
        return replace(op, operands=tuple((role, other(operand)) for role, operand in op.operands))

    return _in(entry, lambda plan: edit_ops(plan, edit))


def _one_on(numbers: list[int]) -> list[int]:
    return [*numbers[1:], numbers[-1]]


def _first_layer_only(stack: str, n_layers: int) -> Mutation:
    def edit(values: Values) -> Values:
        none = np.zeros((BUCKETS, H), np.float32)
        return {**values, **{f"{stack}.blk.{i}.attn_rel_b": none for i in range(1, n_layers)}}

    return Mutation(weights=edit)


def _cross_ops(change: Any) -> Mutation:
    def edit(op: Op) -> Op:
        return change(op) if op.name == "attention" and op.word("mask") == "held" else op

    return _in("mixed", lambda plan: edit_ops(plan, edit))


def _causal(op: Op) -> Op:
    attrs = tuple((name, "causal" if name == "mask" else value) for name, value in op.attrs)
    return replace(op, attrs=attrs)


def _first_cross_layer(op: Op) -> Op:
    operands = tuple((r, StateRef("cross", 0) if r == "state" else o) for r, o in op.operands)
    return replace(op, operands=operands)


def _no_cross(plan: Plan) -> Plan:
    def edit(op: Op) -> Op | None:
        adds = op.name == "add" and op.view("r").buffer.name in ("o.1", "o.3")
        return None if adds else op

    return edit_ops(plan, edit)


def _encoder_norm_dropped(plan: Plan) -> Plan:
    def is_meant(op: Op) -> bool:
        return op.name == "norm" and op.weight("gain").name == "enc.output_norm"

    return bypass(plan, is_meant, "x")


def _layers(**changes: Any) -> Mutation:
    encoder = EncoderSpec(layers=(replace(ENCODES, **changes),) * N_ENCODER)
    return Mutation(spec={"encoder": encoder, "layers": (replace(DECODES, **changes),) * N_DECODER})


def _roll(ending: str) -> Mutation:
    return Mutation(weights=changed(lambda _, value: np.roll(value, 1, 0), ending))


MUTATIONS = {
    "no bias in the encoder": Mutation(weights=without("enc.blk.0.attn_rel_b")),
    "no bias in the decoder": Mutation(weights=without("dec.blk.0.attn_rel_b")),
    "bias in the encoder's first layer only": _first_layer_only("enc", N_ENCODER),
    "bias in the decoder's first layer only": _first_layer_only("dec", N_DECODER),
    "encoder's buckets off by one": _roll("enc.blk.0.attn_rel_b"),
    "decoder's buckets off by one": _roll("dec.blk.0.attn_rel_b"),
    "encoder's distances off by one": _picks("encode", _one_on),
    "decoder's distances off by one": _picks("mixed", _one_on),
    "before and after swapped": _picks("encode", lambda numbers: numbers[::-1]),
    "both sides alike": _picks("encode", lambda numbers: [n % (BUCKETS // 2) for n in numbers]),
    "the last bucket left out": _picks("mixed", lambda numbers: [min(n, BUCKETS - 2) for n in numbers]),
    "a larger distance": Mutation(spec={"max_distance": MOST + 8}),
    "a smaller distance": Mutation(spec={"max_distance": MOST - 8}),
    "scores scaled": Mutation(spec={"attention_scale": 0.0}),
    "logits not scaled": Mutation(spec={"logit_scale": 1.0}),
    "layer norms": Mutation(spec={"norm_kind": "layer"}),
    "gelu": _layers(act="gelu"),
    "causal encoder": _in("encode", lambda plan: with_attr(plan, "attend_rows", mask="causal")),
    "causal cross-attention": _cross_ops(_causal),
    "keys of the first layer for all": _cross_ops(_first_cross_layer),
    "no cross-attention": _in("mixed", _no_cross),
    "cross-attention's norm without gain": Mutation(weights=filled("cross_attn_norm", 1.0)),
    "encoder's rows not normed": _in("encode", _encoder_norm_dropped),
}
