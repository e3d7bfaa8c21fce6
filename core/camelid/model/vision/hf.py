"""Directories of models with a tower: the text model's part, and the tower in the terms of mmproj files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from camelid.errors import TensorShapeError, UnsupportedModelError, shown
from camelid.formats.gguf import Gguf
from camelid.formats.gguf_header import MetadataValue
from camelid.formats.gguf_writer import infer_kinds
from camelid.formats.hf_config import Config, HfDirectory, HfTensor
from camelid.model.checkpoint import Checkpoint
from camelid.plan.weights import Part, Weight, as_f32, cut_each

Metadata = dict[str, MetadataValue]
ENDINGS = (".weight", ".bias", "")
FLOATS = ("f32", "f16", "bf16")
# Settings outside text_config that concern the text model.
SHARED = ("tie_word_embeddings", "quantization", "bos_token_id", "eos_token_id", "pad_token_id")
TEXT = ("model.language_model.", "language_model.model.", "language_model.")
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
MAX_LAYERS = 1 << 12
QWEN_SIDE = 40  # patches of a side that a file states; images have any size
Defaults = Mapping[str, int]
QWEN25: Defaults = {
    "depth": 32, "hidden_size": 3584, "intermediate_size": 3420, "num_heads": 16, "patch_size": 14,
    "out_hidden_size": 3584,
}  # fmt: skip
QWEN3: Defaults = {
    "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "patch_size": 16,
    "out_hidden_size": 3584,
}  # fmt: skip
SIGLIP_ACTS = {"gelu_pytorch_tanh": "use_gelu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HfTower:
    """One model_type with a tower. `text` is the model_type of its text model.

    `prefixes` begin the published names of the tower, `layer` those of its layers after that. `names` and
    `outer` map tensors of an mmproj file to published names, `taps` those of tapped layers' projectors.
    Published names that begin with an item of `ignored` are not read. `metadata` translates the settings.
    """

    text: str
    prefixes: tuple[str, ...]
    layer: str
    names: Mapping[str, str]
    outer: Mapping[str, str]
    metadata: Callable[[Config, Config], Metadata]
    taps: Mapping[str, str] = field(default_factory=dict[str, str])
    ignored: tuple[str, ...] = ()
    folds: Mapping[str, str] = field(default_factory=dict[str, str])


def has_tower(directory: HfDirectory) -> bool:
    """True for a directory of a model with a tower."""
    name = directory.config.get("model_type")
    return isinstance(name, str) and name in HF_TOWERS


def text_part(directory: HfDirectory) -> HfDirectory:
    """The directory of the text model alone: its settings, and its tensors by their usual names."""
    row = HF_TOWERS[directory.settings.text("model_type")]
    outer = {key: value for key, value in directory.config.items() if key in SHARED}
    inner = directory.settings.section("text_config").values
    text = inner or {k: v for k, v in directory.config.items() if k != "vision_config"}  # of older classes
    taps = _taps(directory.settings.section("vision_config"), row)
    config = {**outer, **text, "model_type": row.text, "n_deepstack_layers": len(taps)}
    tensors = {name: tensor for old, tensor in directory.tensors.items() if (name := _text_name(old, row))}
    return replace(directory, config=config, tensors=tensors)


def _text_name(name: str, row: HfTower) -> str:
    """A text tensor's usual name; "" for a tensor of the tower."""
    if name.startswith(row.prefixes):
        return ""
    prefix = next((prefix for prefix in TEXT if name.startswith(prefix)), "")
    inner = name.removeprefix(prefix)
    return inner if not prefix or inner.startswith("lm_head") else f"model.{inner}"


def tower_of_hf(directory: HfDirectory) -> Checkpoint:
    """The tower of a directory as an mmproj file's metadata and tensors.

    Raises TensorShapeError for a tensor without a rule, UnsupportedModelError for a setting that would change
    the results, ModelFormatError for impossible settings.
    """
    row, settings = HF_TOWERS[directory.settings.text("model_type")], directory.settings
    processor = Config(directory.preprocessor, str(directory.path / "preprocessor_config.json"))
    metadata = {
        "general.architecture": "clip",
        "general.name": directory.path.resolve().name,
        "clip.has_vision_encoder": True,
        **row.metadata(settings, processor),
    }
    tensors = {weight.name: weight for weight in _tensors(directory, row, _n_layers(directory, metadata))}
    header = Gguf(
        version=3,
        alignment=32,
        metadata=metadata,
        kinds=infer_kinds(metadata),
        tensors={},
        data_offset=0,
        file_size=sum(w.n_bytes for w in tensors.values()),
        path=str(directory.path),
    )
    return Checkpoint(header, tensors)


