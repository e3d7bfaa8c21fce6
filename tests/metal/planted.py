"""Errors planted in the kernels' texts: one per file, each with a case of the gate that must notice it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from camelid_native.mlx.metal import launch


@dataclass(frozen=True)
class Error:
    """`old` becomes `new` in a file of `metal/`.

    A case of `op` shows it, on a weight of `weight_type`, in a program for `spare` more rows; `like` is in
    the case's name.
    """

    file: str
    old: str
    new: str
    op: str
    weight_type: str = "q8_0"
    spare: int = 0
    like: str = ""

    def __str__(self) -> str:
        return self.file


ERRORS = (
    Error("prelude", "mask *= 2) v = v +", "mask *= 4) v = v +", "linear"),
    Error("codec_q8_0", "unit % 4 * 8", "unit % 4 * 4", "linear"),
    Error("linear", "live = min(count[COUNT_AT], ROWS)", "live = 0", "linear"),
    Error("linear_tile", "ulong(row) * X_COLS", "ulong(tile) * X_COLS", "linear"),
    Error("product", "sum = fma(w[i], v[i], sum)", "sum = fma(w[i], v[7 - i], sum)", "linear"),
    Error("tile", "chunk < UNITS", "chunk + LANES < UNITS", "linear"),
    Error("store", "output + i, at)", "output, at)", "linear"),
    Error("finish", "gate + f.bias[bias]", "gate", "linear"),
    Error("rms", "x[K + i]", "x[i]", "norm_linear"),
    Error("defer", "z[N + c / 4] = squares", "z[N + c / 4] = v * v", "linear_add_norm"),
    Error("defer_norm", "own, c, t <", "own, c % 4, t <", "defer_norm"),
    Error("glu", "up[row", "gate[row", "glu"),
    Error("adapter", "[ADAPTER_WORD]", "[ADAPTER_WORD + 1]", "low_rank"),
    Error("low_rank_dots", "pair % SLOTS % VECTORS", "0", "low_rank_experts"),
    Error("low_rank_spread", "i < term.rank", "i < MOST", "low_rank"),
    Error("gate_plain", "ACT(gate) * up", "ACT(up) * gate", "linear_glu"),
    Error("act", "v * sigmoid_of(v); }", "sigmoid_of(v); }", "linear_glu"),
    Error("math", "small : 1.0f) / (small", "1.0f : small) / (small", "linear_glu"),
    Error("embed", "ulong(ids[t])", "ulong(t)", "embed"),
    Error("step", "{words[2], words[3], words[4]}", "{words[2], words[4] + 1, words[4]}", "attention"),
    Error(
        "softmax", "fma(b, by.part, a * by.before)", "fma(b, by.part, a)", "attention", like="q8_0 y[3x128]"
    ),
    Error("kv_plain", "return row[c]; }", "return row[c ^ 1]; }", "attention"),
    Error("kv_q8_0", "c / 32 * 34, *q", "c / 16 * 34, *q", "attention", like="q8_0"),
    Error("kv_q4_0", "c % 32 / 16 * 4) *", "c % 32 / 8 * 4) *", "attention", like="q4_0"),
    Error("attend", "pool.table[at / PAGE] * PAGE", "at / PAGE * PAGE", "attention"),
    Error("attention_place", "+ head) * HEAD_DIM", ") * HEAD_DIM", "attention"),
    Error("attention_part", "= sums[h];", "= sums[0];", "attention"),
    Error("attention_join", "parts[(at + split)", "parts[at", "attention", like="q8_0 y[3x128]"),
    Error("attention_rows", "is_live ? out[j] / joins[j].sum", "is_live ? out[j]", "attention", spare=20),
    Error("experts", "uint(ids[pair])", "uint(ids[t])", "linear_experts"),
    Error("expert", "up_weights + from", "up_weights", "linear_experts_glu"),
    Error("experts_tile", "order[first + t]", "first + t", "linear_experts", spare=20),
    Error("router", "min(first, p)", "p", "router"),
    Error("combine", "probs[pair], x", "probs[slot], x", "combine"),
    Error("block", "all = all + shared[i]", "all = shared[i]", "norm"),
    Error("place", "<< 32 | ~id", "<< 32 | id", "sample"),
    Error("philox", "b = c_low", "b = a_low", "sample"),
    Error("adjust", "n * p.frequency + p.presence", "n * p.presence", "sample"),
    Error("topk", "if (above < want)", "if (above + 1 < want)", "candidates"),
    Error("draw", "before < top_p * sum", "before < top_p", "sample"),
    Error("selection", "ulong(o) * VOCAB", "ulong(o) * (VOCAB - 1)", "sample"),
    Error("sample", "* sequence_at(step, sequence)[3]", "* sequence", "sample"),
    Error("candidates", "row[id] - mean", "row[id]", "candidates"),
    Error("norm", "(v - mean) * scale", "v * scale", "norm"),
    Error("turn", "position / FINE_ROWS", "position % FINE_ROWS", "rope"),
    Error("norm_rope", "TURNED - K_COLS ? q", "TURNED ? q", "norm_rope"),
    Error("put", "half(d)", "half(-d)", "kv_write", like="q8_0"),
    Error("put_q8_0", "near = whole + int", "near = whole - int", "kv_write", like="q8_0"),
    Error("put_q4_0", "q | high << 4", "high | q << 4", "kv_write", like="q4_0"),
    Error("blocks", "number * LANES + lane", "lane", "kv_write", like="q8_0"),
    Error("gate_swiglu_oai", "1.702f", "1.0f", "linear_glu", ""),
    Error("gate_none", "return gate", "return up", "linear"),
)


@contextmanager
def planted(file: str, old: str, new: str) -> Iterator[None]:
    """The text of a file of `metal/` has `new` in place of `old`, which it has once."""
    right = launch.metal

    def wrong(name: str) -> str:
        text = right(name)
        if name != file:
            return text
        assert text.count(old) == 1, f"{file}.metal has {old!r} {text.count(old)} times"
        return text.replace(old, new)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "metal", wrong)
        launch.forget()
        yield
    launch.forget()
