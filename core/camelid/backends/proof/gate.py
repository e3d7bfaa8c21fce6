"""The gate: runs cases on a backend and on the reference, and compares the results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from camelid.backends.base import Backend, Capabilities, reason_against
from camelid.backends.common.op_runner import OpCase, OpResult, case_plan, run_case
from camelid.backends.proof.cases import short_cases
from camelid.backends.proof.compare import (
    allowed,
    as_stored,
    rounded,
    rounds_activations,
    settled,
    with_slots,
    worst,
)
from camelid.backends.proof.inputs import GateCase
from camelid.backends.reference.backend import ReferenceBackend
from camelid.errors import CamelidError

Expect = Callable[[OpCase], Awaitable[OpResult]]
PASSED, FAILED, REFUSED = "passed", "failed", "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one case.

    `nmse` is infinite if the results are not comparable. `reason` is the reason of a refusal, or the text of
    the raised `error`.
    """

    case: GateCase
    status: str
    nmse: float = 0.0
    allowed: float
    reason: str = ""
    error: Exception | None = None

    def __str__(self) -> str:
        if self.reason:
            return f"{self.case}: {self.reason}"
        return f"{self.case}: NMSE {self.nmse:.2g}, at most {self.allowed:g} is allowed"


def refusal(case: OpCase, can: Capabilities) -> str:
    """The reason why the backend cannot run a case; "" if it can."""
    missing = sorted({weight.type for weight in case.weights.values()} - can.weight_types)
    if missing:
        return f"it has no kernel for {', '.join(missing)}"
    return reason_against(case_plan(case)[0], can)


async def on_reference(case: OpCase) -> OpResult:
    """Runs a case on a new reference backend."""
    return await run_case(ReferenceBackend(), case)


async def judge(backend: Backend, case: GateCase, expect: Expect = on_reference) -> Outcome:
    """Runs a case on an opened backend, and compares it with the result of `expect`.

    An exception of a kernel is a failure of the case.
    """
    can, limit = backend.capabilities(), allowed(case.case, backend.capabilities())
    reason = refusal(case.case, can)
    if reason:
        return Outcome(case=case, status=REFUSED, allowed=limit, reason=reason)
    tested, expected = inputs_of(case.case, can)
    want = await expect(expected)
    try:
        nmse = worst(await run_case(backend, tested), want)
    except Exception as error:
        return Outcome(
            case=case, status=FAILED, nmse=float("inf"), allowed=limit, reason=_raised(error), error=error
        )
    return Outcome(case=case, status=PASSED if nmse <= limit else FAILED, nmse=nmse, allowed=limit)


async def first_failure(backend: Backend) -> Outcome | None:
    """Runs the short gate. Returns the first failure, None if all cases pass."""
    for planned in short_cases(backend.capabilities().weight_types):
        outcome = await judge(backend, planned.made())
        if outcome.status == FAILED:
            return outcome
    return None


def inputs_of(case: OpCase, can: Capabilities) -> tuple[OpCase, OpCase]:
    """The cases for the backend and for the reference.

    Slots of adapters are of the backend's type in both. If the backend rounds activations, the reference's x
    is the rounded x in float32: a code times its scale may not be representable in the buffer's dtype.
    """
    case = with_slots(case, can.slot_type)
    if not rounds_activations(case, can):
        return case, case
    tested = as_stored(settled(as_stored(case)))
    return tested, replace(rounded(tested), dtypes={**tested.dtypes, "x": "f32"})


def _raised(error: Exception) -> str:
    text = error.message if isinstance(error, CamelidError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())
