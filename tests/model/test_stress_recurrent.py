"""Shapes with recurrent state: errors of their kernels would show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.model.runs import cuts
from tests.support.model.stress import qwen3next
from tests.support.model.stress.shape import Shape
from tests.support.model.stress.shapes import SHAPES
from tests.support.model.stress_runs import run
from tests.support.parity.compare import nmse

from camelid.backends.reference import backend, recurrent
from camelid.backends.reference.store import WeightStore
from camelid.plan.plan import Op
from camelid.plan.weights import Part, Weight, concat_rows, cut_rows


@pytest.fixture(scope="module", params=["mamba2", "qwen3next"])
def known(request: pytest.FixtureRequest) -> tuple[Shape, Any]:
    shape = SHAPES[request.param]
    return shape, shape.oracle()


def test_the_group_of_a_head_changes_the_logits(
    known: tuple[Shape, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads assigned to groups, or to key heads, by turns instead of by blocks."""
    shape, want = known

    def in_turn(x: Any, n: int, n_heads: int) -> Any:
        return np.tile(x.reshape(len(x), n, -1), (1, n_heads // n, 1))

    monkeypatch.setattr(recurrent, "_spread", in_turn)
    assert nmse(shape.logits(), want) > 1e-5


@pytest.mark.parametrize("tensor", ["conv", "scan"])
def test_state_between_chunks_changes_the_logits(
    tensor: str, known: tuple[Shape, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, want = known

    def forgetful(op: Op, f: Any) -> None:
        for key, pool in f.state.pools.items():
            pool[...] = 0.0 if key[2] == tensor else pool
        recurrent.op_conv1d(op, f)

    monkeypatch.setitem(backend.KERNELS, "conv1d", forgetful)
    (got,) = run(shape.model(), [shape.token_ids], cuts(9, len(shape.token_ids)))
    assert nmse(got, want) > 1e-5


def test_interleaved_rows_of_a_file_are_byte_ranges(tmp_path: Path) -> None:
    """A file needs no copy for `qwen3next.apart`: each head's rows are a byte range."""
    n_heads, dim = qwen3next.H, qwen3next.D
    published = qwen3next.PUBLISHED["blk.3.q_and_gate"]
    path = tmp_path / "model.bin"
    path.write_bytes(b"head" + published.tobytes())
    whole = Weight(name="q", type="f32", shape=published.shape, parts=(Part("model", 4, published.nbytes),))
    for offset, name in ((0, "attn_q"), (dim, "attn_gate")):
        weight = concat_rows(
            name, *(cut_rows(whole, name, 2 * dim * n + offset, dim) for n in range(n_heads))
        )
        store = WeightStore()
        store.add([weight], {"model": str(path)})
        assert np.array_equal(store.matrix(weight), qwen3next.WEIGHTS[f"blk.3.{name}"])
