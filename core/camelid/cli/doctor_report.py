"""The output of `camelid doctor`: facts in two columns, and tables of kernels and gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import isfinite

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from camelid.backends.base import Capabilities
from camelid.backends.proof.availability import STATE_OPS, Matrix
from camelid.backends.proof.gate import FAILED, PASSED, REFUSED
from camelid.backends.proof.rows_matrix import OPS as TYPED_OPS
from camelid.cli.doctor_examine import ORACLE, BackendReport, OpVerdict
from camelid.cli.doctor_machine import Machine
from camelid.cli.format import human, printable
from camelid.plan.op_rows_fused import FUSED

LABEL = 13  # width of a fact's name, in columns
SHOWN = 3  # failures printed per op without -v
STYLES = {FAILED: "bold red", PASSED: "green", "no": "dim", "yes": "green"}
BUFFER_LIMITS = {"maxBufferSize": "a buffer", "maxStorageBufferBindingSize": "a binding"}
PROMISES = {
    "A": "answers do not depend on other requests, bit for bit",
    "A+B": "answers do not depend on other requests or on chunking, bit for bit",
}


def show(what: RenderableType) -> None:
    """Prints without trailing spaces; rich markup is off: driver names may contain brackets."""
    console = Console(markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        console.print(what)
    for text in captured.get().splitlines():
        click.echo(text.rstrip())


def machine_lines(machine: Machine) -> RenderableType:
    """The table of machine facts."""
    return _facts(dict(_machine_facts(machine)))


def _machine_facts(m: Machine) -> Iterator[tuple[str, str]]:
    yield "processor", m.processor
    sets = None if m.instructions is None else " ".join(m.instructions) or "none beyond the baseline"
    yield "instructions", sets or "not reported by this system"
    quota = "" if m.quota is None else f", quota {m.quota:g}"
    yield "threads", f"{m.affinity} of {m.processors} processors{quota}"
    yield "memory", _memory(m)
    yield "system", f"{m.system}, {m.python}"
    missing = [name for name, version in m.packages.items() if version is None]
    yield "packages", " ".join(f"{name}=={version}" for name, version in m.packages.items() if version)
    if missing:
        yield "missing", f"{', '.join(missing)}: pip install {' '.join(missing)}"
    yield "extras", "\n".join(f"{name}: {line or 'installed'}" for name, line in m.extras.items())
    yield "caches", "\n".join(f"{folder}: {human(free)} free" for folder, free in m.disks.items())


def _memory(m: Machine) -> str:
    if m.memory_bytes is None:
        return "not reported by this system"
    free = "" if m.available_bytes is None else f", {human(m.available_bytes)} available"
    limit = "" if m.memory_limit_bytes is None else f", limit {human(m.memory_limit_bytes)}"
    return f"{human(m.memory_bytes)}{free}{limit}"


def backend_lines(found: BackendReport, *, every: bool = False) -> RenderableType:
    """A backend's facts, kernels and gate; with `every` all failures and the reasons of refused cases."""
    if found.can is None:
        return Group("", _facts({"backend": found.name, "unavailable": found.reason}))
    return Group(*(part for text in _parts(found, every) for part in ("", text)))


def _parts(found: BackendReport, every: bool) -> Iterator[RenderableType]:
    matrix = found.matrix
    yield _facts(dict(_backend_facts(found)))
    yield _matrix_table("weights", matrix, TYPED_OPS, list(matrix["linear"]))
    yield _matrix_table("KV cache", matrix, STATE_OPS, list(matrix["attention"]))
    yield _facts(_other_ops(matrix))
    if found.ops:
        refusals = _refusals(found.ops) if every else ()
        yield Group(_gate_table(found.ops), *_failures(found.ops, every), *refusals)
    yield _verdict(found)


def _backend_facts(found: BackendReport) -> Iterator[tuple[str, str]]:
    can = found.can
    assert can is not None
    yield "backend", found.name
    yield "device", can.device + (" (software: never selected by auto)" if can.is_software else "")
    yield "promise", f"{can.promise}: {PROMISES[can.promise]}" if can.promise in PROMISES else can.promise
    limits = [f"{what} of {human(can.limits[n])}" for n, what in BUFFER_LIMITS.items() if n in can.limits]
    steps = f"{can.max_in_flight} step{'s' if can.max_in_flight > 1 else ''} in flight"
    yield "limits", ", ".join([*limits, steps])
    if can.activations != "f32":
        yield "activations", f"{_rounding(can)}; in the gate the reference rounds them too"


