"""Weights of the WASM kernels: declared in Python, read and packed by the executor at their first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from camelid.backends.base import Sources
from camelid.formats.quants import name_of_id, quant
from camelid.plan.weights import INLINE, Part, Weight
from camelid_native.cpu.records import (
    FORM_F32,
    FORM_GATED,
    FORM_PANELS,
    FORM_ROWS,
    PANEL_ROWS,
    TURNS,
    WeightRecord,
    stacked,
    weight_record,
)
from camelid_native.wasm.tape import Json, Section, address

FORMS = {FORM_F32: "floats", FORM_ROWS: "rows", FORM_PANELS: "panels", FORM_GATED: "gated"}
Panels = Mapping[str, tuple[int, int]]  # type -> columns and bytes of the smallest panel


class WasmWeights:
    """All weights of a backend, each in the forms that compiled plans use."""

    def __init__(self, panels: Panels, numbers: Iterator[int]) -> None:
        self._panels, self._numbers = panels, numbers
        self._records: dict[tuple[str, int], WeightRecord] = {}
        self._section = Section("load", "weights")
        self.sources: dict[str, object] = {}

    def add(self, weights: Sequence[Weight], sources: Sources) -> None:
        """Declares weights. A weight is read when a form is first requested."""
        self.sources.update(sources)
        stale = {weight.name for weight in weights}
        self._records = {key: record for key, record in self._records.items() if key[0] not in stale}

    def record(self, weight: Weight, form: int) -> WeightRecord:
        """Record of a weight in a form; at the first request, adds the weight to the next load section."""
        key = (weight.name, form)
        if key not in self._records:
            self._records[key] = self._placed(weight, form)
        return self._records[key]

    def taken(self) -> Section:
        """Returns the load section of all weights requested since the last call, and starts a new one."""
        section, self._section = self._section, Section("load", "weights")
        return section

    def forget(self, section: Section) -> None:
        """Drops the records of a load section that failed."""
        lost = {address(buffer["number"]) for buffer in section.buffers}
        self._records = {key: record for key, record in self._records.items() if record.at not in lost}

    def _placed(self, weight: Weight, form: int) -> WeightRecord:
        each = self._matrix_bytes(weight, TURNS[form]) if form in TURNS else 0
        stack, *_ = stacked(weight)
        n_bytes = {FORM_F32: 4 * weight.rows * weight.cols, FORM_ROWS: weight.n_bytes}
        number = next(self._numbers)
        size = n_bytes.get(form, stack * each)
        self._section.add(number, f"weight/{weight.name}/{FORMS[form]}", size)
        self._section.commands.append((FORMS[form], weight_data(weight), number))
        return weight_record(weight, form, address(number), each)

    def _matrix_bytes(self, weight: Weight, turns: int) -> int:
        """Bytes of a matrix in panels, of which `turns` parts alternate."""
        _, rows, cols = stacked(weight)
        width, n_bytes = self._panels[weight.type]
        return turns * -(-rows // turns // PANEL_ROWS) * (cols // width) * n_bytes


def panels_of(answer: Mapping[str, tuple[int, int]]) -> Panels:
    """Panel sizes by type name; the executor's answer has GGUF type ids."""
    return {name_of_id(int(type_id)): (cols, n_bytes) for type_id, (cols, n_bytes) in answer.items()}


def weight_data(weight: Weight) -> Json:
    """Description of a weight in a load section."""
    return {
        "name": weight.name,
        "type": _type_data(weight.type),
        "stored": _type_data(weight.stored_type),
        "shape": stacked(weight),
        "parts": [_part_data(part) for part in weight.parts],
        "ops": [(op.name, *op.args) for op in weight.load_ops],
    }


def _type_data(name: str) -> Json:
    row = quant(name)
    return {"id": row.id, "block": row.block, "bytes": row.block_bytes}


def _part_data(part: Part) -> tuple[str, int | str, int]:
    return (part.source, part.data if part.source == INLINE else part.offset, part.n_bytes)
