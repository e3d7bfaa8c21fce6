"""What a backend holds: its open device, its programs, and what a lost device is given again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from camelid.plan.memory import Arena
from camelid.plan.plan import Plan, StateSpec
from camelid.plan.weights import Weight
from camelid_native.cuda.compiler import Compiler, fingerprint
from camelid_native.cuda.device import Device
from camelid_native.cuda.library import Library
from camelid_native.cuda.matrix_units import multiplies_codes, multiplies_halves
from camelid_native.cuda.program import CudaProgram
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
        except BaseException:
            device.close()
            raise
        self.library = Library(device, compiler, facts.arch)
        self.weights = Weights(device, self.staging, self.library)

    def close(self) -> None:
        """Frees all memory and the device."""
        self.weights.close()
        self.staging.close()
        self.device.close()


@dataclass(slots=True)
class Kept:
    """What a lost device is given again."""

    device: str = ""
    weights: dict[str, Weight] = field(default_factory=dict[str, Weight])
    sources: dict[str, Any] = field(default_factory=dict[str, Any])
    states: tuple[StateSpec, ...] = ()


@dataclass(slots=True, eq=False)
class Compiled:
    """A plan with its program, which a recovery replaces."""

    plan: Plan
    arena: Arena
    program: CudaProgram

    def place(self, buffer: str) -> int:
        """The address of a buffer on the device."""
        return self.program.memory.arena_at + self.arena.offsets[buffer]
