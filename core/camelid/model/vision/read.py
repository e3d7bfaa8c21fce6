"""Reads a tower from a checkpoint in the terms of mmproj files: metadata `clip.*`, tensors `v.*`, `mm.*`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from camelid.errors import ModelFormatError, TensorShapeError, UnsupportedModelError, shown
from camelid.model.checkpoint import Checkpoint
from camelid.model.metadata_reader import MetadataReader
from camelid.model.spec import MAX_HEAD_DIM, LayerSpec, ModelSpec, RopeSpec
from camelid.model.vision.projectors import LAYER_NAMES, PROJECTORS, Projector
from camelid.model.vision.spec import Resizing, Tower, TowerSpec
from camelid.plan.weights import Weight, as_f32, cut_rows

ARCHITECTURE = "clip"  # general.architecture of mmproj files
Shape = tuple[int, ...]
MAX_SIDE = 1 << 14  # pixels; published towers have at most 1,500
MAX_PATCHES = 1 << 14  # patches of one image; published towers have at most 16,384
MAX_FACTOR = 1 << 8  # pixels of a square's side; published towers have at most 32
MAX_PIXELS = 1 << 28
MAX_POSITIONS = 1 << 12  # each patch has a weight for each of them
MIN_ROWS, MAX_ROWS = 8, 4096  # of an image, in files that state no pixels
AXIAL_THETA = 10000.0
Facts: TypeAlias = dict[str, Any]
ACTS = {"use_gelu": "gelu", "use_silu": "silu"}


def read_tower(checkpoint: Checkpoint) -> Tower:
    """The tower of an mmproj file.

    Raises UnsupportedModelError for a projector without a row, ModelFormatError for impossible metadata,
    TensorShapeError for a missing, misshapen or unused tensor.
    """
    kind = projector_of(checkpoint)
    row = PROJECTORS[kind]
    spec = _spec(checkpoint, kind, row)
    return Tower(spec, _weights(checkpoint.tensors, spec, row))


def projector_of(checkpoint: Checkpoint) -> str:
    """The projector's type. Raises UnsupportedModelError for a file of another kind or without a row."""
    header = checkpoint.header
    arch = header.get("general.architecture", str)
    if arch != ARCHITECTURE:
        raise UnsupportedModelError(
            f"{header.path}: architecture {shown(arch)}, expected {ARCHITECTURE!r}, as mmproj files have",
            kind="architecture", name=arch, known=(ARCHITECTURE,),
        )  # fmt: skip
    names = ("clip.vision.projector_type", "clip.projector_type")
    stated = (header.get(name, str, default="") for name in names)
    kind = next(filter(None, stated), "")
    if kind not in PROJECTORS:
        known = ", ".join(PROJECTORS)
        raise UnsupportedModelError(
            f"{header.path}: projector {shown(kind)} is not supported; supported: {known}",
            kind="projector", name=kind, known=known,
        )  # fmt: skip
    return kind


def _spec(checkpoint: Checkpoint, kind: str, row: Projector) -> TowerSpec:
    vision = MetadataReader(checkpoint.header, "clip.vision")
    layers = _layers(vision, row, len(checkpoint.tensors))
    sizes = _fixed_sizes(vision) if row.pools else _free_sizes(vision, row)
    return TowerSpec(
        projector=kind,
        layers=layers,
        patch_size=vision.count("patch_size"),
        out_size=vision.count("projection_dim"),
        taps=_taps(vision, row, layers.n_layers),
        axes=row.axes,
        **_windows(vision, layers.n_layers),
        **sizes,
    )


def _side(vision: MetadataReader) -> int:
    """Patches of a side of the square image that `image_size` states."""
    size, patch = vision.count("image_size"), vision.count("patch_size")
    side = size // patch
    if size > MAX_SIDE or size % patch or side * side > MAX_PATCHES:
        vision.fail("image_size", f"is {size}, expected patches of {patch} pixels, at most {MAX_PATCHES}")
    return side


