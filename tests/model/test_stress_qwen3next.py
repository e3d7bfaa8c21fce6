"""Qwen3-Next's shape: three gated DeltaNet layers, then attention with an output gate, partial rope and norms
of each head; experts with a gated shared one everywhere. Weights are drawn in the published layout, whose
interleaved projections the oracle reads as they are and camelid reads cut apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.model import stress_oracle as plain
from tests.model.stress_recurrent import (
    bypass,
    cuts,
    edit_ops,
    make_model,
    make_plan,
    random_weights,
    reads,
    run,
    with_attr,
    without,
    zeroed,
)
from tests.parity.compare import nmse

from camelid.backends.reference import backend, recurrent
from camelid.backends.reference.store import WeightStore
from camelid.model.spec import DeltaSpec, ExpertsSpec, LayerSpec, ModelSpec, RopeSpec
from camelid.plan.fuse import fuse
from camelid.plan.plan import Op, Plan
from camelid.plan.weights import Part, Weight, concat_rows, cut_rows

C, V, T, EPS = 48, 96, 40, 1e-5
H, KV, D, TURNED, THETA = 4, 2, 16, 8, 100.0
HV, HK, DV, DK = 6, 2, 16, 12  # value heads, key heads
R = HV // HK
E, USED, X, SHARED = 6, 2, 24, 40
KEYS, VALUES = HK * DK, HV * DV
DELTA = LayerSpec(mixer="delta", mlp="experts", state_group="recurrent")
LAYERS = (DELTA, DELTA, DELTA, LayerSpec(mlp="experts"))
SPEC = ModelSpec(
    arch="stress", name="qwen3next", n_layers=4, n_heads=H, n_kv_heads=KV, head_dim=D, hidden_size=C,
    ffn_size=X, vocab_size=V, context_length=64, norm_eps=EPS, layers=LAYERS, is_tied=False,
    ropes={"rope": RopeSpec(theta=THETA, dim=TURNED, style="neox")},
    experts=ExpertsSpec(n_experts=E, n_used=USED, ffn_size=X, shared_size=SHARED),
    delta=DeltaSpec(n_heads=HV, value_dim=DV, n_key_heads=HK, key_dim=DK),
)  # fmt: skip
GOLDEN = Path(__file__).parents[1] / "golden" / "stress" / "qwen3next.plan"

EVERY: dict[str, tuple[int, ...]] = {
    "attn_norm": (C,), "ffn_norm": (C,), "ffn_gate_inp": (E, C), "ffn_gate_exps": (E, X, C),
    "ffn_up_exps": (E, X, C), "ffn_down_exps": (E, C, X), "ffn_gate_shexp": (SHARED, C),
    "ffn_up_shexp": (SHARED, C), "ffn_down_shexp": (C, SHARED), "ffn_gate_inp_shexp": (1, C),
}  # fmt: skip
MIXERS: dict[str, dict[str, tuple[int, ...]]] = {
    "attention": {"q_and_gate": (H * 2 * D, C), "attn_k": (KV * D, C), "attn_v": (KV * D, C),
                  "attn_output": (C, H * D), "attn_q_norm": (D,), "attn_k_norm": (D,)},
    "delta": {"qkvz": (HK * (2 * DK + 2 * R * DV), C), "ba": (HK * 2 * R, C), "ssm_dt.bias": (HV,),
              "ssm_conv1d": (2 * KEYS + VALUES, 4), "ssm_a": (HV,), "ssm_norm": (DV,),
              "ssm_out": (C, VALUES)},
}  # fmt: skip
# An interleaved projection: groups of rows repeat, each cut into parts of these names and sizes.
INTERLEAVED = {
    "q_and_gate": (H, {"attn_q": D, "attn_gate": D}),
    "qkvz": (HK, {"q": DK, "k": DK, "v": R * DV, "attn_gate": R * DV}),
    "ba": (HK, {"ssm_beta": R, "ssm_alpha": R}),
}


def draw() -> dict[str, Any]:
    """Random, with decays between slow and fast, as trained models have them."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (V, C), "output": (V, C), "output_norm": (C,)}
    for i, layer in enumerate(LAYERS):
        shapes |= {f"blk.{i}.{name}": shape for name, shape in (MIXERS[layer.mixer] | EVERY).items()}
    weights = random_weights(shapes, 11)
    for i in range(3):
        weights[f"blk.{i}.ssm_a"] = -np.exp(np.linspace(-2.0, 1.0, HV, dtype=np.float32))
    return weights