def _n_layers(directory: HfDirectory, metadata: Mapping[str, object]) -> int:
    """The number of layers; a false count is refused before it costs memory."""
    counted = Config(
        {"block_count": metadata["clip.vision.block_count"]}, str(directory.path / "config.json")
    )
    return counted.count("block_count", most=len(directory.tensors))


def _tensors(directory: HfDirectory, row: HfTower, n_layers: int) -> Iterator[Weight]:
    """The tower's tensors by their names in an mmproj file."""
    found = {
        name: tensor
        for old, tensor in directory.tensors.items()
        if old.startswith(row.prefixes) and (name := _inner(old, row))
    }
    taps = _taps(directory.settings.section("vision_config"), row)
    for name, published in (*_published(row, n_layers), *_tapped(row, taps)):
        for ending in ENDINGS:
            tensor = found.pop(published + ending, None)
            if tensor:
                yield from FOLDS[row.folds.get(name, "")](_weight(tensor, f"{name}{ending or '.weight'}"))
    if found:
        first = next(iter(found.values())).name
        raise TensorShapeError(
            f"{directory.path}: no rule of this tower uses the tensor {first!r}, so results would be wrong",
            name=first, got=first, want="no further tensors",
        )  # fmt: skip


def _inner(name: str, row: HfTower) -> str:
    """The published name without the parts that versions add or leave out; "" for an ignored tensor."""
    inner = name.removeprefix("model.").replace("vision_tower.vision_model.", "vision_tower.")
    return "" if inner.startswith(row.ignored) else inner


def _published(row: HfTower, n_layers: int) -> Iterator[tuple[str, str]]:
    yield from row.outer.items()
    for i in range(n_layers):
        yield from ((f"v.blk.{i}.{name}", row.layer.format(i=i) + inner) for name, inner in row.names.items())


def _taps(vision: Config, row: HfTower) -> list[int]:
    """The tapped layers; none for a tower without projectors of its own for them."""
    name = "deepstack_visual_indexes"
    return (vision.counts(name) if vision.has(name) else [8, 16, 24]) if row.taps else []


