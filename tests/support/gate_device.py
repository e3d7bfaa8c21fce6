"""A reference backend with injected errors that a gate must detect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from camelid.backends.base import Capabilities, OpenSpec, OutputRow, PoolSize, Sources, Ticket
from camelid.backends.common.codecs import decode, encode
from camelid.backends.common.codecs.activations import FORMATS, load, store
from camelid.backends.reference.backend import ReferenceBackend
from camelid.formats.quants import quant
from camelid.plan.plan import Plan, StateSpec, View
from camelid.plan.weights import Weight

Change = Callable[[Any], Any]  # a function of float32 arrays


class Device(ReferenceBackend):
    """`off` changes every output, `given` changes every input, `error` is raised by each run. `says` replaces
    the capabilities; activations are f32 unless `says` names other dtypes.
    """

    def __init__(
        self,
        off: Change = lambda numbers: numbers,
        given: Change = lambda numbers: numbers,
        error: Exception | None = None,
        **says: Any,
    ) -> None:
        super().__init__()
        self.off, self.given, self.error, self.says = off, given, error, says
        self.specs: dict[str, StateSpec] = {}
        self.n_runs, self.n_closed = 0, 0

    def capabilities(self) -> Capabilities:
        known = {"name": "device", "device": "Test 1.0", "dtypes": frozenset({"f32"})}
        return replace(super().capabilities(), **(known | self.says))

    async def open(self, spec: OpenSpec) -> None:
        """Needs nothing to open."""

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        super().__init__()  # weights of the same name differ between cases
        await super().load(weights, sources)

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        self.specs = {s.name: s for s in states}
        await super().allocate(states, units)

    async def run_buffers(
        self, program: Any, step: bytes, inputs: Mapping[View, bytes], outputs: Sequence[View]
    ) -> tuple[Ticket, list[bytes]]:
        self.n_runs += 1
        if self.error:
            raise self.error
        given = {view: _changed(data, self.given, view.dtype) for view, data in inputs.items()}
        ticket, raw = await super().run_buffers(program, step, given, outputs)
        rows = [self._row(row) for row in ticket.handle.result]
        frame = replace(ticket.handle, result=rows)
        each = zip(raw, outputs, strict=True)
        return replace(ticket, handle=frame), [_changed(data, self.off, view.dtype) for data, view in each]

    def _row(self, row: OutputRow) -> OutputRow:
        logits = None if row.logits is None else memoryview(_changed(bytes(row.logits), self.off)).cast("f")
        sums = {"logit": float(self.off(row.logit)), "log_sum_exp": float(self.off(row.log_sum_exp))}
        return row._replace(logits=logits, **sums)

    async def read_state(self, group: str, unit: int) -> bytes:
        data, spec = await super().read_state(group, unit), self.specs[group]
        if spec.kind == "ring":
            return data
        form = quant(spec.kv_type)
        values = decode(spec.kv_type, data, len(data) // form.block_bytes * form.block)
        return encode(spec.kv_type, self.off(values.reshape(-1, form.block))).tobytes()

    async def close(self) -> None:
        self.n_closed += 1


def _changed(data: bytes, change: Change, dtype: str = "f32") -> bytes:
    numbers = load(np.frombuffer(data, FORMATS[dtype]), dtype).copy()
    return store(change(numbers), dtype).tobytes()


def plan_of_nothing(plan: Plan) -> str:
    """The check of a backend that refuses every plan."""
    return f"it does not like {plan.key.entry}"