def apart(published: dict[str, Any]) -> dict[str, Any]:
    """The published weights under GGUF's names, interleaved projections cut."""
    found: dict[str, Any] = {}
    for name, value in published.items():
        blk, _, last = name.rpartition(".")
        parts = cut(value, *INTERLEAVED[last]) if last in INTERLEAVED else {last: value}
        if "v" in parts:
            parts["attn_qkv"] = np.concatenate([parts.pop(x) for x in "qkv"])
        found |= {f"{blk}.{part}" if blk else part: a for part, a in parts.items()}
    return found


def cut(value: Any, n: int, sizes: dict[str, int]) -> dict[str, Any]:
    groups = value.reshape(n, sum(sizes.values()), -1)
    ends = np.cumsum(list(sizes.values()))
    pieces = np.split(groups, ends[:-1], axis=1)
    return {name: piece.reshape(-1, value.shape[1]) for name, piece in zip(sizes, pieces, strict=True)}


PUBLISHED = draw()
WEIGHTS = apart(PUBLISHED)
TOKEN_IDS = [int(i) for i in np.random.default_rng(12).integers(0, V, T)]


def oracle() -> Any:  # [T, V]
    w = {name: value.astype(np.float64) for name, value in PUBLISHED.items()}

    def mix(h: Any, i: int) -> Any:
        return (delta_net if i < 3 else gated_attention)(w, h, f"blk.{i}.")

    def feed(h: Any, i: int) -> Any:
        return experts(w, h, f"blk.{i}.ffn_")

    return plain.transformer(w, TOKEN_IDS, 4, mix=mix, feed=feed) @ w["output"].T


