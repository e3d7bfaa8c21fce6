"""The parts of a backend: its open device, its programs, and the inputs of a recovery."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from camelid.plan.plan import Plan, StateSpec
from camelid.plan.weights import Weight
from camelid_native.cuda.compiler import Compiler, fingerprint
from camelid_native.cuda.device import Device
from camelid_native.cuda.device_driver import CURRENT
from camelid_native.cuda.library import Library
from camelid_native.cuda.matrix_units import multiplies_codes, multiplies_halves
from camelid_native.cuda.program import CudaProgram
from camelid_native.cuda.shared import Lender
from camelid_native.cuda.staging import Staging
from camelid_native.cuda.weights import Weights


class Opened:
    """An open device with everything that lives as long: staging, weights, modules."""

    def __init__(self, device: Device, compiler: Compiler) -> None:
        self.device = device
        try:
            facts = device.facts()
            known = (f"{facts.name} ({facts.arch})", f"driver {facts.driver}", facts.interface)
            self.name = ", ".join(filter(None, known))
            self.build = fingerprint(compiler.name)
            self.has_matrix = multiplies_codes(facts.arch)
            self.has_half_matrix = multiplies_halves(facts.arch)
            self.staging = Staging(device)
            self.lender = Lender(device, facts.dlpack)
        except BaseException:
            device.close()
            raise
        self.library = Library(device, compiler, facts.arch)
        self.weights = Weights(device, self.staging, self.library)

    def entered(self) -> Opened:
        """Itself; the next call selects the device, since a user's torch may have selected another."""
        CURRENT.device = None
        return self

    def close(self) -> None:
        """Frees all memory and the device, which arrays of the user keep until the last is freed."""
        self._free()
        self.lender.close()

    def abandon(self) -> None:
        """Frees a lost device, with the arrays of the user."""
        self._free()
        self.lender.abandon()

    def _free(self) -> None:
        self.weights.close()
        self.staging.close()


@dataclass(slots=True)
class Kept:
    """The inputs of a backend that a recovery gives to the device again."""

    device: str = ""
    weights: dict[str, Weight] = field(default_factory=dict[str, Weight])
    sources: dict[str, Any] = field(default_factory=dict[str, Any])
    states: tuple[StateSpec, ...] = ()


@dataclass(slots=True, eq=False)
class Compiled:
    """A plan with its program, which a recovery replaces."""

    plan: Plan
    program: CudaProgram
