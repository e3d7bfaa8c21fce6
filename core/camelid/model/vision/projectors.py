"""The table of towers by `clip.projector_type`: tensors, and the words of a prompt around an image.

A shape is a string of one letter per dimension: C hidden, F ffn, I floats of a patch, M hidden x patches of a
row, N rows of the position table, O floats of a row for the decoder, Q three times hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from camelid.model.arch import Shapes
from camelid.model.vision.spec import ImagePrompt

LINEAR_LAYER: Shapes = {"attn_q": "CC", "attn_k": "CC", "attn_v": "CC", "attn_out": "CC"}
NORMS: Shapes = {"ln1": "C", "ln2": "C"}
MLP: Shapes = {"ffn_up": "FC", "ffn_down": "CF"}
# Tensor of a tower's layer in a file -> the same tensor's name in the layers of text models.
LAYER_NAMES: Mapping[str, str] = {"ln1": "attn_norm", "ln2": "ffn_norm", "attn_out": "attn_output"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Projector:
    """One kind of tower. `archs` are the architectures of the text models that it belongs to.

    `tensors` are those of each layer, `taps` those of a tapped layer's projector, `outer` the others, by
    their names in a file; those in `plain` have no bias. `norm_kind` and `mlp` are as in `ModelSpec` and
    `LayerSpec`. `pools` averages the patches of a row, where other towers join them. With `turns`, patches
    rotate by row and column; with `axes`, an image's rows in the decoder have positions by time, height and
    width.
    """

    archs: tuple[str, ...]
    taps: Shapes = field(default_factory=dict[str, str])
    prompt: ImagePrompt
    tensors: Shapes
    outer: Shapes
    plain: tuple[str, ...] = ()
    norm_kind: str = "layer"
    mlp: str = "mlp"
    pools: bool = False
    turns: bool = False
    axes: bool = False
    folds: Mapping[str, str] = field(default_factory=dict[str, str])


QWEN = ImagePrompt(marker="<|image_pad|>")
FRAMES: Shapes = {"v.patch_embd": "CI", "v.patch_embd.weight.1": "CI"}
MERGER: Shapes = {"v.post_ln": "C", "mm.0": "MM", "mm.2": "OM"}

PROJECTORS: dict[str, Projector] = {
    "gemma3": Projector(
        archs=("gemma3",),
        prompt=ImagePrompt(
            marker="<start_of_image>", before="\n\n", after="<end_of_image>\n\n", keeps_marker=True
        ),
        tensors={**NORMS, **LINEAR_LAYER, **MLP},
        outer={
            "v.patch_embd": "CI",
            "v.position_embd": "NC",
            "v.post_ln": "C",
            "mm.input_projection": "OC",
            "mm.soft_emb_norm": "C",
        },
        plain=("v.position_embd", "mm.input_projection", "mm.soft_emb_norm"),
        pools=True,
        folds={"mm.input_projection": "transpose"},
    ),
    "qwen2.5vl_merger": Projector(
        archs=("qwen2vl",),
        prompt=QWEN,
        tensors={**NORMS, **LINEAR_LAYER, **MLP, "ffn_gate": "FC"},
        outer={**FRAMES, **MERGER},
        plain=("ln1", "ln2", "v.post_ln", "v.patch_embd"),
        norm_kind="rms",
        mlp="glu",
        turns=True,
        axes=True,
    ),
    "qwen3vl_merger": Projector(
        archs=("qwen3vl", "qwen3vlmoe"),
        prompt=QWEN,
        tensors={**NORMS, **LINEAR_LAYER, **MLP},
        taps={"norm": "M", "fc1": "MM", "fc2": "OM"},
        outer={**FRAMES, **MERGER, "v.position_embd": "CN"},
        plain=("v.position_embd",),
        turns=True,
        axes=True,
        folds={"v.position_embd": "transpose"},
    ),
}
