"""The model of the package on the rig: its logits, its bits in any steps, the bytes that a step touches."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from tests.metal.on_rig import METAL, MetalOnRig
from tests.metal.rig import Rig
from tests.support.model.file_runs import Loaded, load_gguf, reference_logits, run
from tests.support.model.runs import Logits, make_plan, make_state, start
from tests.support.parity.compare import TOLERANCE, nmse

from camelid.plan.cost import SequenceShare, step_counts, step_of
from camelid.plan.fuse import fuse
from camelid.plan.ops import op_bytes
from camelid.plan.plan import Plan
from camelid_native.mlx import ops_metal

pytestmark = pytest.mark.parity

FUSED_OPS = ops_metal.FUSED
PROMPTS = [[1, 50, 7, 300, 4, 99, 12, 8, 1000, 5, 61], [1, 2, 900]]
HELD = 90  # rows in the KV cache before the counted step
MOST = 1.1  # of the bytes that the plan predicts


@pytest.fixture(scope="module")
def cria(checkout: Path) -> Loaded:
    return load_gguf(checkout / "core/camelid/data/cria.gguf")


def logits(cria: Loaded, chunk: int) -> Logits:
    return asyncio.run(run(MetalOnRig(), cria, PROMPTS, chunk, fused=FUSED_OPS))


@pytest.fixture(scope="module")
def together(cria: Loaded) -> Logits:
    """Logits of both prompts in one step of tiles."""
    return logits(cria, 64)


def test_logits_equal_the_reference(cria: Loaded, together: Logits) -> None:
    for ours, right in zip(together, reference_logits(cria, PROMPTS), strict=True):
        assert nmse(ours, right) <= TOLERANCE


@pytest.mark.exhaustive  # ordinary runs have the bits of rows op by op
def test_steps_of_few_rows_change_no_bit(cria: Loaded, together: Logits) -> None:
    for ours, other in zip(together, logits(cria, 3), strict=True):
        assert np.array_equal(ours, other)


def test_a_decode_step_touches_what_the_plan_predicts(cria: Loaded) -> None:
    rig = Rig(is_traced=True)
    plan = fuse(make_plan(cria.model, 1, context=HELD + 1), FUSED_OPS)
    asyncio.run(_decode(MetalOnRig(rig), cria, plan))
    counts = step_counts(plan, step_of(plan, [SequenceShare(HELD, 1)]))
    predicted = sum(op_bytes(op, plan, counts) for op in plan.ops if op.name in METAL)
    touched = sum(rig.traffic.values())
    print(f"bytes touched {touched:,}, predicted {predicted:,}: {touched / predicted:.3f}", rig.traffic)
    assert predicted * 0.9 < touched <= MOST * predicted


async def _decode(backend: MetalOnRig, cria: Loaded, plan: Plan) -> None:
    """One step of one row after HELD rows, whose keys and values are zeros."""
    state = make_state(plan.states, context=HELD + 1, n_sequences=1)
    started = await start(backend, [plan], state, sources=cria.sources)
    stream = started.open_stream([1] * (HELD + 1))
    stream.held = HELD
    await started.feed([stream], [(1,)])
    await backend.close()
