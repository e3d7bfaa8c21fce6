"""Results of a step as bytes: the layout that devices write and `output_rows` reads.

Three sections, each with one record per output: id, status, logit and log-sum-exp; with the feature
`candidates`, the candidates; with the feature `all_logits` or an op `emit`, the logits or the emitted floats.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from camelid.backends.base import Candidates, OutputRow, Result, Ticket
from camelid.plan.plan import Op, Plan
from camelid.plan.step import CANDIDATE_WORDS, CANDIDATES, RESULT_WORDS, STATUS

GIVEN = {"sample": "logits", "emit": "x"}  # op -> the view whose rows a program returns


def result_bytes(plan: Plan, n_outputs: int) -> int:
    """Bytes of the results of `n_outputs` outputs; 0 for a stage before the last."""
    if not any(op.name in GIVEN for op in plan.ops):
        return 0
    words = RESULT_WORDS + CANDIDATE_WORDS * ("candidates" in plan.key.features) + _floats(plan)
    return 4 * n_outputs * words


def output_rows(data: bytes | memoryview[int], ticket: Ticket) -> Result:
    """Decodes rows of results; an empty list for a program without results."""
    n = ticket.n_outputs if data else 0
    rows = [struct.unpack_from("<IIff", data, i * 4 * RESULT_WORDS) for i in range(n)]
    rest = memoryview(data)[n * 4 * RESULT_WORDS :]
    candidates: Sequence[Candidates | None] = [None] * n
    if "candidates" in ticket.program.key.features:
        each = 4 * CANDIDATE_WORDS
        candidates = [_candidates(rest[i * each : (i + 1) * each], ticket.program.plan) for i in range(n)]
        rest = rest[n * each :]
    each = len(rest) // max(n, 1)
    return [
        OutputRow(
            token_id=token_id,
            status=STATUS[status],
            logit=logit,
            log_sum_exp=log_sum_exp,
            logits=rest[i * each : (i + 1) * each].cast("f") if each else None,
            candidates=candidates[i],
        )
        for i, (token_id, status, logit, log_sum_exp) in enumerate(rows)
    ]


def _floats(plan: Plan) -> int:
    """Floats per output: its logits, or its emitted row."""
    last = next((op for op in plan.ops if op.name in GIVEN), None)
    if last is None or (last.name == "sample" and "all_logits" not in plan.key.features):
        return 0
    return last.view(GIVEN[last.name]).cols


def _candidates(data: memoryview[int], plan: Plan) -> Candidates:
    vocab_size = _vocab_size(plan.ops)
    n_bytes, room = 4 * min(CANDIDATES, vocab_size), 4 * CANDIDATES
    mean, variance = struct.unpack_from("<ff", data, 2 * room)
    return Candidates(
        ids=data[:n_bytes].cast("I"),
        logits=data[room : room + n_bytes].cast("f"),
        mean=mean,
        variance=variance,
    )


def _vocab_size(ops: Sequence[Op]) -> int:
    return next(op.view("logits").cols for op in ops if op.name == "candidates")
