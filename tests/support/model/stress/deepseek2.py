"""DeepSeek-V3 (arXiv 2412.19437) and V2-Lite (arXiv 2405.04434): latent attention, YaRN with its magnitude in
the scale, a dense layer before the expert layers, experts chosen by group. The plain model expands keys and
values for every head, as in the papers; camelid absorbs the expanding matrices.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tests.support.model.stress import plain
from tests.support.model.stress.shape import Mutation, Shape, changed, filled, random_ids, without
from tests.support.model.stress_runs import random_weights, with_attr

from camelid.model.spec import ExpertsSpec, LayerSpec, MlaSpec, ModelSpec, RopeScaling, RopeSpec

C, F, V, T = 48, 80, 96, 40
H, NOPE, ROPE, VALUE, Q_RANK, RANK = 4, 16, 8, 12, 24, 20
E, USED, X, SHARED = 8, 3, 16, 24
GROUPS, GROUPS_USED = 4, 2
THETA, FACTOR, ORIGINAL, FAST, SLOW = 100.0, 4.0, 16, 2.0, 0.1
MSCALE, MSCALE_ALL = 0.1 * np.log(FACTOR) + 1.0, 0.0707 * np.log(FACTOR) + 1.0
SCALE = float((NOPE + ROPE) ** -0.5 * MSCALE_ALL**2)

EXPERTS = ExpertsSpec(
    n_experts=E, n_used=USED, ffn_size=X, gate="sigmoid", scale=2.5, shared_size=SHARED,
    n_groups=GROUPS, n_groups_used=GROUPS_USED,
)  # fmt: skip
SCALING = RopeScaling(
    kind="yarn", factor=FACTOR, original_context=ORIGINAL, beta_fast=FAST, beta_slow=SLOW,
    magnitude=float(MSCALE / MSCALE_ALL),
)  # fmt: skip
ROPE_SPEC = RopeSpec(theta=THETA, dim=ROPE, style="norm", scaling=SCALING)
LAYERS = (LayerSpec(mixer="mla"), *[LayerSpec(mixer="mla", mlp="experts")] * 2)
SPEC = ModelSpec(
    arch="stress", name="deepseek2", n_layers=3, n_heads=H, n_kv_heads=1, head_dim=NOPE + ROPE, hidden_size=C,
    ffn_size=F, vocab_size=V, context_length=64, norm_eps=1e-5, layers=LAYERS, is_tied=False, experts=EXPERTS,
    ropes={"rope": ROPE_SPEC}, attention_scale=SCALE, mla=MlaSpec(kv_rank=RANK, rope_dim=ROPE),
)  # fmt: skip
LITE_EXPERTS = ExpertsSpec(n_experts=E, n_used=USED, ffn_size=X, normalize=False, shared_size=SHARED)

ATTENTION = {
    "attn_q_a": (Q_RANK, C), "attn_q_a_norm": (Q_RANK,), "attn_q_b": (H * (NOPE + ROPE), Q_RANK),
    "attn_kv_a_mqa": (RANK + ROPE, C), "attn_kv_a_norm": (RANK,), "attn_k_b": (H, RANK, NOPE),
    "attn_v_b": (H, VALUE, RANK), "attn_output": (C, H * VALUE), "attn_norm": (C,), "ffn_norm": (C,),
}  # fmt: skip
DENSE = {"ffn_gate": (F, C), "ffn_up": (F, C), "ffn_down": (C, F)}
MIXTURE = {
    "ffn_gate_inp": (E, C), "exp_probs_b.bias": (E,), "ffn_gate_exps": (E, X, C), "ffn_up_exps": (E, X, C),
    "ffn_down_exps": (E, C, X), "ffn_gate_shexp": (SHARED, C), "ffn_up_shexp": (SHARED, C),
    "ffn_down_shexp": (C, SHARED),
}  # fmt: skip


def shapes() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"token_embd": (V, C), "output_norm": (C,), "output": (V, C)}
    for i in range(3):
        found |= {f"blk.{i}.{name}": shape for name, shape in (ATTENTION | (MIXTURE if i else DENSE)).items()}
    return found


WEIGHTS = random_weights(shapes(), 21)
TOKEN_IDS = random_ids(22, T, V)


def lite_weights() -> dict[str, Any]:
    """Weights with queries projected directly from the hidden state and a plain softmax router."""
    kept = {n: v for n, v in WEIGHTS.items() if "attn_q_" not in n and not n.endswith("exp_probs_b.bias")}
    return kept | random_weights({f"blk.{i}.attn_q": (H * (NOPE + ROPE), C) for i in range(3)}, 23)


def oracle(weights: Any, route: Any) -> Any:  # [T, V]
    w = {name: value.astype(np.float64) for name, value in weights.items()}

    def feed(h: Any, i: int) -> Any:
        return mixture(w, h, f"blk.{i}.", route) if i else swiglu(w, h, "blk.0.ffn_{}")

    def mix(h: Any, i: int) -> Any:
        return latent_attention(w, h, f"blk.{i}.attn_")

    return plain.transformer(w, TOKEN_IDS, 3, mix=mix, feed=feed) @ w["output"].T


def latent_attention(w: plain.Weights, h: Any, at: str) -> Any:
    """Equations 37 to 47 of arXiv 2405.04434."""
    if f"{at}q" in w:
        q = h @ w[f"{at}q"].T
    else:
        q = plain.rms(h @ w[f"{at}q_a"].T, w[f"{at}q_a_norm"]) @ w[f"{at}q_b"].T
    q_nope, q_rope = np.split(q.reshape(T, H, -1), [NOPE], 2)
    latent, k_rope = np.split(h @ w[f"{at}kv_a_mqa"].T, [RANK], 1)
    latent = plain.rms(latent, w[f"{at}kv_a_norm"])
    k_nope = np.einsum("tr,hrn->thn", latent, w[f"{at}k_b"])
    v = np.einsum("tr,hvr->thv", latent, w[f"{at}v_b"])
    freqs = plain.yarn(ROPE, THETA, factor=FACTOR, original=ORIGINAL, fast=FAST, slow=SLOW, is_rounded=True)
    q_rope, k_rope = (
        plain.turn(x, freqs, adjacent=True, magnitude=MSCALE / MSCALE_ALL) for x in (q_rope, k_rope[:, None])
    )
    k = np.concatenate([k_nope, np.repeat(k_rope, H, 1)], 2)
    y = plain.attend(np.concatenate([q_nope, q_rope], 2), k, v, SCALE)
    return y @ w[f"{at}output"].T


def swiglu(w: plain.Weights, h: Any, name: str) -> Any:
    return plain.swiglu(h, *(w[name.format(part)] for part in ("gate", "up", "down")))


def mixture(w: plain.Weights, h: Any, blk: str, route: Any) -> Any:
    y = swiglu(w, h, blk + "ffn_{}_shexp")
    for t, logits in enumerate(h @ w[blk + "ffn_gate_inp"].T):
        for expert, share in route(logits, w.get(blk + "exp_probs_b.bias")):
            parts = (w[f"{blk}ffn_{name}_exps"][expert] for name in ("gate", "up", "down"))
            y[t] += share * plain.swiglu(h[t], *parts)
    return y


def route_v3(logits: Any, bias: Any) -> list[tuple[int, float]]:
    """Section 2.1.2 of arXiv 2412.19437: the bias affects the choice of experts, not their probabilities."""
    affinity = plain.sigmoid(logits)
    chooses = affinity + bias
    groups = [range(g * E // GROUPS, (g + 1) * E // GROUPS) for g in range(GROUPS)]
    groups.sort(key=lambda group: -sum(sorted(chooses[e] for e in group)[-2:]))
    allowed = [e for group in groups[:GROUPS_USED] for e in group]
    chosen = sorted(allowed, key=lambda e: -chooses[e])[:USED]
    total = sum(affinity[e] for e in chosen)
    return [(e, 2.5 * affinity[e] / total) for e in chosen]


def route_lite(logits: Any, _: Any) -> list[tuple[int, float]]:
    probs = plain.softmax(logits)
    return [(e, probs[e]) for e in np.argsort(-probs)[:USED]]


def _experts(**changes: Any) -> Mutation:
    return Mutation(spec={"experts": replace(EXPERTS, **changes)})


def _rope(scaling: RopeScaling | None, **changes: Any) -> Mutation:
    return Mutation(spec={"ropes": {"rope": replace(ROPE_SPEC, scaling=scaling, **changes)}})


def _bias_in_logits(weights: Any) -> Any:
    return {name.replace("exp_probs_b.bias", "ffn_gate_inp.bias"): value for name, value in weights.items()}


MUTATIONS = {
    "no router bias": Mutation(weights=without("exp_probs_b.bias")),
    "router bias counts in the shares": Mutation(weights=_bias_in_logits),
    "every group": _experts(n_groups_used=GROUPS),
    "shares not normalized": _experts(normalize=False),
    "shares not scaled": _experts(scale=1.0),
    "softmax router": _experts(gate="softmax"),
    "no shared expert": Mutation(weights=without("_shexp")),
    "k_b of the other sign": Mutation(weights=changed(lambda _, value: -value, "attn_k_b")),
    "v_b of another head": Mutation(weights=changed(lambda _, value: np.roll(value, 1, 0), "attn_v_b")),
    "latent norm without gain": Mutation(weights=filled("kv_a_norm", 1.0)),
    "query norm without gain": Mutation(weights=filled("q_a_norm", 1.0)),
    "scale without magnitude": Mutation(spec={"attention_scale": 0.0}),
    "rotation without magnitude": _rope(replace(SCALING, magnitude=1.0)),
    "no yarn": _rope(None),
    "yarn with unrounded ends": _rope(replace(SCALING, is_rounded=False)),
    "halves instead of pairs": _rope(SCALING, style="neox"),
    "query turned at its front": Mutation(edit=lambda plan: with_attr(plan, "rope", offset=0)),
}
DEEPSEEK2 = Shape(
    spec=SPEC, weights=WEIGHTS, token_ids=TOKEN_IDS, oracle=lambda: oracle(WEIGHTS, route_v3),
    mutations=MUTATIONS,
)  # fmt: skip
LITE_WEIGHTS = lite_weights()
DEEPSEEK2_LITE = Shape(
    spec=replace(SPEC, experts=LITE_EXPERTS), weights=LITE_WEIGHTS, token_ids=TOKEN_IDS,
    oracle=lambda: oracle(LITE_WEIGHTS, route_lite), mutations={},
)  # fmt: skip
