"""The entry `encode`: lowers an encoder, alone or before a decoder, to a plan without a cache.

It is atomic: a sequence's whole input goes in one step, since its rows see each other there and nowhere else.
"""

from __future__ import annotations

from dataclasses import replace

from camelid.model.blocks.cross import cross_layers, write_cross
from camelid.model.layers import apply_layer, embed
from camelid.model.lowering import Lowering
from camelid.model.spec import EncoderSpec
from camelid.plan.plan import View

LEAST_LENGTH = 1e-12  # below which an embedding is not brought to length 1


def lower_encode(c: Lowering) -> None:
    """Adds the encoder's ops: its layers, then what a decoder will read, or else what the step gives back."""
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
        _give_back(c, x, encoder)


def _give_back(c: Lowering, x: View, encoder: EncoderSpec) -> None:
    """An embedding of each output's sequence, or the hidden state of its row; [O, C]."""
    y = c.plan.pool(x, encoder.pooling) if encoder.pooling else c.plan.gather_rows(x)
    c.plan.emit(c.plan.norm(y, None, LEAST_LENGTH, kind="l2") if encoder.has_unit_length else y)
