"""The entry `encode` of a decoder: the stream of each token at several depths, as features of a text.

A text is one step without a KV cache: rows attend to the rows before them in the step.
"""

from __future__ import annotations

from dataclasses import replace

from camelid.model.layers import apply_layer, embed
from camelid.model.lowering import Lowering
from camelid.model.spec import LayerSpec, ModelSpec

MOST_FEATURE_ROWS = 256  # tokens of a text; a longer text is cut at its beginning
DEPTHS = (0.0, 0.5, 0.75, 1.0)  # shares of the layers behind which a row is read


def has_features(spec: ModelSpec) -> bool:
    """True for a decoder of plain attention: no windows, no bounds or biases of scores, one stream."""
    is_decoder = bool(spec.layers) and not spec.encoder and spec.n_streams == 1 and not spec.input_size
    is_plain = not (spec.max_alibi_bias or spec.attention_softcap or spec.nope_temperature)
    return is_decoder and is_plain and all(map(_is_plain, spec.layers))


def _is_plain(layer: LayerSpec) -> bool:
    return layer.mixer == "attention" and not layer.window and layer.kv_layer < 0


def tapped_layers(n_layers: int) -> tuple[int, ...]:
    """The numbers of layers before each depth."""
    return tuple(round(depth * n_layers) for depth in DEPTHS)


def lower_features(c: Lowering) -> None:
    """Adds the layers and the outputs: of each output row the stream at each depth, [O, depths * C]."""
    layers = tuple(replace(layer, mixer="causal") for layer in c.spec.layers)
    c, taps = replace(c, spec=replace(c.spec, layers=layers)), tapped_layers(len(layers))
    x = embed(c)  # [T, C]
    rows = {0: c.plan.gather_rows(x)}  # copies: layers change the stream in place
    for i in range(len(layers)):
        x = apply_layer(c, x, i)
        if i + 1 in taps:
            rows[i + 1] = c.plan.gather_rows(x)
    whole = rows[taps[0]]
    for tap in taps[1:]:
        whole = c.plan.concat(whole, rows[tap], "features")
    c.plan.emit(whole)
