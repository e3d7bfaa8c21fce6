"""Reference kernels of sampling: sample and candidates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from camelid.backends.base import Candidates, OutputRow
from camelid.backends.reference.frame import Frame
from camelid.backends.reference.rows import F64, softmax
from camelid.plan.plan import Op
from camelid.plan.step import CANDIDATES, STATUS, StepSampling

U64 = npt.NDArray[np.uint64]
DRAW = 0  # purpose word of the noise for sampling


def op_sample(op: Op, f: Frame) -> None:
    ring = f.state.tensor(op.state("tokens"), "id")  # [slots, R, 1]
    keep = "all_logits" in f.plan.key.features
    last = {number: i for i, (_, number, _) in enumerate(f.step.outputs)}
    for i, (logits, (_, number, position)) in enumerate(
        zip(f.read(op.view("logits")), f.step.outputs, strict=True)
    ):
        sequence = f.step.sequences[number]
        ids = ring[sequence.groups[f.plan.group(op.state("tokens").group)][1], :, 0]  # [R]
        params = f.step.sampling[sequence.sampling]
        held = f.step.outputs[last[number]][2] + 1 - len(ids)  # the ring has a place for the last draw
        window = range(max(0, held, position - params.penalty_last_n), position)
        token_id = _draw(logits, params, [int(ids[p % len(ids)]) for p in window], position)
        if last[number] == i:
            ids[position % len(ids)] = token_id
        f.result.append(_row(logits, token_id, keep=keep))


def op_candidates(op: Op, f: Frame) -> None:
    pairs = zip(f.result, f.read(op.view("logits")), strict=True)
    f.result[:] = [row._replace(candidates=_candidates(logits)) for row, logits in pairs]


def philox(seed: int, token_ids: U64, position: int, choice: int, purpose: int) -> U64:  # [n] u32 values
    """First word of Philox4x32-10 (Salmon et al., SC 2011), keyed by the seed.

    The counter is (token id, position, choice, purpose), so the noise does not depend on order or batch.
    """
    mask = np.uint64(0xFFFFFFFF)
    c = [token_ids, *(np.full_like(token_ids, word) for word in (position, choice, purpose))]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(key[0]), b & mask,
             (a >> np.uint64(32)) ^ c[3] ^ np.uint64(key[1]), a & mask]  # fmt: skip
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0]


def _draw(logits: F64, params: StepSampling, history: Sequence[int], position: int) -> int:
    with np.errstate(all="ignore"):
        scores = _penalized(_biased(logits, params), params, history)
        ids = np.sort(_survivors(scores, params))  # sorted, so that argmax breaks ties by the lowest id
        scores = scores[ids]
        if params.temperature > 0.0:
            words = philox(params.seed, ids.astype(np.uint64), position + params.offset, params.choice, DRAW)
            u = ((words >> np.uint64(8)) + 0.5) * 2.0**-24
            scores = scores / params.temperature - np.log(-np.log(u))
    return int(ids[np.argmax(scores)])


def _biased(logits: F64, params: StepSampling) -> F64:
    scores = logits.copy()
    for token_id, value in params.biases:
        scores[token_id : token_id + 1] += value  # no effect for an id beyond the vocabulary
    return scores


def _penalized(scores: F64, params: StepSampling, history: Sequence[int]) -> F64:
    for token_id, count in Counter(history).items():
        own = scores[token_id : token_id + 1]
        own[:] = np.where(own > 0.0, own / params.repeat_penalty, own * params.repeat_penalty)
        own -= count * params.frequency_penalty + params.presence_penalty
    return scores


def _survivors(scores: F64, params: StepSampling) -> npt.NDArray[np.intp]:
    """Ids left by top-k, top-p and min-p, most likely first; at least one id, even if scores are NaN."""
    ids = np.argsort(-scores, kind="stable")[: params.top_k or None]
    if params.top_p < 1.0:
        sums = np.cumsum(softmax(scores[ids]))
        ids = ids[: int(np.searchsorted(sums, params.top_p)) + 1]
    if params.min_p > 0.0:
        ids = ids[~(scores[ids] < scores[ids[0]] + np.log(params.min_p))]
    return ids


def _row(logits: F64, token_id: int, *, keep: bool) -> OutputRow:
    with np.errstate(all="ignore"):
        top = logits.max()
        log_sum_exp = float(top + np.log(np.exp(logits - top).sum()))
    return OutputRow(
        token_id=token_id,
        status=STATUS[1 if not (logits < np.inf).all() else 2 if not logits.any() else 0],
        logit=float(logits[token_id]),
        log_sum_exp=log_sum_exp,
        logits=logits.astype(np.float32).data if keep else None,
    )


def _candidates(logits: F64) -> Candidates:
    ids = np.argsort(-logits, kind="stable")[:CANDIDATES]
    with np.errstate(all="ignore"):
        finite = logits[logits > -np.inf]
        mean, variance = (finite.mean(), finite.var()) if len(finite) else (0.0, 0.0)
    return Candidates(
        ids=memoryview(ids.astype(np.uint32).tobytes()).cast("I"),
        logits=memoryview(logits[ids].astype(np.float32).tobytes()).cast("f"),
        mean=float(mean),
        variance=float(variance),
    )
