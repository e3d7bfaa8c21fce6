"""The predicted cost of a step counts the keys that attention reads, with and without a window."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.model.kv_models import MODELS

from camelid.model.decoder import declare_states, lower
from camelid.plan.cost import predict_step
from camelid.plan.plan import Plan
from camelid.plan.step import Capacity, ProgramKey

WINDOW = 8


def plan_of(window: int) -> Plan:
    """The decode plan of a model of one layer."""
    model = MODELS["mixed"]
    layer = next(layer for layer in model.spec.layers if bool(layer.window) == bool(window))
    spec = replace(model.spec, layers=(replace(layer, window=window),), n_layers=1)
    capacity = Capacity(rows=1, sequences=1, outputs=1, updates=1)
    return lower(
        replace(model, spec=spec), ProgramKey(entry="decode", capacity=capacity), declare_states(spec)
    )


@pytest.mark.parametrize(("window", "counted"), [(0, 40), (WINDOW, WINDOW)])
def test_keys_are_read_up_to_the_window(window: int, counted: int) -> None:
    """A key costs its row of the KV cache; a model of windows alone has no other group."""
    plan = plan_of(window)
    state = plan.states[0]
    none, some = (predict_step(plan, held=held) for held in (0, 39))
    assert [s.kind for s in plan.states if s.name != "tokens"] == ["window" if window else "paged"]
    assert some.n_bytes - none.n_bytes == (counted - 1) * state.row_bytes
    assert some.flops > none.flops
