"""Examination of one backend: its capabilities, its kernels, and the outcome of its gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from time import perf_counter
from typing import Any

from camelid.backends.base import Backend, Capabilities
from camelid.backends.proof.availability import Matrix, availability
from camelid.backends.proof.cases import all_cases, short_cases
from camelid.backends.proof.gate import FAILED, PASSED, REFUSED, Outcome, judge
from camelid.backends.proof.verdicts import keep
from camelid.backends.registry import names_with, oracle_name
from camelid.errors import CamelidError
from camelid.loading.choose import open_named

Progress = Callable[[str, int, int], object]  # label, cases done, cases in total
ORACLE = oracle_name()


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """Options of an examination; `op` "" means every op."""

    op: str = ""
    is_full: bool = True
    adapter: str = ""
    activations: str | None = None


@dataclass(frozen=True, slots=True)
class OpVerdict:
    """The outcomes of one op's cases."""

    op: str
    outcomes: Sequence[Outcome]

    def count(self, status: str) -> int:
        """The number of cases with this status."""
        return sum(outcome.status == status for outcome in self.outcomes)

    @property
    def failures(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status == FAILED]

    @property
    def status(self) -> str:
        """Failed if any case failed, refused if all were, else passed."""
        return FAILED if self.failures else PASSED if self.count(PASSED) else REFUSED

    @property
    def worst(self) -> Outcome:
        """The outcome with the largest NMSE relative to its limit."""
        return max(self.outcomes, key=lambda outcome: outcome.nmse / outcome.allowed)

    def facts(self) -> dict[str, Any]:
        """The fields of --json; an infinite or NaN NMSE is null."""
        worst = self.worst
        return {
            "status": self.status, "cases": len(self.outcomes), "passed": self.count(PASSED),
            "refused": self.count(REFUSED), "worst_nmse": worst.nmse if isfinite(worst.nmse) else None,
            "allowed_nmse": worst.allowed, "worst_case": str(worst.case),
            "failures": list(map(str, self.failures)),
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendReport:
    """A backend's report. `can` is None if opening failed (see `reason`); `ops` is empty without a gate."""

    name: str
    reason: str = ""
    can: Capabilities | None = None
    matrix: Matrix = field(default_factory=dict[str, dict[str, str]])
    ops: Sequence[OpVerdict] = ()
    seconds: float = 0.0

    @property
    def has_failed(self) -> bool:
        return any(op.status == FAILED for op in self.ops)

    def facts(self) -> dict[str, Any]:
        """The fields of --json."""
        if self.can is None:
            return {"name": self.name, "is_available": False, "reason": self.reason}
        names = ("device", "build", "promise", "activations", "max_in_flight", "is_software")
        return {
            "name": self.name, "is_available": True, **{name: getattr(self.can, name) for name in names},
            "fused": sorted(self.can.fused), "limits": dict(self.can.limits), "kernels": self.matrix,
            "gate": {op.op: op.facts() for op in self.ops},
            "verdict": ORACLE if self.name == ORACLE else FAILED if self.has_failed else PASSED,
            "seconds": self.seconds,
        }  # fmt: skip


async def examine(name: str, options: DoctorOptions, progress: Progress) -> BackendReport:
    """Opens a backend, runs its gate unless it is the oracle, and caches the verdict for `auto`."""
    try:
        adapter = options.adapter if name in names_with("adapter") else ""
        backend = await open_named(name, adapter, activations=options.activations)
    except CamelidError as error:
        return BackendReport(name=name, reason=error.message)
    except (ImportError, OSError) as error:  # a package or driver library fails to load
        return BackendReport(name=name, reason=f"{type(error).__name__}: {error}")
    can = backend.capabilities()
    start = perf_counter()
    try:
        ops = [] if name == ORACLE else await run_gate(backend, options, progress)
    finally:
        await backend.close()
    return BackendReport(
        name=name, can=can, matrix=availability(can), ops=ops, seconds=perf_counter() - start
    )


async def run_gate(backend: Backend, options: DoctorOptions, progress: Progress) -> list[OpVerdict]:
    """Runs the selected cases, op by op."""
    can = backend.capabilities()
    whole = all_cases(can.weight_types, options.op, can.dtypes)
    cases = list(whole if options.is_full else short_cases(can.weight_types, options.op))
    outcomes: list[Outcome] = []
    for done, planned in enumerate(cases):
        progress(f"{can.name}: {planned.row.op}", done, len(cases))
        outcomes.append(await judge(backend, planned.made()))
    if not options.op:
        short = [o for o, planned in zip(outcomes, cases, strict=True) if planned.is_short]
        keep(can, next((o for o in short if o.status == FAILED), None))
    return list(_by_op(outcomes))


def _by_op(outcomes: Sequence[Outcome]) -> Iterator[OpVerdict]:
    for op in dict.fromkeys(outcome.case.op for outcome in outcomes):
        yield OpVerdict(op, [outcome for outcome in outcomes if outcome.case.op == op])
