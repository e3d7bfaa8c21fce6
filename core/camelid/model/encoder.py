"""Lowers an encoder, alone or in front of a decoder, to the entry `encode`: a plan without a KV cache.

A sequence's whole input is one step, because every row attends to every other row of the input.
"""

from __future__ import annotations

from dataclasses import replace

from camelid.model.blocks.cross import cross_layers, write_cross
from camelid.model.layers import apply_layer, embed
from camelid.model.lowering import Lowering
from camelid.model.spec import EncoderSpec
from camelid.plan.dtypes import F32
from camelid.plan.plan import View

DENSE = ("dense_2", "dense_3")  # linear maps of the pooled row (EmbeddingGemma)
NORM_EPS = 1e-12  # the L2 norm divides by max(length, NORM_EPS)


def lower_encode(c: Lowering) -> None:
    """Adds the encoder's layers, then the cross-attention KV of a decoder, or the outputs without one."""
    encoder = c.spec.encoder
    assert encoder is not None, "the entry encode belongs to a model with an encoder"
    stack = replace(c.stack("enc."), spec=replace(c.spec, layers=encoder.layers))
    x = embed(stack)  # [T, C]
    for i in range(len(encoder.layers)):
        x = apply_layer(stack, x, i)
    x = stack.norm_if(x, "output_norm")
    for i in cross_layers(c.spec):
        write_cross(c.stack("dec."), x, i)
    if not c.spec.layers:
        _emit(c, x, encoder)


def _emit(c: Lowering, x: View, encoder: EncoderSpec) -> None:
    """Adds the outputs [O, C]: a pooled embedding per sequence, or the hidden states of the output rows; of a
    ranking model the scores [O, L]."""
    y = c.plan.pool(x, encoder.pooling) if encoder.pooling else c.plan.gather_rows(x)
    for name in DENSE:
        y = c.linear(y, name) if name in c.weights else y
    if encoder.n_labels:
        y = _scores(c, y, encoder.head_act)
    c.plan.emit(c.plan.norm(y, None, NORM_EPS, kind="l2") if encoder.has_unit_length else y)


def _scores(c: Lowering, y: View, act: str) -> View:
    """The ranking head: cls.output(norm(act(cls(y)))); [O, C] -> [O, L]."""
    if "cls" in c.weights:
        y = c.linear(y, "cls")
        c.plan.unary(y, act)
        y = c.norm_if(y, "cls.norm")
    return c.linear(y, "cls.output", "scores", dtype=F32)
