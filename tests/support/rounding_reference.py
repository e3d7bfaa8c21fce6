"""The reference with the activations of a backend that rounds: whole models are then compared within 1e-6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from camelid.backends.base import Capabilities
from camelid.backends.common.op_runner import OpCase, Quantized
from camelid.backends.proof.compare import PRODUCTS, rounded
from camelid.backends.reference.backend import KERNELS, ReferenceBackend
from camelid.backends.reference.frame import Frame
from camelid.plan.plan import Op, Plan, View
from camelid.plan.step import decode_step


@dataclass(slots=True)
class RoundedFrame(Frame):
    """A frame in which the product `op` reads x as a rounding backend multiplies it."""

    op: Any = None

    def read(self, view: View) -> Any:
        x = Frame.read(self, view)
        return _rounded(x, self.op) if self.op and view == self.op.view("x") else x


def _rounded(x: Any, op: Op) -> Any:
    weight = op.weight("weight")
    case = OpCase(
        op="linear",
        views={"x": x.astype(np.float32)},
        weights={"weight": Quantized(weight.type, weight.shape, b"")},
    )
    return rounded(case).views["x"].astype(np.float64)


class RoundingReference(ReferenceBackend):
    """A reference whose products round their input as a backend of these capabilities does."""

    rounds: Capabilities

    @classmethod
    def of(cls, rounds: Capabilities) -> RoundingReference:
        made = cls()
        made.rounds = rounds
        return made

    def run_frame(self, plan: Plan, step: bytes, values: dict[str, Any]) -> Frame:
        frame = RoundedFrame(plan, decode_step(step, plan.layout), self._store, self._state, values, [])
        for op in plan.ops:
            frame.op = op if self._rounds_input(op) else None
            KERNELS[op.name](op, frame)
        return frame

    def _rounds_input(self, op: Op) -> bool:
        return op.name.startswith(PRODUCTS) and self.rounds.rounding(op.weight("weight").type) == "q8"