def _fixed_sizes(vision: MetadataReader) -> Facts:
    """Images of one size, whose patches are averaged in squares."""
    side, merge = _side(vision), vision.count("projector.scale_factor", 4)
    if side % merge:
        vision.fail("projector.scale_factor", f"is {merge}, but {side} patches a side are not whole squares")
    mean, std = (_channels(vision, name) for name in ("image_mean", "image_std"))
    resizing = Resizing(size=vision.count("image_size"), mean=mean, std=std)
    return {"merge": merge, "n_positions": side * side, "resizing": resizing}


def _free_sizes(vision: MetadataReader, row: Projector) -> Facts:
    """Images of any size, whose patches are joined in squares; a position table is stretched over them."""
    merge = vision.count("spatial_merge_size", 2)
    factor = vision.count("patch_size") * merge
    if factor > MAX_FACTOR:
        vision.fail("patch_size", f"makes squares of {factor} pixels, expected at most {MAX_FACTOR}")
    mean, std = (_channels(vision, name) for name in ("image_mean", "image_std"))
    least, most = (
        vision.gguf.get(vision.key(f"image_{name}_pixels"), int, default=n * factor**2)
        for name, n in (("min", MIN_ROWS), ("max", MAX_ROWS))
    )
    if not 0 < least <= most <= MAX_PIXELS or most < factor**2:
        vision.fail("image_min_pixels", f"is {least} and image_max_pixels {most}, expected 1 to {MAX_PIXELS}")
    n_positions = _side(vision) ** 2 if "v.position_embd" in row.outer else 0
    if n_positions > MAX_POSITIONS:
        vision.fail("image_size", f"makes {n_positions} positions, expected at most {MAX_POSITIONS}")
    resizing = Resizing(factor=factor, least=least, most=most, resample="bicubic", mean=mean, std=std)
    return {"merge": merge, "n_positions": n_positions, "resizing": resizing}


def _windows(vision: MetadataReader, n_layers: int) -> Facts:
    """The side of attention windows in patches, and the layers without windows: every `n_wa_pattern`-th."""
    every = vision.count("n_wa_pattern", 0, least=0)
    if not every:
        return {}
    pixels, patch = vision.count("window_size", 112), vision.count("patch_size")
    merge = vision.count("spatial_merge_size", 2)
    side = pixels // merge // patch * merge
    if not side:
        vision.fail("window_size", f"is {pixels}, expected at least {patch * merge}, a square of patches")
    return {"window": side, "full_layers": tuple(range(every - 1, n_layers, every))}


def _taps(vision: MetadataReader, row: Projector, n_layers: int) -> tuple[int, ...]:
    """The tapped layers. Raises ModelFormatError if the last layer is one, whose output has a projector."""
    if not row.taps or not vision.has("is_deepstack_layers"):
        return ()
    taps = tuple(i for i, is_tap in enumerate(vision.flags("is_deepstack_layers", n_layers)) if is_tap)
    if n_layers - 1 in taps:
        vision.fail("is_deepstack_layers", "taps the last layer, expected layers before it")
    return taps


def _layers(vision: MetadataReader, row: Projector, n_tensors: int) -> ModelSpec:
    """The encoder's sizes and layers, as those of a text encoder."""
    n_layers, n_heads = vision.count("block_count"), vision.count("attention.head_count")
    hidden_size = vision.count("embedding_length")
    if n_layers > n_tensors:
        vision.fail("block_count", f"is {n_layers}, but the file has {n_tensors} tensors")
    if hidden_size % n_heads or hidden_size // n_heads > MAX_HEAD_DIM:
        vision.fail("embedding_length", f"is {hidden_size}, which {n_heads} heads do not divide")
    head_dim = hidden_size // n_heads
    if row.turns and head_dim % 4:
        vision.fail("embedding_length", f"has heads of {head_dim}, expected a multiple of 4 for two axes")
    ropes = {"rope": _axial(head_dim)} if row.turns else {}
    layer = LayerSpec(mixer="bidirectional", mlp=row.mlp, act=_act(vision), rope=next(iter(ropes), ""))
    return ModelSpec(
        arch=ARCHITECTURE,
        name=vision.gguf.get("general.name", str, default=ARCHITECTURE),
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=head_dim,
        hidden_size=hidden_size,
        ffn_size=vision.count("feed_forward_length"),
        vocab_size=0,
        context_length=MAX_PATCHES,
        norm_eps=vision.number("attention.layer_norm_epsilon"),
        norm_kind=row.norm_kind,
        ropes=ropes,
        layers=(layer,) * n_layers,
        is_tied=True,
    )