def _tapped(row: HfTower, taps: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Names of the projectors of tapped layers, published by their order, here by their layer."""
    for number, layer in enumerate(taps):
        prefix = f"visual.deepstack_merger_list.{number}."
        yield from ((f"v.deepstack.{layer}.{name}", prefix + inner) for name, inner in row.taps.items())


def _weight(tensor: HfTensor, name: str) -> Weight:
    if tensor.type not in FLOATS or tensor.planes:
        raise UnsupportedModelError(
            f"{tensor.name}: type {tensor.type}, expected one of {', '.join(FLOATS)}; load the unquantized "
            "tower",
            kind="tensor type", name=tensor.type, known=FLOATS,
        )  # fmt: skip
    part = Part(tensor.file, tensor.offset, tensor.n_bytes)
    return Weight(name=name, type=tensor.type, shape=tensor.shape, parts=(part,))


def _add_one(weight: Weight) -> list[Weight]:
    """gain = 1 + weight, in float32."""
    return [as_f32(weight).then("add", 1.0)]


def _frames(weight: Weight) -> list[Weight]:
    """A convolution over two frames [out, channels, 2, size, size] as one per frame; a bias stays whole."""
    if len(weight.shape) != 5 or weight.shape[2] != 2:
        return [weight]
    n_out, channels, _, height, width = weight.shape
    flat = replace(weight, shape=(n_out * channels, 2, height * width))
    names = (weight.name, f"{weight.name}.1")
    cut = (cut_each(flat, name, frame, 1) for frame, name in enumerate(names))
    return [replace(frame, shape=(n_out, channels, height, width)) for frame in cut]


FOLDS: dict[str, Callable[[Weight], list[Weight]]] = {
    "": lambda weight: [weight],
    "add_one": _add_one,
    "frames": _frames,
}


def _siglip_metadata(config: Config, processor: Config) -> Metadata:
    """Gemma 3's settings. Defaults are those of transformers' classes."""
    vision, text = config.section("vision_config"), config.section("text_config")
    size, patch = vision.count("image_size", 224), vision.count("patch_size", 16)
    side, rows = max(size // patch, 1), config.count("mm_tokens_per_image", 256)
    merge = max(round(side / rows**0.5), 1)
    if (side // merge) ** 2 != rows or size % patch:
        raise UnsupportedModelError(
            f"mm_tokens_per_image is {rows}, but {side} x {side} patches do not divide into such squares",
            kind="mm_tokens_per_image", name=rows,
        )  # fmt: skip
    _check_act(vision.text("hidden_act", "gelu_pytorch_tanh"), SIGLIP_ACTS)
    return {
        "clip.projector_type": "gemma3",
        "clip.use_gelu": True,
        "clip.vision.image_size": size,
        "clip.vision.patch_size": patch,
        "clip.vision.embedding_length": vision.count("hidden_size", 768),
        "clip.vision.feed_forward_length": vision.count("intermediate_size", 3072),
        "clip.vision.block_count": vision.count("num_hidden_layers", 12),
        "clip.vision.attention.head_count": vision.count("num_attention_heads", 12),
        "clip.vision.attention.layer_norm_epsilon": vision.number("layer_norm_eps", 1e-6),
        "clip.vision.projection_dim": text.count("hidden_size", 2304),
        "clip.vision.projector.scale_factor": merge,
        "clip.vision.image_mean": _numbers(processor, "image_mean", [0.5] * 3),
        "clip.vision.image_std": _numbers(processor, "image_std", [0.5] * 3),
    }


def _qwen_metadata(config: Config, processor: Config, kind: str, act: str, defaults: Defaults) -> Metadata:
    """Settings of Qwen's towers. Defaults are those of transformers' classes."""
    vision = config.section("vision_config")
    sizes = {name: vision.count(name, default) for name, default in defaults.items()}
    patch = sizes["patch_size"]
    _check_act(vision.text("hidden_act", act), {act: ""})
    for key, want in (("temporal_patch_size", 2), ("in_channels", 3)):
        if vision.count(key, want) != want:
            raise unsupported(f"vision_config.{key}", vision.count(key), (want,))
    least, most = _pixels(processor)
    return {
        "clip.projector_type": kind,
        "clip.vision.patch_size": patch,
        "clip.vision.image_size": patch * QWEN_SIDE,
        "clip.vision.embedding_length": sizes["hidden_size"],
        "clip.vision.feed_forward_length": sizes["intermediate_size"],
        "clip.vision.block_count": sizes["depth"],
        "clip.vision.attention.head_count": sizes["num_heads"],
        "clip.vision.attention.layer_norm_epsilon": 1e-6,  # a constant of both classes
        "clip.vision.projection_dim": sizes["out_hidden_size"],
        "clip.vision.spatial_merge_size": vision.count("spatial_merge_size", 2),
        "clip.vision.image_min_pixels": least,
        "clip.vision.image_max_pixels": most,
        "clip.vision.image_mean": _numbers(processor, "image_mean", CLIP_MEAN),
        "clip.vision.image_std": _numbers(processor, "image_std", CLIP_STD),
    }


def _pixels(processor: Config) -> tuple[int, int]:
    """The least and the most pixels of a resized image."""
    size = processor.section("size")
    least = processor.count("min_pixels", size.count("shortest_edge", 56 * 56))
    return least, processor.count("max_pixels", size.count("longest_edge", 28 * 28 * 1280))


def _qwen25_metadata(config: Config, processor: Config) -> Metadata:
    """As `_qwen_metadata`; layers without windows are every n-th."""
    vision = config.section("vision_config")
    made = _qwen_metadata(config, processor, "qwen2.5vl_merger", "silu", QWEN25)
    full = vision.counts("fullatt_block_indexes") if vision.has("fullatt_block_indexes") else [7, 15, 23, 31]
    every = full[0] + 1 if full else 0
    if not every or full != list(range(every - 1, vision.count("depth", 32), every)):
        raise unsupported("vision_config.fullatt_block_indexes", full, ("every n-th layer",))
    more = {"clip.use_silu": True, "clip.vision.n_wa_pattern": every}
    return {**made, **more, "clip.vision.window_size": vision.count("window_size", 112)}


def _qwen3_metadata(config: Config, processor: Config) -> Metadata:
    """As `_qwen_metadata`, with a square table of positions and tapped layers."""
    vision = config.section("vision_config")
    made = _qwen_metadata(config, processor, "qwen3vl_merger", "gelu_pytorch_tanh", QWEN3)
    n_positions = vision.count("num_position_embeddings", 2304)
    side = round(n_positions**0.5)
    if side * side != n_positions:
        raise unsupported("vision_config.num_position_embeddings", n_positions, ("a square",))
    taps = _taps(vision, HF_TOWERS["qwen3_vl"])
    depth = vision.count("depth", 27, most=MAX_LAYERS)
    return {
        **made,
        "clip.use_gelu": True,
        "clip.vision.image_size": side * vision.count("patch_size", 16),
        "clip.vision.is_deepstack_layers": [i in taps for i in range(depth)],
    }


def unsupported(key: str, value: object, known: tuple[object, ...]) -> UnsupportedModelError:
    """The error of a setting that would change the results."""
    return UnsupportedModelError(
        f"{key} is {value!r:.80}, which is not supported, only {', '.join(map(str, known))}",
        kind=key,
        name=value,
        known=known,
    )


def _check_act(act: str, known: Mapping[str, str]) -> None:
    if act not in known:
        raise UnsupportedModelError(
            f"vision_config.hidden_act is {shown(act)}, which is not supported, only {', '.join(known)}",
            kind="hidden_act", name=act, known=tuple(known),
        )  # fmt: skip


def _numbers(config: Config, key: str, default: list[float]) -> list[float]:
    values = config.get_list(key) or default
    return [float(v) if isinstance(v, int | float) else -1.0 for v in values]


QWEN_NAMES = {"ln1": "norm1", "ln2": "norm2", "attn_qkv": "attn.qkv", "attn_out": "attn.proj"}
HF_TOWERS: dict[str, HfTower] = {
    "gemma3": HfTower(
        text="gemma3_text",
        prefixes=(
            "vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.",
        ),
        layer="vision_tower.encoder.layers.{i}.",
        names={
            "ln1": "layer_norm1", "ln2": "layer_norm2", "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_out": "self_attn.out_proj",
            "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2",
        },
        outer={
            "v.patch_embd": "vision_tower.embeddings.patch_embedding",
            "v.position_embd": "vision_tower.embeddings.position_embedding",
            "v.post_ln": "vision_tower.post_layernorm",
            "mm.input_projection": "multi_modal_projector.mm_input_projection_weight",
            "mm.soft_emb_norm": "multi_modal_projector.mm_soft_emb_norm",
        },
        metadata=_siglip_metadata,
        ignored=("vision_tower.head.",),
        folds={"mm.soft_emb_norm": "add_one"},
    ),
    "qwen2_5_vl": HfTower(
        text="qwen2_5_vl_text",
        prefixes=("visual.", "model.visual."),
        layer="visual.blocks.{i}.",
        names={
            **QWEN_NAMES, "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
        },
        outer={
            "v.patch_embd": "visual.patch_embed.proj", "v.post_ln": "visual.merger.ln_q",
            "mm.0": "visual.merger.mlp.0", "mm.2": "visual.merger.mlp.2",
        },
        metadata=_qwen25_metadata,
        folds={"v.patch_embd": "frames"},
    ),
    "qwen3_vl": HfTower(
        text="qwen3_vl_text",
        prefixes=("visual.", "model.visual."),
        layer="visual.blocks.{i}.",
        names={**QWEN_NAMES, "ffn_up": "mlp.linear_fc1", "ffn_down": "mlp.linear_fc2"},
        taps={"norm": "norm", "fc1": "linear_fc1", "fc2": "linear_fc2"},
        outer={
            "v.patch_embd": "visual.patch_embed.proj", "v.position_embd": "visual.pos_embed",
            "v.post_ln": "visual.merger.norm", "mm.0": "visual.merger.linear_fc1",
            "mm.2": "visual.merger.linear_fc2",
        },
        metadata=_qwen3_metadata,
        folds={"v.patch_embd": "frames"},
    ),
}  # fmt: skip
HF_TOWERS["qwen3_vl_moe"] = replace(HF_TOWERS["qwen3_vl"], text="qwen3_vl_moe_text")
