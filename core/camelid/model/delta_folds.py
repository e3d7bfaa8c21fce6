"""Folds of gated DeltaNet: GGUF's order of rows of queries, keys, values and gates."""

from __future__ import annotations

from camelid.model.hf_settings import HfSettings
from camelid.plan.weights import Weight, swap_columns, take_rows

COUNTS = ("state_size", "group_count", "time_step_rank")
BEHIND_KEYS = ("attn_qkv.weight", "ssm_conv1d.weight")  # their first rows are those of queries and keys


def of_qkvz(weight: Weight, settings: HfSettings, parts: slice) -> Weight:
    """The rows of `parts` of (q, k, v, z), which the file interleaves by key head; each part contiguous."""
    key_dim, n_key_heads, n_heads = _sizes(settings)
    value_dim = settings.config.count("linear_value_head_dim")
    values = n_heads // n_key_heads * value_dim
    sizes = (key_dim, key_dim, values, values)
    if len(weight.shape) != 2 or weight.shape[0] != n_key_heads * sum(sizes):
        return weight  # match_tensors refuses the shape
    ranges = [(sum(sizes[:i]), sizes[i]) for i in range(4)][parts]
    heads = range(0, weight.shape[0], sum(sizes))  # first row of each key head
    return take_rows(weight, weight.name, ((head + start, n) for start, n in ranges for head in heads))


def tiled_heads(weight: Weight, settings: HfSettings) -> Weight:
    """Rows of value heads: the first of each key head, then the second of each, and so on."""
    key_dim, n_keys, n_heads = _sizes(settings)
    lead = 2 * key_dim * n_keys if weight.name.endswith(BEHIND_KEYS) else 0
    each, rest = divmod(weight.shape[0] - lead, n_heads)
    if rest or each < 1 or n_heads % n_keys:
        return weight  # match_tensors refuses the shape
    per_key = n_heads // n_keys
    order = (key * per_key + i for i in range(per_key) for key in range(n_keys))
    ranges = [(0, lead)] * (lead > 0) + [(lead + head * each, each) for head in order]
    return take_rows(weight, weight.name, ranges)


def tiled_columns(weight: Weight, settings: HfSettings) -> Weight:
    """`tiled_heads` of the columns of a matrix."""
    _, n_keys, n_heads = _sizes(settings)
    if len(weight.shape) != 2 or n_heads % n_keys or weight.cols % n_heads:
        return weight  # match_tensors refuses the shape
    return swap_columns(weight, n_keys, n_heads // n_keys)


def _sizes(settings: HfSettings) -> list[int]:
    """Width of a key, numbers of key heads and of value heads."""
    return [settings.config.count(settings.row.counts[f"ssm.{name}"]) for name in COUNTS]
