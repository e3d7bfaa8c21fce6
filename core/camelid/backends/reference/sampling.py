"""Kernels of the reference: drawing tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from camelid.backends.base import OutputRow
from camelid.backends.reference.frame import F64, Frame
from camelid.plan.plan import Op
from camelid.plan.step import STATUS, Step

U64 = npt.NDArray[np.uint64]


def op_sample(op: Op, f: Frame) -> None:
    ring = f.state.tensor(op.state("tokens"), "id")
    keep = "all_logits" in f.plan.key.features
    for logits, (_, number, position) in zip(f.read(op.view("logits")), f.step.outputs, strict=True):
        sequence = f.step.sequences[number]
        row = _draw(logits, f.step, sequence.sampling, position, keep=keep)
        slot = sequence.groups[f.plan.group(op.state("tokens").group)][1]
        ring[slot, position % ring.shape[1], 0] = row.token_id
        f.result.append(row)


def philox(seed: int, token_ids: U64, position: int, choice: int, purpose: int) -> U64:  # [n] u32 values
    """First word of Philox4x32-10 (Salmon et al., SC 2011), keyed by the seed.

    The counter is (token id, position, choice, purpose), so a draw depends on no order and no batch.
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


def _draw(logits: F64, step: Step, sampling: int, position: int, *, keep: bool) -> OutputRow:
    with np.errstate(all="ignore"):
        how, scores = step.sampling[sampling], logits
        if how.temperature > 0.0:
            ids = np.arange(len(logits), dtype=np.uint64)
            u = ((philox(how.seed, ids, position, how.choice, 0) >> np.uint64(8)) + 0.5) * 2.0**-24
            scores = logits / how.temperature - np.log(-np.log(u))
        token_id = int(np.argmax(scores))
        top = logits.max()
        log_sum_exp = float(top + np.log(np.exp(logits - top).sum()))
    return OutputRow(
        token_id=token_id,
        status=STATUS[1 if np.isnan(logits).any() else 2 if not logits.any() else 0],
        logit=float(logits[token_id]),
        log_sum_exp=log_sum_exp,
        logits=logits.astype(np.float32).data if keep else None,
    )