def _axial(head_dim: int) -> RopeSpec:
    """Half of a head's pairs turn by row, the other half by column, with the same frequencies."""
    n = head_dim // 4
    wanted = [AXIAL_THETA ** (-i / n) for i in range(n)]
    plain = [AXIAL_THETA ** (-2.0 * i / head_dim) for i in range(2 * n)]
    factors = tuple(a / b for a, b in zip(plain, (*wanted, *wanted), strict=True))
    return RopeSpec(theta=AXIAL_THETA, dim=head_dim, style="neox", factors=factors, axes=(0,) * n + (1,) * n)


def _act(vision: MetadataReader) -> str:
    """The activation. Raises UnsupportedModelError for a file that states none of ours."""
    for name, act in ACTS.items():
        if vision.gguf.get(f"clip.{name}", bool, default=False):
            return act
    raise UnsupportedModelError(
        f"{vision.gguf.path}: neither clip.use_gelu nor clip.use_silu is true; other activations are not "
        "supported",
        kind="activation",
        name="",
        known=tuple(ACTS),
    )


def _channels(vision: MetadataReader, name: str) -> tuple[float, ...]:
    values = vision.gguf.get(vision.key(name), list[float])
    is_ok = (
        len(values) == 3
        and all(-1e3 < v < 1e3 for v in values)
        and (name != "image_std" or min(values) > 1e-3)
    )
    if not is_ok:
        vision.fail(name, f"is {values!r:.80}, expected 3 numbers, of red, green and blue")
    return tuple(values)


def _weights(tensors: Mapping[str, Weight], spec: TowerSpec, row: Projector) -> dict[str, Weight]:
    """The weights by our names. Raises TensorShapeError for a missing, misshapen or unused tensor."""
    tensors = _split(_in_order(tensors, spec), spec)
    rules = dict(_rules(spec, row))
    unused = sorted(tensors.keys() - rules.keys())
    if unused:
        raise TensorShapeError(
            f"tensor {unused[0]}: no rule of projector {spec.projector!r} uses it, so results would be wrong",
            name=unused[0], got=unused[0], want="no further tensors",
        )  # fmt: skip
    made = (_checked(name, tensors, shape, row) for name, shape in rules.items())
    return {weight.name: weight for weight in made}


def _rules(spec: TowerSpec, row: Projector) -> Iterator[tuple[str, Shape]]:
    """(full name in the file, shape) of every tensor."""
    sizes = _sizes(spec)
    layers = (
        (f"v.blk.{i}.{name}", s) for i in range(spec.layers.n_layers) for name, s in row.tensors.items()
    )
    taps = ((f"v.deepstack.{i}.{name}", s) for i in spec.taps for name, s in row.taps.items())
    for name, letters in (*row.outer.items(), *layers, *taps):
        is_whole = ".weight" in name
        yield name if is_whole else f"{name}.weight", tuple(sizes[letter] for letter in letters)
        if is_whole:
            continue
        if name not in row.plain and name.rpartition(".")[2] not in row.plain:
            yield f"{name}.bias", (sizes[letters[0]],)


def _sizes(spec: TowerSpec) -> Mapping[str, int]:
    layers = spec.layers
    return {
        "C": layers.hidden_size, "F": layers.ffn_size, "I": spec.patch_cols, "N": spec.n_positions,
        "M": layers.hidden_size * spec.merge**2, "O": spec.out_size, "Q": 3 * layers.hidden_size,
    }  # fmt: skip