def delta_net(w: plain.Weights, h: Any, blk: str) -> Any:
    """Equation 10 of arXiv 2412.06464: S = S (decay (I - beta k k^T)) + beta v k^T, head by head."""
    groups = (h @ w[blk + "qkvz"].T).reshape(T, HK, -1)
    q, k, v, z = np.split(groups, np.cumsum([DK, DK, R * DV]), -1)
    flat = np.concatenate([part.reshape(T, -1) for part in (q, k, v)], 1)
    q, k, v = np.split(plain.silu(plain.causal_conv(flat, w[blk + "ssm_conv1d"])), [KEYS, 2 * KEYS], 1)
    b, a = np.split((h @ w[blk + "ba"].T).reshape(T, HK, -1), 2, -1)
    beta = plain.sigmoid(b.reshape(T, HV))
    decay = np.exp(w[blk + "ssm_a"] * plain.softplus(a.reshape(T, HV) + w[blk + "ssm_dt.bias"]))
    q, k = (plain.unit(x.reshape(T, HK, DK)) for x in (q, k))
    v, z = v.reshape(T, HV, DV), z.reshape(T, HV, DV)
    heads = [delta_head(q[:, n // R], k[:, n // R], v[:, n], decay[:, n], beta[:, n]) for n in range(HV)]
    y = plain.rms(np.stack(heads, 1), w[blk + "ssm_norm"]) * plain.silu(z)
    return y.reshape(T, -1) @ w[blk + "ssm_out"].T


def delta_head(q: Any, k: Any, v: Any, decay: Any, beta: Any) -> Any:  # [T, V]
    s, rows = np.zeros((DV, DK)), []
    for t in range(T):
        s = s @ (decay[t] * (np.eye(DK) - beta[t] * np.outer(k[t], k[t]))) + beta[t] * np.outer(v[t], k[t])
        rows.append(s @ q[t] / np.sqrt(DK))
    return np.stack(rows)


def gated_attention(w: plain.Weights, h: Any, blk: str) -> Any:
    q, gate = np.split((h @ w[blk + "q_and_gate"].T).reshape(T, H, 2 * D), 2, -1)
    k, v = ((h @ w[blk + name].T).reshape(T, KV, D) for name in ("attn_k", "attn_v"))
    q, k = plain.rms(q, w[blk + "attn_q_norm"]), plain.rms(k, w[blk + "attn_k_norm"])
    y = plain.causal_attention(plain.rope(q, TURNED, THETA), plain.rope(k, TURNED, THETA), v, D**-0.5)
    return (y * plain.sigmoid(gate.reshape(T, -1))) @ w[blk + "attn_output"].T


def experts(w: plain.Weights, h: Any, blk: str) -> Any:
    """The probabilities of the chosen are divided by their sum; the shared expert has a gate of its own."""
    probs = plain.softmax(h @ w[blk + "gate_inp"].T)
    kept = probs >= np.sort(probs, 1)[:, -USED, None]
    shares = probs * kept / (probs * kept).sum(1, keepdims=True)
    each = [
        plain.swiglu(h, *(w[f"{blk}{name}_exps"][e] for name in ("gate", "up", "down"))) for e in range(E)
    ]
    shared = plain.swiglu(h, *(w[f"{blk}{name}_shexp"] for name in ("gate", "up", "down")))
    return np.einsum("te,etc->tc", shares, each) + plain.sigmoid(h @ w[blk + "gate_inp_shexp"].T) * shared


@pytest.fixture(scope="module")
def want() -> Any:
    return oracle()


@pytest.fixture(scope="module")
def whole() -> Any:
    return run(make_model(SPEC, WEIGHTS), [TOKEN_IDS], [(T,)])[0]


def test_logits_equal_the_plain_model(whole: Any, want: Any) -> None:
    assert nmse(whole, want) <= 1e-10


@pytest.mark.parametrize("chunk", [1, 2, 3, 17])
def test_chunks_give_identical_bits(whole: Any, chunk: int) -> None:
    """Chunks shorter than the convolution too: its state then spans several of them."""
    (got,) = run(make_model(SPEC, WEIGHTS), [TOKEN_IDS], list(cuts(T, chunk)))
    assert np.array_equal(got, whole)


def test_company_changes_no_bit(whole: Any) -> None:
    other = TOKEN_IDS[::-1]
    steps = [(5, 1), (1, 12), (0, 3), (33, 9), (1, 15)]
    first, second = run(make_model(SPEC, WEIGHTS), [TOKEN_IDS, other], steps)
    assert np.array_equal(first, whole)
    assert np.array_equal(second, run(make_model(SPEC, WEIGHTS), [other], [(T,)])[0])


def test_a_dropped_step_leaves_no_trace(whole: Any) -> None:
    (got,) = run(make_model(SPEC, WEIGHTS), [TOKEN_IDS], list(cuts(T, 9)), drop=True)
    assert np.array_equal(got, whole)


def test_fused_plan_means_the_same(whole: Any) -> None:
    edit = partial(fuse, known={"add_norm", "linear_glu"})
    (got,) = run(make_model(SPEC, WEIGHTS), [TOKEN_IDS], [(T,)], edit=edit)
    assert nmse(got, whole) <= 1e-12


def test_plan_text_is_golden() -> None:
    assert make_plan(make_model(SPEC, WEIGHTS), 16).text() == GOLDEN.read_text()


def test_interleaved_rows_of_a_file_are_byte_ranges(tmp_path: Path) -> None:
    """What `apart` does to arrays needs no copy of a file: each head's rows are a part."""
    published = PUBLISHED["blk.3.q_and_gate"]
    path = tmp_path / "model.bin"
    path.write_bytes(b"head" + published.tobytes())
    whole = Weight(name="q", type="f32", shape=published.shape, parts=(Part("model", 4, published.nbytes),))
    for offset, name in ((0, "attn_q"), (D, "attn_gate")):
        weight = concat_rows(name, *(cut_rows(whole, name, 2 * D * n + offset, D) for n in range(H)))
        store = WeightStore()
        store.add([weight], {"model": str(path)})
        assert np.array_equal(store.matrix(weight), WEIGHTS[f"blk.3.{name}"])


def no_unit_keys(plan: Plan) -> Plan:
    return bypass(plan, lambda op: op.name == "norm" and op.word("kind") == "l2" and is_key(op), "x")


def no_unit_queries(plan: Plan) -> Plan:
    return bypass(plan, lambda op: op.name == "norm" and op.word("kind") == "l2" and not is_key(op), "x")


def is_key(op: Op) -> bool:
    return op.view("x").offset == KEYS


def gate_off(plan: Plan) -> Plan:
    return bypass(plan, lambda op: op.name == "glu" and reads(op, "gate", "z"), "up")


def short_norm(plan: Plan) -> Plan:
    """Scanned values of length 1 instead of root mean square 1."""

    def change(op: Op) -> Op:
        attrs = tuple((name, "l2" if name == "kind" else value) for name, value in op.attrs)
        return replace(op, attrs=attrs) if op.name == "norm" and reads(op, "x", "scan") else op

    return edit_ops(plan, change)


def raw_beta(plan: Plan) -> Plan:
    return edit_ops(plan, lambda op: None if op.name == "unary" and reads(op, "x", "beta") else op)


WEIGHT_MUTATIONS = {
    "beta constant": zeroed(WEIGHTS, "ssm_beta"),
    "decay off": zeroed(WEIGHTS, "ssm_a"),
    "decay the same for every row": zeroed(WEIGHTS, "ssm_alpha"),
    "dt bias off": zeroed(WEIGHTS, "ssm_dt.bias"),
    "shared gate off": without(WEIGHTS, "ffn_gate_inp_shexp"),
    "shared expert off": zeroed(WEIGHTS, "ffn_down_shexp"),
    "attention's gate off": without(WEIGHTS, "blk.3.attn_gate"),
    "query norm off": without(WEIGHTS, "attn_q_norm"),
    "key norm off": without(WEIGHTS, "attn_k_norm"),
}
PLAN_MUTATIONS: dict[str, Callable[[Plan], Plan]] = {
    "keys as long as they are": no_unit_keys,
    "queries as long as they are": no_unit_queries,
    "gate off": gate_off,
    "another norm of what was scanned": short_norm,
    "beta without sigmoid": raw_beta,
    "conv without SiLU": lambda plan: with_attr(plan, "conv1d", act="none"),
    "shares not normalized": lambda plan: with_attr(plan, "router", normalize=0),
    "rope over whole heads": lambda plan: with_attr(plan, "rope", offset=D - TURNED),
}


@pytest.mark.parametrize("name", WEIGHT_MUTATIONS)
def test_each_weight_counts(name: str, want: Any) -> None:
    (got,) = run(make_model(SPEC, WEIGHT_MUTATIONS[name]), [TOKEN_IDS], [(T,)])
    assert nmse(got, want) > 1e-5


@pytest.mark.parametrize("name", PLAN_MUTATIONS)
def test_each_op_counts(name: str, want: Any) -> None:
    (got,) = run(make_model(SPEC, WEIGHTS), [TOKEN_IDS], [(T,)], edit=PLAN_MUTATIONS[name])
    assert nmse(got, want) > 1e-5


def test_which_key_head_a_value_head_has_counts(want: Any, monkeypatch: Any) -> None:
    """Value heads dealt out to the key heads in turn instead of in blocks."""

    def in_turn(x: Any, n: int, n_heads: int) -> Any:
        return np.tile(x.reshape(len(x), n, -1), (1, n_heads // n, 1))

    monkeypatch.setattr(recurrent, "_spread", in_turn)
    (got,) = run(make_model(SPEC, WEIGHTS), [TOKEN_IDS], [(T,)])
    assert nmse(got, want) > 1e-5


@pytest.mark.parametrize("tensor", ["conv", "scan"])
def test_state_between_chunks_counts(tensor: str, want: Any, monkeypatch: Any) -> None:
    def forgetful(op: Op, f: Any) -> None:
        for key, pool in f.state.pools.items():
            pool[...] = 0.0 if key[2] == tensor else pool
        recurrent.op_conv1d(op, f)

    monkeypatch.setitem(backend.KERNELS, "conv1d", forgetful)
    (got,) = run(make_model(SPEC, WEIGHTS), [TOKEN_IDS], list(cuts(T, 9)))
    assert nmse(got, want) > 1e-5