def _rounding(can: Capabilities) -> str:
    types = can.weight_types - can.exact_types
    to_int8 = f"rounded to int8 for weights of {', '.join(sorted(types - {'bf16'}))}"
    return f"{to_int8}, to bf16 for bf16" if "bf16" in types else to_int8


def _matrix_table(what: str, matrix: Matrix, ops: Sequence[str], columns: Sequence[str]) -> Table:
    """A table of kernels by op and type; types with the same kernels share a row."""
    table = _table(what, *(op.replace("_", "_\n", 1) for op in ops))

    def marks(column: str) -> tuple[str, ...]:
        return tuple("no" if reason else "" if reason is None else "yes" for reason in reasons(column))

    def reasons(column: str) -> Iterator[str | None]:
        return (matrix[op].get(column) for op in ops)

    ordered = sorted(columns, key=lambda column: marks(column).count("no"))
    for row, alike in groupby(ordered, marks):
        table.add_row(" ".join(alike), *map(_word, row))
    return table


def _other_ops(matrix: Matrix) -> dict[str, str]:
    """The ops without types, listed by whether a kernel exists; a backend needs no kernels of fused ops."""
    reasons = {op: next(iter(by.values())) for op, by in matrix.items() if op not in (*TYPED_OPS, *STATE_OPS)}
    runs = [op for op, reason in reasons.items() if not reason]
    refused = [op for op, reason in reasons.items() if reason and op not in FUSED]
    return {"other ops": " ".join(runs)} | ({"no kernel": " ".join(refused)} if refused else {})


def _gate_table(ops: Iterable[OpVerdict]) -> Table:
    table = _table("gate", "cases", "refused", "worst NMSE", "limit", "verdict")
    for column in table.columns[1:5]:
        column.justify = "right"
    for op in ops:
        nmse = op.worst.nmse
        figure = (f"{nmse:.1e}" if nmse else "0") if isfinite(nmse) else "wrong"
        figures = ("", "") if op.status == REFUSED else (figure, f"{op.worst.allowed:.0e}")
        counts = (str(len(op.outcomes)), str(op.count(REFUSED) or ""))
        table.add_row(op.op, *counts, *figures, _word(op.status))
    return table


def _failures(ops: Iterable[OpVerdict], every: bool) -> Iterator[RenderableType]:
    for op in ops:
        shown = op.failures if every else op.failures[:SHOWN]
        for outcome in shown:
            yield Text(printable(str(outcome)), style=STYLES[FAILED])
        if len(op.failures) > len(shown):
            more = f"{op.op}: {len(op.failures) - len(shown)} more, shown by -v"
            yield Text(more, style=STYLES[FAILED])


def _refusals(ops: Iterable[OpVerdict]) -> Iterator[RenderableType]:
    reasons = Counter(o.reason for op in ops for o in op.outcomes if o.status == REFUSED)
    for reason, n in reasons.items():
        yield Text(printable(f"refused {n}: {reason}"))


def _verdict(found: BackendReport) -> Text:
    if found.name == ORACLE:
        return Text("the reference: the gate compares the other backends with it")
    if not found.ops:
        return Text("no cases")
    counts = {status: sum(op.count(status) for op in found.ops) for status in (PASSED, FAILED, REFUSED)}
    status = FAILED if counts[FAILED] else PASSED
    text = ", ".join(f"{n} {name}" for name, n in counts.items())
    return Text(f"{found.name} {status} its gate: {text}, in {found.seconds:.0f} s", style=STYLES[status])


def _word(word: str) -> Text:
    return Text(word, style=STYLES.get(word, ""))


def _facts(facts: Mapping[str, str]) -> Table:
    """A table of names and texts; long texts wrap within their column."""
    table = Table.grid(padding=(0, 1))
    table.add_column(width=LABEL)
    table.add_column(overflow="fold")
    for name, text in facts.items():
        table.add_row(name, "\n".join(printable(line) for line in text.splitlines()))
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, no_wrap=True)
    return table
