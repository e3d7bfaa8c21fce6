"""Runs cases on a backend and on the reference, and says what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from camelid.backends.base import Capabilities, reason_against
from camelid.backends.common.op_runner import BufferRunner, OpCase, OpResult, case_plan, run_case
from camelid.backends.proof.cases import short_cases
from camelid.backends.proof.compare import allowed, as_stored, rounded, rounds_activations, settled, worst
from camelid.backends.proof.inputs import GateCase
from camelid.backends.reference.backend import ReferenceBackend
from camelid.errors import CamelidError

Wanted = Callable[[OpCase], Awaitable[OpResult]]
PASSED, FAILED, REFUSED = "passed", "failed", "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one case. `nmse` is infinite where nothing comparable came back; `reason` says why it was
    refused, or what was raised, which is `error`."""

    case: GateCase
    status: str
    nmse: float = 0.0
    allowed: float
    reason: str = ""
    error: Exception | None = None

    def __str__(self) -> str:
        if self.reason:
            return f"{self.case}: {self.reason}"
        return f"{self.case}: NMSE {self.nmse:.2g}, at most {self.allowed:g} is right"


def refusal(case: OpCase, can: Capabilities) -> str:
    """Why the backend does not run this case; "" if it does."""
    missing = sorted({weight.type for weight in case.weights.values()} - can.weight_types)
    if missing:
        return f"it has no kernel for {', '.join(missing)}"
    return reason_against(case_plan(case)[0], can)


async def on_reference(case: OpCase) -> OpResult:
    """The case on a reference backend of its own."""
    return await run_case(ReferenceBackend(), case)


async def judge(backend: BufferRunner, case: GateCase, wanted: Wanted = on_reference) -> Outcome:
    """One case on an opened backend, beside what is `wanted`. Whatever a kernel raises is a finding."""
    can, limit = backend.capabilities(), allowed(case.case, backend.capabilities())
    reason = refusal(case.case, can)
    if reason:
        return Outcome(case=case, status=REFUSED, allowed=limit, reason=reason)
    given, meant = _inputs(case.case, can)
    want = await wanted(meant)
    try:
        nmse = worst(await run_case(backend, given), want)
    except Exception as error:
        return Outcome(
            case=case, status=FAILED, nmse=float("inf"), allowed=limit, reason=_raised(error), error=error
        )
    return Outcome(case=case, status=PASSED if nmse <= limit else FAILED, nmse=nmse, allowed=limit)


async def first_failure(backend: BufferRunner) -> Outcome | None:
    """The short gate: what it fails first; None if it passes."""
    for planned in short_cases(backend.capabilities().weight_types):
        outcome = await judge(backend, planned.made())
        if outcome.status == FAILED:
            return outcome
    return None


def _inputs(case: OpCase, can: Capabilities) -> tuple[OpCase, OpCase]:
    """The backend's case and the reference's. For kernels that round, the reference's x is what the kernel
    makes of it, in float32: a code times its scale need not be a number of the buffer's dtype."""
    if not rounds_activations(case, can):
        return case, case
    given = as_stored(settled(as_stored(case)))
    return given, replace(rounded(given), dtypes={**given.dtypes, "x": "f32"})


def _raised(error: Exception) -> str:
    text = error.message if isinstance(error, CamelidError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())