def _checked(name: str, tensors: Mapping[str, Weight], want: Shape, row: Projector) -> Weight:
    """The tensor by our name, folded, with vectors and tables in float32."""
    weight, base = tensors.get(name), name.removesuffix(".weight")
    fold = row.folds.get(base, "")
    stored = want[::-1] if fold == "transpose" else want
    got = _flat(weight.shape, len(want)) if weight else ()
    if weight is None or got != stored:
        raise TensorShapeError(
            f"{name}: found {weight.shape if weight else 'nothing'}, expected shape {stored}; was this file "
            "made for another tower?",
            name=name, got=got, want=stored,
        )  # fmt: skip
    weight = replace(weight, name=_own_name(base), shape=want)
    weight = as_f32(weight) if len(want) == 1 or base == "v.position_embd" else weight
    return weight.then("transpose", *stored) if fold == "transpose" else weight


def _flat(shape: Shape, n: int) -> Shape:
    """The shape of a convolution's kernel as a matrix [out, channels * height * width]."""
    if n == 2 and len(shape) == 4:
        return shape[0], shape[1] * shape[2] * shape[3]
    return shape


def _own_name(name: str) -> str:
    """`v.blk.0.attn_out` -> `blk.0.attn_output`; other names stay."""
    prefix, _, rest = name.partition("v.blk.")
    if prefix or not rest:
        return name
    number, _, inner = rest.partition(".")
    tensor, dot, ending = inner.partition(".")
    return f"blk.{number}.{LAYER_NAMES.get(tensor, tensor)}{dot}{ending}"


def _in_order(tensors: Mapping[str, Weight], spec: TowerSpec) -> dict[str, Weight]:
    """The tensors, with the MLP's two matrices by their meaning: older converters swapped their names."""
    up = tensors.get("v.blk.0.ffn_up.weight")
    hidden_size, ffn_size = spec.layers.hidden_size, spec.layers.ffn_size
    if up is None or up.shape != (hidden_size, ffn_size) or hidden_size == ffn_size:
        return dict(tensors)
    swapped = {".ffn_up.": ".ffn_down.", ".ffn_down.": ".ffn_up."}
    out: dict[str, Weight] = {}
    for name, weight in tensors.items():
        old = next((old for old in swapped if old in name), "")
        renamed = name.replace(old, swapped[old]) if old else name
        out[renamed] = replace(weight, name=renamed)
    return out


def _split(tensors: Mapping[str, Weight], spec: TowerSpec) -> dict[str, Weight]:
    """The tensors, with fused maps of queries, keys and values cut into three."""
    out = dict(tensors)
    for i in range(spec.layers.n_layers):
        for ending in ("weight", "bias"):
            fused = out.get(f"v.blk.{i}.attn_qkv.{ending}")
            if fused and fused.shape[0] == 3 * spec.layers.hidden_size:
                del out[fused.name]
                for part, name in enumerate(("attn_q", "attn_k", "attn_v")):
                    own = f"v.blk.{i}.{name}.{ending}"
                    out[own] = cut_rows(fused, own, part * spec.layers.hidden_size, spec.layers.hidden_size)
    return out


def check_fits(tower: Tower, model: ModelSpec) -> None:
    """Raises ModelFormatError for a tower of another text model."""
    row = PROJECTORS[tower.spec.projector]
    n_taps = len(tower.spec.taps)
    if n_taps != model.n_deepstack:
        raise ModelFormatError(
            f"the tower taps {n_taps} layers, but the model adds {model.n_deepstack}; is it another model's "
            "mmproj file?"
        )
    if model.arch not in row.archs or tower.spec.out_size != model.hidden_size:
        raise ModelFormatError(
            f"the tower {tower.spec.projector!r} makes embeddings of {tower.spec.out_size} floats for "
            f"{' or '.join(row.archs)}, but the model is {model.arch} with {model.hidden_size}; is it "
            "another model's mmproj file?"
        )
