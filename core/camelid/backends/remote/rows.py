"""Results of a step as frames, every number whole: reference logits are doubles."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct, iter_unpack

from camelid.backends.base import Candidates, OutputRow, Result
from camelid.backends.remote.frames import damaged
from camelid.plan.step import STATUS

ROW = Struct("<IIdd")  # id, status, logit, log-sum-exp
MOMENTS = Struct("<dd")  # mean and variance of the logits behind a row's candidates
N_FRAMES = 4


def pack_rows(rows: Result) -> list[bytes]:
    """Frames of the rows, the candidates' moments, the candidates, and the logits."""
    found = [row.candidates for row in rows if row.candidates]
    return [
        b"".join(ROW.pack(r.token_id, STATUS.index(r.status), r.logit, r.log_sum_exp) for r in rows),
        b"".join(MOMENTS.pack(each.mean, each.variance) for each in found),
        b"".join(each.ids.tobytes() + each.logits.tobytes() for each in found),
        b"".join(_float32(row.logits) for row in rows if row.logits is not None),
    ]


def _float32(values: memoryview) -> bytes:
    return values.tobytes() if values.format == "f" else array("f", values.tolist()).tobytes()


def unpack_rows(frames: Sequence[bytes]) -> Result:
    """Rows of frames. Raises BackendError for frames whose sizes do not fit."""
    if len(frames) != N_FRAMES or len(frames[0]) % ROW.size:
        raise damaged("its result has no rows")
    records = list(iter_unpack(ROW.format, frames[0]))
    candidates, logits = _candidates(frames[1], frames[2], len(records)), _split(frames[3], len(records))
    return [
        OutputRow(token_id, _status(status), logit, log_sum_exp, logits[i], candidates[i])
        for i, (token_id, status, logit, log_sum_exp) in enumerate(records)
    ]


def _status(number: int) -> str:
    if number >= len(STATUS):
        raise damaged(f"its result has the unknown status {number}")
    return STATUS[number]


def _split(data: bytes, n: int) -> Sequence[memoryview[float] | None]:
    """Equal rows of float32; None for rows without them."""
    if not data:
        return [None] * n
    if not n or len(data) % (4 * n):
        raise damaged(f"{len(data)} bytes of logits belong to {n} rows")
    floats = memoryview(data).cast("f")
    each = len(floats) // n
    return [floats[i * each : (i + 1) * each] for i in range(n)]


def _candidates(moments: bytes, data: bytes, n: int) -> Sequence[Candidates | None]:
    if not moments:
        return [None] * n
    if len(moments) != n * MOMENTS.size or len(data) % (8 * n):
        raise damaged(f"{len(data)} bytes of candidates belong to {n} rows")
    each = len(data) // n
    parts = [memoryview(data)[i * each : (i + 1) * each] for i in range(n)]
    return [
        Candidates(
            ids=part[: each // 2].cast("I"), logits=part[each // 2 :].cast("f"), mean=mean, variance=variance
        )
        for part, (mean, variance) in zip(parts, iter_unpack(MOMENTS.format, moments), strict=True)
    ]
