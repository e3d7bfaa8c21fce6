"""Inputs of cases: seeded numbers, weights as stored in files, and cases from rows of facts."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from camelid.backends.common.codecs import CODECS, decode, encode
from camelid.backends.common.op_runner import F32, OpCase, Quantized
from camelid.formats.quants import quant
from camelid.plan.oprow import OpRow
from camelid.plan.ops import OPS

KEPT, DRAWS = 256, 8  # random blocks kept per type, and blocks drawn for each kept block
PLAIN = {"f64": "<f8", "i8": "<i1", "i16": "<i2", "i32": "<i4", "i64": "<i8"}  # neither blocks nor encoder
# Columns of a row. Longer rows have small integers, so that their sums stay small: exp(-400) of a gate has no
# digits beside the rounding of 400.
SHORT = 256
FIELDS = frozenset(f.name for f in fields(OpCase))
DRAWN_FIELDS = frozenset({"keys", "values", "slots"})
CaseFact = F32 | tuple[int, ...]  # an array, or the shape of a random array


@dataclass(frozen=True, slots=True)
class GateCase:
    """One case of the gate. `op` is the tested op, `weight_type` the type of its matrix ("" without)."""

    op: str
    case: OpCase
    weight_type: str = ""

    def __str__(self) -> str:
        shapes = " ".join(f"{role}[{'x'.join(map(str, a.shape))}]" for role, a in self.case.views.items())
        kv_type = self.case.kv_type if self.case.kv_type != "f32" else ""
        dtypes = " ".join(sorted({*self.case.dtypes.values()} - {"f32"}))
        outputs = "of outputs" if self.case.of_outputs else ""
        return " ".join(filter(None, (self.op, self.weight_type, kv_type, dtypes, shapes, outputs)))


@dataclass(frozen=True, slots=True)
class CaseRow:
    """A case as facts, named by roles and attributes of the op and by fields of `OpCase`.

    Views, weights, `keys`, `values` and `slots` are arrays, or shapes of random arrays; a weight's shape may
    start with its type. `of` is the op that is run if it is not `op`.
    """

    op: str
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    of: str = ""

    def made(self, weight_type: str = "") -> GateCase:
        """Makes the case with its numbers, which are the same at each call."""
        return GateCase(self.op, _made(OPS[self.of or self.op], self.facts), weight_type)


def row(op: str, of: str = "", /, **facts: Any) -> CaseRow:
    """Makes a row of a table of cases."""
    return CaseRow(op, facts, of)


def with_outputs(rows: Iterable[CaseRow]) -> Iterator[CaseRow]:
    """Yields all rows.

    The first row with several view rows of each row-wise op is repeated with `of_outputs`.
    """
    seen: set[str] = set()
    for one in rows:
        yield one
        if one.op not in seen and OPS[one.of or one.op].row_wise and _has_several(one):
            seen.add(one.op)
            yield replace(one, facts={**one.facts, "of_outputs": True})


def in_dtype(case: OpCase, dtype: str) -> OpCase:
    """The case with its views stored in the dtype, except the op's exact views."""
    exact = OPS[case.op].exact
    return replace(case, dtypes={role: dtype for role in case.views if role not in exact})


def has_dtypes(one: CaseRow) -> bool:
    """True if the row has a view that is not exact, so that it may have any dtype."""
    op = OPS[one.of or one.op]
    return any(op.kind(role) == "View" and role not in op.exact for role in one.facts.keys() & {*op.roles})


def _has_several(one: CaseRow) -> bool:
    """True if the first view of the row has more than one row."""
    view: CaseFact = one.facts[OPS[one.of or one.op].roles[0]]
    return (view if isinstance(view, tuple) else view.shape)[0] > 1


def _made(op: OpRow, facts: Mapping[str, Any]) -> OpCase:
    names = {role.rstrip("?") for role in (*op.writes, *op.updates, *op.reads)}
    weights = {role.rstrip("?") for role in op.weights}
    return OpCase(
        op=op.name,
        views={r: _view(op, r, facts[r]) for r in op.roles if r in names & facts.keys()},
        weights={r: _weight(op, r, facts[r]) for r in op.roles if r in weights & facts.keys()},
        attrs={name: facts[name] for name in op.attr_names if name in facts},
        **{name: _field(op, name, facts[name]) for name in facts.keys() & FIELDS},
    )


def _view(op: OpRow, role: str, fact: CaseFact) -> F32:
    if role not in op.writes:
        return _drawn(op, role, fact)
    return np.zeros(fact, np.float32) if isinstance(fact, tuple) else np.zeros_like(fact)


def _field(op: OpRow, name: str, fact: Any) -> Any:
    return _drawn(op, name, fact) if name in DRAWN_FIELDS else fact


def _weight(op: OpRow, role: str, fact: Any) -> Quantized:
    match fact:
        case Quantized():
            return fact
        case (str(weight_type), *shape):
            return matrix(weight_type, *shape)
        case _:
            values = _drawn(op, role, fact)
            return Quantized("f32", values.shape, values.tobytes())


def _drawn(op: OpRow, role: str, fact: CaseFact) -> F32:
    """The array of a fact, or a random array of its shape."""
    return normal(f"{op.name}.{role}", *fact) if isinstance(fact, tuple) else fact


def normal(name: str, *shape: int, scale: float = 1.0) -> F32:
    """Normally distributed numbers, seeded by the name."""
    return (_random(name).standard_normal(shape) * scale).astype(np.float32)


def matrix(weight_type: str, *shape: int) -> Quantized:
    """A random weight of a type. For a type without an encoder it consists of random blocks of bytes."""
    name, n = f"{weight_type} {shape}", int(np.prod(shape))
    if weight_type in PLAIN:
        raw = normal(name, n, scale=9.0 if shape[-1] <= SHORT else 0.5).astype(PLAIN[weight_type])
    elif CODECS[weight_type].encodes:
        raw = encode(weight_type, normal(name, *shape, scale=shape[-1] ** -0.5))
    else:
        raw = _random(name).choice(_blocks(weight_type), n // quant(weight_type).block)
    return Quantized(weight_type, shape, raw.tobytes())


@cache
def _blocks(weight_type: str) -> npt.NDArray[np.uint8]:
    """Random blocks of a type (any bytes are a block), those with the largest value nearest to 1."""
    form = quant(weight_type)
    raw = _random(weight_type).integers(0, 256, (DRAWS * KEPT, form.block_bytes), np.uint8)
    values = decode(weight_type, raw, len(raw) * form.block).reshape(-1, form.block)
    distance = np.abs(np.log2(np.abs(values).max(axis=1)))  # argsort puts NaN last
    return raw[np.argsort(distance)[:KEPT]]


def _random(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))
