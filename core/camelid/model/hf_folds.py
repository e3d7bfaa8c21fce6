"""Folds: changes of published tensors at load, by the names that rows use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import prod

from camelid.model.delta_folds import of_qkvz, tiled_columns, tiled_heads
from camelid.model.hf_rows import Runs
from camelid.model.hf_settings import MAX_EXPERTS, HfSettings, unsupported
from camelid.model.latent import fits, k_of_kv_b, v_of_kv_b
from camelid.plan.weights import Part, Weight, as_f32, cut_each, cut_rows, swap_columns, take_rows


def scaled(weight: Weight, runs: Runs) -> Weight:
    """Runs of rows times a number each, in float32."""
    if sum(n for n, _ in runs) != weight.rows:
        return weight  # match_tensors refuses the shape
    return as_f32(weight).then("scale_rows", *(number for run in runs for number in run))


def _transpose(weight: Weight, _: HfSettings) -> Weight:
    """A matrix stored as [in, out]; a bias stays as it is."""
    if len(weight.shape) != 2:
        return weight
    n_in, n_out = weight.shape
    return replace(weight, shape=(n_out, n_in)).then("transpose", n_in, n_out)


def _transpose_each(weight: Weight, _: HfSettings) -> Weight:
    """A stack of matrices stored as [in, out]; blocks are [out, in], and biases stay as they are."""
    return weight if len(weight.shape) != 3 or weight.has_planes else _turned(weight)


def _stack(weight: Weight, settings: HfSettings) -> Weight:
    """The experts' matrices one below the other as a stack."""
    n_rows, n = weight.shape[0], settings.n_experts
    if not n or n_rows % n:
        return weight  # match_tensors refuses the shape
    return replace(weight, shape=(n, n_rows // n, *weight.shape[1:]))


def _outputs_first(weight: Weight, settings: HfSettings) -> Weight:
    """A stack [experts, out, in], turned if its file has [experts, in, out]."""
    is_down = "ffn_down" in weight.name
    n_in = settings.count("expert_feed_forward_length" if is_down else "embedding_length")
    is_turned = len(weight.shape) == 3 and weight.shape[1] == n_in != weight.shape[2]
    return _turned(weight) if is_turned and not weight.has_planes else weight


def _turned(weight: Weight) -> Weight:
    n, n_in, n_out = weight.shape
    return replace(weight, shape=(n, n_out, n_in)).then("transpose", n_in, n_out)


def _alternate(weight: Weight, start: int) -> Weight:
    """Every other output of a stack from `start` on: of matrices [in, out], biases, or blocks [out, in]."""
    *stack, n_out = weight.shape[:-1] if weight.has_planes else weight.shape
    if n_out % 2:
        return weight  # match_tensors refuses the shape
    if weight.has_planes:
        return replace(weight, shape=(*stack, n_out // 2, weight.cols)).then("every", start, 2, weight.rows)
    half = replace(weight, shape=(*stack, n_out // 2))
    half = half.then("transpose", half.rows * half.cols, 2).then("rows", start, 1, 2)
    return _turned(half) if len(half.shape) == 3 else half


def _pairs(weight: Weight, n_heads: int) -> Weight:
    if weight.shape[0] % (2 * n_heads):
        return weight  # match_tensors refuses the shape
    return weight.then("permute_rows", n_heads, weight.shape[0] // n_heads)


def _stacked(weight: Weight, settings: HfSettings, i: int) -> Weight:
    """Rows of the queries (0), keys (1) or values (2) of a matrix or bias that stacks the three."""
    n_q, n_kv = settings.n_heads * settings.head_dim, settings.n_kv_heads * settings.head_dim
    if weight.shape[0] != n_q + 2 * n_kv:
        return weight  # match_tensors refuses the shape
    return cut_rows(weight, weight.name, *((0, n_q), (n_q, n_kv), (n_q + n_kv, n_kv))[i])


def _grouped(weight: Weight, settings: HfSettings, i: int) -> Weight:
    """The same rows of a matrix that repeats, for each KV head: its query heads, its key, its value."""
    dim, n_kv_heads = settings.head_dim, settings.n_kv_heads
    n_q = settings.n_heads // n_kv_heads * dim
    if weight.shape[0] != n_kv_heads * (n_q + 2 * dim):
        return weight  # match_tensors refuses the shape
    start, n = ((0, n_q), (n_q, dim), (n_q + dim, dim))[i]
    heads = range(0, weight.shape[0], n_q + 2 * dim)
    return take_rows(weight, weight.name, [(head + start, n) for head in heads])


def _by_key_head(weight: Weight, settings: HfSettings) -> Weight:
    """Rows of query heads by their key heads; stored head h reads key head h modulo their number."""
    n_heads, n_keys = settings.n_heads, settings.n_kv_heads
    if weight.shape[0] % n_heads:
        return weight  # match_tensors refuses the shape
    size = weight.shape[0] // n_heads
    heads = (head for key in range(n_keys) for head in range(key, n_heads, n_keys))
    return take_rows(weight, weight.name, ((head * size, size) for head in heads))


def _columns_by_key_head(weight: Weight, settings: HfSettings) -> Weight:
    """`by_key_head` of a matrix's columns."""
    n_heads, n_keys = settings.n_heads, settings.n_kv_heads
    if len(weight.shape) != 2 or weight.cols % n_heads:
        return weight  # match_tensors refuses the shape
    return swap_columns(weight, n_heads // n_keys, n_keys)


def _add_one(weight: Weight, settings: HfSettings) -> Weight:
    """gain = 1 + weight, in float32: bf16 would round the small weights away. A bias stays as it is."""
    return weight if weight.name.endswith(".bias") else _add(weight, settings, 1.0)


def _add(weight: Weight, _: HfSettings, offset: float) -> Weight:
    """gain = offset + weight, in float32."""
    return as_f32(weight).then("add", offset)


def _half(weight: Weight, i: int) -> Weight:
    """Rows of each matrix: the first half (0) or the second (1)."""
    if len(weight.shape) < 2 or weight.shape[-2] % 2 or prod(weight.shape[:-2]) > MAX_EXPERTS:
        return weight  # match_tensors refuses the shape
    *stack, rows, cols = weight.shape
    if weight.load_ops:
        cut = cut_each if stack else cut_rows
        return cut(weight, weight.name, i * rows // 2, rows // 2)
    n = prod(stack)
    part, n_bytes = weight.parts[0], weight.n_bytes // (2 * n)
    parts = tuple(Part(part.source, part.offset + (2 * k + i) * n_bytes, n_bytes) for k in range(n))
    return replace(weight, shape=(*stack, rows // 2, cols), parts=parts)


def _side(weight: Weight, i: int) -> Weight:
    """Columns of each matrix of a stack: the first half (0) or the second (1)."""
    if len(weight.shape) != 3 or weight.shape[2] % 2:
        return weight  # match_tensors refuses the shape
    n, n_rows, width = weight.shape[0], weight.shape[1], weight.shape[2] // 2
    turned = weight.then("transpose", n * n_rows, 2 * width).then("rows", i * width, width, 2 * width)
    return replace(turned, shape=(n, n_rows, width)).then("transpose", width, n * n_rows)


def _after_padding(weight: Weight, settings: HfSettings) -> Weight:
    """The positions after those of padding, from position 0 of a text on."""
    n = settings.n_skipped
    return cut_rows(weight, weight.name, n, weight.shape[0] - n) if weight.shape[0] > n else weight


def _squeeze(weight: Weight, _: HfSettings) -> Weight:
    """A depthwise convolution without its dimension of 1: [U, 1, W] -> [U, W]."""
    return replace(weight, shape=tuple(n for n in weight.shape if n != 1))


def _pad_rows(weight: Weight, settings: HfSettings) -> Weight:
    """An embedding with a row for each token: tokens beyond its end have the first row."""
    n_rows = weight.shape[0]
    n_more = settings.config.count("vocab_size") - n_rows
    if not 0 < n_more <= MAX_EXPERTS:
        return weight  # match_tensors refuses the shape
    return take_rows(weight, weight.name, [(0, n_rows), *[(0, 1)] * n_more])


def _single_row(weight: Weight, _: HfSettings) -> Weight:
    """A matrix of one row as a vector."""
    return replace(weight, shape=weight.shape[1:]) if weight.shape[0] == 1 else weight


def _published_conv(weight: Weight, settings: HfSettings) -> Weight:
    """`squeeze`, of a family whose weights mlx-lm changes when it turns its convolutions."""
    if weight.shape[-1:] == (1,):
        raise unsupported("model_type", f"{settings.config.text('model_type')} of mlx-lm", ("the original",))
    return _squeeze(weight, settings)


def _column(weight: Weight, _: HfSettings) -> Weight:
    return replace(weight, shape=(*weight.shape, 1))


def _groups(weight: Weight, settings: HfSettings) -> Weight:
    """The gain of a grouped norm as one row per group."""
    n = settings.config.count(settings.row.counts["ssm.group_count"])
    fits = len(weight.shape) == 1 and weight.shape[0] % n == 0
    return replace(weight, shape=(n, weight.shape[0] // n)) if fits else weight


def _groups_behind_gate(weight: Weight, settings: HfSettings) -> Weight:
    """`groups`, of a norm that follows the gate."""
    if settings.config.flag("mamba_norm_before_gate", True):
        raise unsupported("mamba_norm_before_gate", True, (False,))
    return _groups(weight, settings)


def _decay(weight: Weight, _: HfSettings) -> Weight:
    """-exp of the stored logarithm, in float32."""
    return as_f32(weight).then("neg_exp")


def _of_kv_b(weight: Weight, settings: HfSettings, part: str) -> Weight:
    """The part `k` or `v` of the matrix that expands keys and values of latent attention."""
    nope, value = (settings.config.count(key) for key in ("qk_nope_head_dim", "v_head_dim"))
    if not fits(weight, settings.n_heads, nope, value):
        return weight  # match_tensors refuses the shape
    if part == "k":
        cut = k_of_kv_b(weight, settings.n_heads, nope)
    else:
        cut = v_of_kv_b(weight, settings.n_heads, value)
    return replace(cut, name=weight.name)


def _qkv_of_groups(weight: Weight, settings: HfSettings) -> Weight:
    """All queries, all keys, all values of rows that are grouped by key head: its queries, key, value."""
    n_groups, each = settings.n_kv_heads, settings.n_heads // settings.n_kv_heads
    heads = (each, 1, 1)  # of a group: queries, key, value
    if weight.shape[0] % (n_groups * sum(heads)):
        return weight  # match_tensors refuses the shape
    size = weight.shape[0] // (n_groups * sum(heads))
    ranges = [(sum(heads[:i]) * size, n * size) for i, n in enumerate(heads)]
    groups = range(0, weight.shape[0], sum(heads) * size)  # first row of each group
    return take_rows(weight, weight.name, ((group + start, n) for start, n in ranges for group in groups))


def _without_offset(weight: Weight, _: HfSettings) -> Weight:
    """Learned positions from the row of position 0 on, which OPT's files store third."""
    n = weight.shape[0] - 2
    return cut_rows(weight, weight.name, 2, n) if n > 0 else weight


def _rescaled(weight: Weight, settings: HfSettings) -> Weight:
    """A matrix of layer i, halved once for each `rescale_every` layers before it, as the stream is."""
    every, layer = settings.config.count("rescale_every", least=0), int(weight.name.split(".")[1])
    return scaled(weight, [(weight.rows, 0.5 ** (layer // every))]) if 0 < every <= layer else weight


def _of_rkvwg(weight: Weight, _: HfSettings) -> Weight:
    """Rows or matrices of five mixed inputs, stored for r, k, v, w, g, in GGUF's order w, k, v, r, g."""
    n = weight.shape[0] // 5
    if weight.shape[0] % 5:
        return weight  # match_tensors refuses the shape
    return take_rows(weight, weight.name, [(3 * n, n), (n, 2 * n), (0, n), (4 * n, n)])


FOLDS: Mapping[str, Callable[[Weight, HfSettings], Weight]] = {
    "transpose": _transpose,
    "transpose_each": _transpose_each,
    "outputs_first": _outputs_first,
    "stack": _stack,
    "even": lambda weight, _: _alternate(weight, 0),
    "odd": lambda weight, _: _alternate(weight, 1),
    "pairs_of_q": lambda weight, settings: _pairs(weight, settings.n_heads),
    "pairs_of_k": lambda weight, settings: _pairs(weight, weight.shape[0] // settings.head_dim or 1),
    **{f"{name}_of_stack": partial(_stacked, i=i) for i, name in enumerate("qkv")},
    **{f"{name}_of_groups": partial(_grouped, i=i) for i, name in enumerate("qkv")},
    "by_key_head": _by_key_head,
    "columns_by_key_head": _columns_by_key_head,
    "add_one": _add_one,
    "add_fifth": partial(_add, offset=5**-1.0),
    "add_fifth_of_root": partial(_add, offset=5**-1.5),
    "first_half": lambda weight, _: _half(weight, 0),
    "second_half": lambda weight, _: _half(weight, 1),
    "left_half": lambda weight, _: _side(weight, 0),
    "right_half": lambda weight, _: _side(weight, 1),
    "after_padding": _after_padding,
    "qkv_of_groups": _qkv_of_groups,
    "without_offset": _without_offset,
    "squeeze": _squeeze,
    "flat": lambda weight, _: replace(weight, shape=(prod(weight.shape),)),
    "pad_rows": _pad_rows,
    "row": _single_row,
    "column": _column,
    "of_rkvwg": _of_rkvwg,
    "rescaled": _rescaled,
    "groups": _groups,
    "published_conv": _published_conv,
    "tiled_columns": tiled_columns,
    "tiled_heads": tiled_heads,
    "groups_behind_gate": _groups_behind_gate,
    "decay": _decay,
    "decay_column": lambda weight, settings: _column(_decay(weight, settings), settings),
    "qkv_of_qkvz": lambda weight, settings: of_qkvz(weight, settings, slice(3)),
    "k_of_kv_b": lambda weight, settings: _of_kv_b(weight, settings, "k"),
    "v_of_kv_b": lambda weight, settings: _of_kv_b(weight, settings, "v"),
    "z_of_qkvz": lambda weight, settings: of_qkvz(weight, settings, slice(3, 4)),
}
