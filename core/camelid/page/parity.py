"""Parity on the visitor's device: the short gate, recorded with the reference's results.

`camelid.backends.proof.recorded` makes the records; here they run without NumPy, on a backend that is opened
for them, so that the loaded model keeps its state.
"""

from __future__ import annotations

import math
from array import array
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from camelid.backends.base import Backend, Capabilities, PoolSize, reason_against
from camelid.errors import CamelidError
from camelid.plan.plain import from_plain
from camelid.plan.plan import Plan

Json = dict[str, Any]
PASSED, FAILED, REFUSED = "passed", "failed", "refused"
NAN = "nan"  # the status of a row with NaN or +inf among its logits
RING = "tokens"  # the state group of token ids, which are compared as they are


async def examine(
    backend: Backend, records: Sequence[Json], tell: Callable[[int, int], object]
) -> list[Json]:
    """Runs the records that fit the backend's rounding of activations; `tell` gets done and total.

    Raises RequestError for a plan that is damaged.
    """
    can = backend.capabilities()
    chosen = [
        record for record in records if record["activations"] in ("", can.rounding(record["weight_type"]))
    ]
    outcomes: list[Json] = []
    for done, record in enumerate(chosen):
        tell(done, len(chosen))
        outcomes.append(await judge(backend, record))
    tell(len(chosen), len(chosen))
    return outcomes


async def judge(backend: Backend, record: Json) -> Json:
    """The outcome of one record: status, NMSE (None if not comparable), limit, reason of a refusal.

    Raises RequestError for a plan that is damaged.
    """
    facts: Json = {name: record[name] for name in ("case", "op", "allowed")}
    can = backend.capabilities()
    plan: Plan = from_plain(record["plan"])
    if reason := _refusal(plan, can):
        return facts | {"status": REFUSED, "nmse": None, "reason": reason}
    try:
        nmse = await _run(backend, plan, record)
    except Exception as error:
        text = error.message if isinstance(error, CamelidError) else f"{type(error).__name__}: {error}"
        return facts | {"status": FAILED, "nmse": None, "reason": text}
    status = PASSED if nmse <= record["allowed"] else FAILED
    return facts | {"status": status, "nmse": nmse if math.isfinite(nmse) else None, "reason": ""}


def _refusal(plan: Plan, can: Capabilities) -> str:
    """The reason why the backend cannot run a plan; "" if it can."""
    missing = sorted({w.type for w in plan.weights().values()} - can.weight_types)
    return f"it has no kernel for {', '.join(missing)}" if missing else reason_against(plan, can)


async def _run(backend: Backend, plan: Plan, record: Json) -> float:
    """The largest NMSE of a record's results on a backend."""
    await backend.load([*plan.weights().values()], {})
    await backend.allocate(plan.states, {name: PoolSize(*size) for name, size in record["units"].items()})
    for group, unit, data in record["writes"]:
        await backend.write_state(group, unit, b64decode(data))
    program = await backend.compile(plan)
    inputs = {from_plain(view): b64decode(data) for view, data in record["inputs"]}
    outputs = [from_plain(view) for view, _ in record["outputs"]]
    ticket, raw = await backend.run_buffers(program, b64decode(record["step"]), inputs, outputs)
    errors = [_nmse(got, b64decode(want)) for got, (_, want) in zip(raw, record["outputs"], strict=True)]
    rows = await backend.read(ticket) if record["rows"] else ()
    errors += [_row_error(row, want) for row, want in zip(rows, record["rows"], strict=True)]
    errors += [await _state_error(backend, *read) for read in _reads(record)]
    return max(errors, default=0.0)


def _reads(record: Json) -> list[list[Any]]:
    """The state to compare. A row that is not a number has no token id, so none is compared in the ring."""
    has_nan = any(status == NAN for _, status, *_ in record["rows"])
    return [read for read in record["reads"] if not (has_nan and read[0] == RING)]


async def _state_error(backend: Backend, group: str, unit: int, want: str) -> float:
    got, expected = await backend.read_state(group, unit), b64decode(want)
    if group == RING:
        return 0.0 if bytes(got) == expected else math.inf
    return _nmse(got, expected)


def _row_error(row: Any, want: Sequence[Any]) -> float:
    token_id, status, *figures = want
    if status == NAN:  # engines refuse such a row, so its numbers do not matter
        return 0.0 if row.status == NAN else math.inf
    if (row.token_id, row.status) != (token_id, status):
        return math.inf
    return _errors(array("f", [row.logit, row.log_sum_exp]), array("f", figures))


def _nmse(got: bytes, want: bytes) -> float:
    return _errors(array("f", bytes(got)), array("f", want)) if len(got) == len(want) else math.inf


def _errors(got: array[float], want: array[float]) -> float:
    """Sum of squared errors over sum of squares; infinite if places of finite values differ."""
    pairs = list(zip(got, want, strict=True))
    if any(math.isfinite(a) != math.isfinite(b) for a, b in pairs):
        return math.inf
    fine = [(a, b) for a, b in pairs if math.isfinite(b)]
    return sum((a - b) ** 2 for a, b in fine) / max(sum(b * b for _, b in fine), 1e-30)


def summary(outcomes: Sequence[Mapping[str, Any]]) -> Json:
    """The number of outcomes by status."""
    return {name: sum(o["status"] == name for o in outcomes) for name in (PASSED, FAILED, REFUSED)}
