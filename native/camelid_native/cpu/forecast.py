"""Memory forecast of plans on cpu before the backend is opened: weights in their ops' forms, scratch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from camelid.backends.base import Forecast, PoolSize
from camelid.backends.common.results import result_bytes
from camelid.plan.plan import Plan, StateRef
from camelid.plan.weights import Weight
from camelid_native.cpu.api import Library
from camelid_native.cpu.memory import in_lines
from camelid_native.cpu.records import (
    FORM_F32,
    FORM_ROWS,
    TURNS,
    OpRecord,
    Placed,
    PlacedState,
    StateRecord,
    form_of,
    gated_weights,
    op_records,
    panel_type,
    program_record,
    stacked,
    weight_record,
)
from camelid_native.cpu.runner import result_places
from camelid_native.cpu.state_layout import group_of
from camelid_native.cpu.weights import is_mapped


def forecast(
    library: Library, n_threads: int, plans: Mapping[str, Plan], pools: Mapping[str, PoolSize]
) -> Forecast:
    """Bytes of all weights of the plans, and of each plan's scratch and results."""
    return Forecast(
        weights=weight_bytes(library, plans.values()),
        programs={name: program_bytes(library, n_threads, plan, pools) for name, plan in plans.items()},
    )


def weight_bytes(library: Library, plans: Iterable[Plan]) -> int:
    """Bytes of each weight in each form in use: a tied embedding needs rows to look up, panels for logits."""
    ops = ((op, gated) for plan in plans for gated in [gated_weights(plan)] for op in plan.ops)
    forms = {
        (weight.name, form_of(op, role, gated)): weight
        for op, gated in ops
        for role, weight in op.operands
        if isinstance(weight, Weight)
    }
    return sum(in_lines(FORM_BYTES[form](library, weight)) for (_, form), weight in forms.items())


def program_bytes(library: Library, n_threads: int, plan: Plan, pools: Mapping[str, PoolSize]) -> int:
    """Bytes of a plan's scratch and results at full capacity."""
    ops = _records(library, plan, pools)
    record = program_record(plan, ops)
    scratch = library.scratch_bytes(ctypes.addressof(record), n_threads)
    results = result_bytes(plan, plan.key.capacity.outputs)
    return scratch + result_places(results) * results


def _records(library: Library, plan: Plan, pools: Mapping[str, PoolSize]) -> ctypes.Array[OpRecord]:
    """Records of the plan with all sizes filled in and every address 0."""

    def state(ref: StateRef, first: str) -> StateRecord:
        spec, pool = plan.state(ref.group), group_of(pools, ref.group)
        number = plan.group(ref.group)
        return PlacedState(spec, number, 0, pool.units, 0, pool.table_cols).record(ref, first)

    placed = Placed(
        view=lambda _: 0,
        weight=lambda weight, form: weight_record(weight, form, 0),
        state=state,
        kinds=library.kinds,
        words=library.words,
    )
    return op_records(plan, placed)


def _panels(library: Library, weight: Weight, *, turns: int) -> int:
    stack, rows, cols = stacked(weight)
    return stack * turns * library.panel_bytes(panel_type(weight.type), rows // turns, cols)


FORM_BYTES: Mapping[int, Callable[[Library, Weight], int]] = {
    FORM_F32: lambda _, weight: 4 * weight.rows * weight.cols,
    FORM_ROWS: lambda _, weight: 0 if is_mapped(weight) else weight.n_bytes,
    **{form: partial(_panels, turns=turns) for form, turns in TURNS.items()},
}
