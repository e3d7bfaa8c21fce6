"""MLX kernels of sampling: sample and candidates. Draws equal the reference's token for token."""

from __future__ import annotations

from camelid.plan.plan import Op
from camelid.plan.step import CANDIDATES, MOST_LAST_N, MOST_TOP_K, OUTPUT, SAMPLING
from camelid_native.mlx.arrays import F32, I32, U32, Array, indices, mx
from camelid_native.mlx.order import ids_of, keys_of, ordered
from camelid_native.mlx.philox import Noise, gumbel
from camelid_native.mlx.trace import Trace

CHAIN = 512  # values that are added in one chain


def op_sample(op: Op, f: Trace) -> None:
    logits = f.read(op.view("logits"))  # [O, V]
    ids = _draw(op, f, logits)
    top = mx.take_along_axis(logits, ids[:, None], axis=1).squeeze(1)
    total = _log_sum_exp(logits)
    f.results["rows"] = mx.stack([ids, _status(logits), top.view(U32), total.view(U32)], axis=1)
    if "all_logits" in f.plan.key.features:
        f.results["floats"] = logits
    keep_drawn(op, f, ids)


def keep_drawn(op: Op, f: Trace, ids: Array) -> None:  # [O]
    """Writes the id of each sequence's last output to the ring."""
    group, n = op.state("tokens").group, f.spec(op.state("tokens")).unit_rows
    slot = f.group_word(f.of_outputs, group, "write")
    place = mx.where(_is_last(f), slot * n + _output(f, "position") % n, 0)
    f.put((group, op.state("tokens").layer, "id"), place, ids)


def op_candidates(op: Op, f: Trace) -> None:
    logits = f.read(op.view("logits"))  # [O, V]
    ids = ids_of(ordered(logits)[:, :CANDIDATES])
    largest = mx.take_along_axis(logits, ids, axis=1).view(U32)
    room = ((0, 0), (0, CANDIDATES - ids.shape[1]))
    moments = mx.stack(_moments(logits), axis=1).view(U32)
    f.results["candidates"] = mx.concatenate([mx.pad(ids, room), mx.pad(largest, room), moments], axis=1)


def _moments(logits: Array) -> tuple[Array, Array]:  # [O] each
    """Mean and variance of the logits above -inf."""
    is_finite = logits > -mx.inf
    n = mx.maximum(is_finite.sum(axis=1), 1)
    mean = _sum(mx.where(is_finite, logits, 0.0)) / n
    centred = mx.where(is_finite, logits - mean[:, None], 0.0)
    return mean, _sum(centred * centred) / n


def _log_sum_exp(logits: Array) -> Array:  # [O, V] -> [O]
    top = logits.max(axis=1)
    return top + mx.log(_sum(mx.exp(logits - top[:, None])))


def _sum(x: Array) -> Array:  # [O, V] -> [O]
    """Sums of rows in two levels: the CPU adds an axis in one chain, whose error shows in 150,000 values."""
    padded = mx.pad(x, ((0, 0), (0, -x.shape[1] % CHAIN)))
    return padded.reshape(len(x), -1, CHAIN).sum(axis=2).sum(axis=1)


def _status(logits: Array) -> Array:  # [O]
    """Indices of STATUS."""
    is_broken = (~(logits < mx.inf)).any(axis=1)
    is_zero = (logits == 0.0).all(axis=1)
    return mx.where(is_broken, 1, mx.where(is_zero, 2, 0)).astype(U32)


def _is_last(f: Trace) -> Array:  # [O]
    """True for the last output of a sequence in the step."""
    number = indices(len(f.outputs))
    sequence = _output(f, "sequence")
    is_same = (sequence[:, None] == sequence[None]) & f.is_live_output[None]
    return f.is_live_output & ~(is_same & (number[None] > number[:, None])).any(axis=1)


def _draw(op: Op, f: Trace, logits: Array) -> Array:  # [O, V] -> [O] u32
    base = _adjusted(op, f, logits) if f.variant.adjusts else logits
    scores = _with_noise(f, base) if f.variant.draws else base
    if f.variant.adjusts:
        scores = mx.where(_survivors(f, base), scores, -mx.inf)
    return scores.argmax(axis=1)


def _with_noise(f: Trace, scores: Array) -> Array:  # [O, V]
    """Scores over the temperature plus noise; unchanged in rows of temperature 0."""
    temperature = _real(f, "temperature")
    is_drawn = temperature > 0.0
    noisy = scores / mx.where(is_drawn, temperature, 1.0) + gumbel(_vocabulary(scores), _noise(f))
    return mx.where(is_drawn, noisy, scores)


