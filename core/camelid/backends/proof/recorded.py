"""Recorded cases of the short gate, which a page runs without NumPy.

`python -m camelid.backends.proof.recorded FILE` writes a JSON list in the order of the gate. A record has the
text and limit of its case, the calls of a backend (`plan`, `units`, `writes`, `step`, `inputs`), and the
reference's results (`outputs`, `rows`, `reads`); bytes are base64. A case whose inputs depend on a backend's
rounding of activations has a record for each; `activations` names it, "" means any.
"""

from __future__ import annotations

import asyncio
import json
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from camelid.backends.base import PoolSize, Program, Ticket
from camelid.backends.common.op_runner import OpCase, run_case
from camelid.backends.proof.cases import short_cases
from camelid.backends.proof.compare import allowed, rounds_activations
from camelid.backends.proof.gate import inputs_of
from camelid.backends.proof.inputs import GateCase
from camelid.backends.reference.backend import ReferenceBackend
from camelid.formats.quants import QUANTS
from camelid.plan.plain import to_plain
from camelid.plan.plan import Plan, StateSpec, View

Json = dict[str, Any]
ACTIVATIONS = ("f32", "q8")


class Recorder(ReferenceBackend):
    """The reference backend, with a record of its calls and results."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Json = {"writes": []}
        self.results: Json = {"rows": [], "reads": []}

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        self.calls["units"] = {name: list(asdict(size).values()) for name, size in units.items()}
        await super().allocate(states, units)

    async def compile(self, plan: Plan) -> Program:
        self.calls["plan"] = to_plain(plan)
        return await super().compile(plan)

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        self.calls["writes"].append([group, unit, text_of(data)])
        await super().write_state(group, unit, data)

    async def run_buffers(
        self, program: Program, step: bytes, inputs: Mapping[View, bytes], outputs: Sequence[View]
    ) -> tuple[Ticket, list[bytes]]:
        self.calls["step"] = text_of(step)
        self.calls["inputs"] = [[to_plain(view), text_of(data)] for view, data in inputs.items()]
        ticket, raw = await super().run_buffers(program, step, inputs, outputs)
        pairs = zip(outputs, raw, strict=True)
        self.results["outputs"] = [[to_plain(view), text_of(data)] for view, data in pairs]
        return ticket, raw

    async def read(self, ticket: Ticket) -> Any:
        rows = await super().read(ticket)
        self.results["rows"] = [[row.token_id, row.status, row.logit, row.log_sum_exp] for row in rows]
        return rows

    async def read_state(self, group: str, unit: int) -> bytes:
        data = await super().read_state(group, unit)
        self.results["reads"].append([group, unit, text_of(data)])
        return data


def text_of(data: bytes) -> str:
    """Bytes as base64."""
    return b64encode(data).decode("ascii")


async def record(case: GateCase) -> list[Json]:
    """The records of a case, one for each rounding of activations that changes its inputs."""
    can = ReferenceBackend().capabilities()
    ways = [replace(can, activations=name) for name in ACTIVATIONS]
    is_rounded = any(rounds_activations(case.case, way) for way in ways)
    return [
        {"case": str(case), "op": case.op, "activations": way.activations if is_rounded else "",
         "weight_type": case.case.weights["weight"].type if is_rounded else "",
         "allowed": allowed(case.case, way), **await _record(*inputs_of(case.case, way))}
        for way in (ways if is_rounded else ways[:1])
    ]  # fmt: skip


async def _record(tested: OpCase, expected: OpCase) -> Json:
    given, wanted = Recorder(), Recorder()
    await run_case(given, tested)
    await run_case(wanted, expected)
    return given.calls | wanted.results


def records() -> Iterator[Json]:
    """The records of the short gate."""
    for planned in short_cases(QUANTS):
        yield from asyncio.run(record(planned.made()))


def main() -> None:
    """Writes all records to the file of the command line."""
    Path(sys.argv[1]).write_text(json.dumps([*records()]), encoding="utf-8")


if __name__ == "__main__":
    main()