def _noise(f: Trace) -> Noise:
    position = _output(f, "position")[:, None] + _how(f, "offset")
    return Noise(_how(f, "seed_low"), _how(f, "seed_high"), position, _how(f, "choice"))


def _adjusted(op: Op, f: Trace, logits: Array) -> Array:  # [O, V]
    """Logits with biases and penalties."""
    scores = logits
    if len(f.biases):
        scores = _biased(f, scores)
    counts = _counts(op, f, logits.shape[1])
    repeat = _real(f, "repeat_penalty")
    fewer = mx.where(scores > 0.0, scores / repeat, scores * repeat)
    fewer = fewer - (counts * _real(f, "frequency_penalty") + _real(f, "presence_penalty"))
    return mx.where(counts > 0.0, fewer, scores)


def _biased(f: Trace, logits: Array) -> Array:  # [O, V]
    n, (n_outputs, n_ids) = len(f.biases), logits.shape
    number, first = indices(n)[None], _how(f, "first_bias")
    ids, values = f.biases[None, :, 0], f.biases[None, :, 1].view(F32)
    is_own = (number >= first) & (number < first + _how(f, "biases")) & (ids < n_ids)  # [O, B]
    rows = indices(n_outputs)[:, None]
    return logits.at[rows, mx.where(is_own, ids, 0)].add(mx.where(is_own, values, 0.0))


def _counts(op: Op, f: Trace, n_ids: int) -> Array:  # [O, V]
    """How often the last positions of each output's ring have an id."""
    group, n = op.state("tokens").group, f.spec(op.state("tokens")).unit_rows
    position = _output(f, "position").astype(I32)[:, None]
    at = position - 1 - indices(MOST_LAST_N, I32)[None]  # [O, last n], newest first
    start = position - mx.minimum(_how(f, "penalty_last_n").astype(I32), position)
    is_counted = (at >= start) & (at >= _last_position(f) + 1 - n)
    slot = f.group_word(f.of_outputs, group, "write").astype(I32)[:, None]
    ids = f.state[group, op.state("tokens").layer, "id"][slot * n + mx.maximum(at, 0) % n]
    is_counted = is_counted & (ids < n_ids)
    rows = indices(len(ids))[:, None]
    zeros = mx.zeros((len(ids), n_ids))
    return zeros.at[rows, mx.where(is_counted, ids, 0)].add(is_counted.astype(F32))


def _last_position(f: Trace) -> Array:  # [O, 1] i32
    """The position of the last output of each output's sequence: the ring holds ids from there back."""
    sequence, position = _output(f, "sequence"), _output(f, "position").astype(I32)
    is_same = (sequence[:, None] == sequence[None]) & f.is_live_output[None]
    return mx.where(is_same, position[None], -1).max(axis=1, keepdims=True)


def _survivors(f: Trace, scores: Array) -> Array:  # [O, V]
    """Ids left by top-k, top-p and min-p."""
    keys = keys_of(scores)
    best = mx.sort(keys, axis=1)[:, :MOST_TOP_K]  # [O, k]
    top_k = _how(f, "top_k")
    n_kept = mx.minimum(_left_by_top_p(f, mx.take_along_axis(scores, ids_of(best), axis=1)), top_k)
    at = mx.clip(n_kept.astype(I32) - 1, 0, best.shape[1] - 1)
    is_kept = (top_k == 0) | (keys <= mx.take_along_axis(best, at, axis=1))
    limit = scores.max(axis=1, keepdims=True) + mx.log(_real(f, "min_p"))  # -inf without min-p
    return is_kept & ~(scores < limit)


def _left_by_top_p(f: Trace, best: Array) -> Array:  # [O, k], the largest first -> [O, 1]
    """Number of the k largest scores that have the probability top-p; k for a top-p of 1."""
    is_in = indices(best.shape[1])[None] < _how(f, "top_k")
    sums = mx.cumsum(mx.softmax(mx.where(is_in, best, -mx.inf), axis=1), axis=1)
    top_p = _real(f, "top_p")
    n = (is_in & (sums < top_p)).sum(axis=1, keepdims=True) + 1
    return mx.where(top_p < 1.0, n.astype(U32), MOST_TOP_K)


def _vocabulary(logits: Array) -> Array:  # [1, V]
    return indices(logits.shape[1])[None]


def _how(f: Trace, name: str) -> Array:  # [O, 1] u32
    """A word of each output's sampling row."""
    number = f.sequence_word(f.of_outputs, "sampling")
    return f.sampling[number, SAMPLING.index(name)][:, None]


def _real(f: Trace, name: str) -> Array:  # [O, 1] float32
    return _how(f, name).view(F32)


def _output(f: Trace, name: str) -> Array:  # [O]
    return f.outputs[:, OUTPUT.index(name)]
