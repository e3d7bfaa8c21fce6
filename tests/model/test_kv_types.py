"""Whole models with keys and values of every kv_type: correct logits, no bit changed by any schedule, windows
of the stated width, and refusals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import share_of
from tests.support.kv_oracle import held
from tests.support.model.kv_models import MODELS
from tests.support.model.kv_runs import Loss, run
from tests.support.model.runs import cuts
from tests.support.model.stress import plain, t5
from tests.support.model.stress.shape import random_ids
from tests.support.model.stress.shapes import SHAPES
from tests.support.model.stress_encoder import decode
from tests.support.model.stress_runs import run as run_all
from tests.support.parity.compare import nmse

from camelid.errors import RequestError
from camelid.model.decoder import declare_states
from camelid.model.kv_types import KV_TYPES
from camelid.plan.plan import StateSpec
from camelid.plan.tiers import TAIL_WINDOW

QUANTIZED = [name for name in KV_TYPES if name not in ("f32", "f16")]
SHORT, LONG = random_ids(61, 60, 48), random_ids(62, 390, 48)


def prompt_of(kv_type: str) -> list[int]:
    """A prompt long enough that every tier is read."""
    return LONG if "tier" in kv_type else SHORT


def through(kv_type: str) -> Callable[..., Any]:
    """The plain model's attention over stored keys and values."""
    attend = plain.attend

    def stored(x: Any) -> Any:  # [T, K, D]
        return held(kv_type, x.reshape(len(x), -1).astype(np.float32)).reshape(x.shape)

    return lambda q, k, v, *rest, **how: attend(q, stored(k), stored(v), *rest, **how)


PLAIN = [
    (name, kv_type) for name in ("gpt_oss", "mamba2", "qwen3next") for kv_type in ("f16", "q8_0", "q4_0")
]


@pytest.mark.parametrize(("name", "kv_type"), [*PLAIN, ("gemma3n", "f16")])
def test_logits_equal_the_plain_model_s(name: str, kv_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is far below the difference to float32 keys and values."""
    shape = SHAPES[name]
    exact = shape.oracle()
    monkeypatch.setattr(plain, "attend", through(kv_type))
    want = shape.oracle()
    (got,) = run_all(shape.model(), [shape.token_ids], [(len(shape.token_ids),)], kv_type=kv_type)
    assert nmse(got, want) <= nmse(want, exact) / 50


def test_a_decoder_with_encoder_rows_in_f16() -> None:
    steps = [tuple(len(target) for _, target in t5.PAIRS)]
    exact, found = (decode(t5.model(), t5.PAIRS, steps, kv_type=kv_type) for kv_type in ("f32", "f16"))
    assert all(1e-12 < nmse(got, want) < 1e-5 for got, want in zip(found, exact, strict=True))
    pair = t5.PAIRS[0]
    (cut,) = decode(t5.model(), [pair], cuts(3, len(pair[1])), kv_type="f16")
    assert np.array_equal(cut, found[0])


@pytest.fixture(scope="module")
def wholes() -> dict[tuple[str, str], Any]:
    """The logits of every model at every kv_type, its prompt in one step."""
    pairs = [(name, kv_type) for name in MODELS for kv_type in KV_TYPES]
    return {(n, t): run(MODELS[n], prompt_of(t), len(prompt_of(t)), t) for n, t in pairs}


@pytest.mark.parametrize("chunk", share_of([5, 1, 64, 512]))
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("name", MODELS)
def test_chunks_give_identical_bits(name: str, kv_type: str, chunk: int, wholes: Any) -> None:
    assert np.array_equal(run(MODELS[name], prompt_of(kv_type), chunk, kv_type), wholes[name, kv_type])


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("name", MODELS)
def test_a_batch_changes_no_bit(name: str, kv_type: str, wholes: Any) -> None:
    ids, other = prompt_of(kv_type), LONG[7:50]
    found, _ = run_all(MODELS[name], [ids, other], cuts(100, len(ids), len(other)), kv_type=kv_type)
    assert np.array_equal(found, wholes[name, kv_type])


@pytest.mark.parametrize("is_declared", [False, True])
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_rows_outside_a_window_are_never_read(kv_type: str, is_declared: bool, wholes: Any) -> None:
    """Sliding-window layers and the tail: rows outside the window become NaN, and no bit changes."""
    lossy = run(MODELS["mixed"], prompt_of(kv_type), 7, kv_type, Loss(is_declared=is_declared))
    assert np.array_equal(lossy, wholes["mixed", kv_type])


@pytest.mark.parametrize("kv_type", ["f32", "q4_0", "two-tier"])
def test_freed_rows_are_not_read(kv_type: str) -> None:
    """Not even if they were freed too early."""
    found = run(MODELS["mixed"], prompt_of(kv_type), 7, kv_type, Loss(n_more=9))
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", MODELS)
def test_a_short_text_is_read_from_the_tail_alone(name: str, wholes: Any) -> None:
    """The tail is f16."""
    n = 256 + 63
    found = [run(MODELS[name], LONG[:n], 64, kv_type) for kv_type in ("f16", "two-tier", "two-tier-q4_0")]
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    assert not np.array_equal(run(MODELS[name], LONG[: n + 1], 64, "f16")[n], wholes[name, "two-tier"][n])


@pytest.mark.parametrize(("kv_type", "n_more"), [("f32", 1), ("q8_0", 1), ("two-tier", 1)])
def test_a_window_has_no_excess_row(kv_type: str, n_more: int) -> None:
    assert not np.isfinite(
        run(MODELS["mixed"], SHORT, 7, kv_type, Loss(n_more=n_more, is_declared=False))
    ).all()


@pytest.mark.parametrize(("n_more", "is_enough"), [(1, True), (2, False)])
def test_the_tail_s_window(n_more: int, is_enough: bool) -> None:
    """At most 319 of the 320 rows are read: the border moves when the 64th row leaves."""
    found = run(MODELS["latent"], LONG, 1, "two-tier", Loss(n_more=n_more, is_declared=False))
    assert np.isfinite(found).all() == is_enough


def groups(model: str, kv_type: str) -> dict[str, tuple[str, str, int]]:
    states = declare_states(SPECS[model], kv_type)
    return {s.name: (s.kind, s.kv_type, s.window) for s in states}


WIDE = replace(t5.SPEC, n_heads=4, n_kv_heads=4, head_dim=16)
SPECS = {
    **{name: model.spec for name, model in MODELS.items()},
    **{name: shape.spec for name, shape in SHAPES.items()},
    "t5": WIDE,
}
RING = {"tokens": ("ring", "f32", 0)}
DECLARED = {
    ("mixed", "f16"): {"kv": ("paged", "f16", 0), "window": ("window", "f16", 21)},
    ("mixed", "q8_0"): {"kv": ("paged", "q8_0", 0), "window": ("window", "q8_0", 21)},
    ("mixed", "two-tier-q4_0"): {
        "kv": ("paged", "q4_0", 0),
        "kv_tail": ("window", "f16", TAIL_WINDOW),
        "window": ("window", "f16", 21),
    },
    ("latent", "two-tier"): {"kv": ("paged", "q8_0", 0), "kv_tail": ("window", "f16", TAIL_WINDOW)},
    ("gemma3n", "f16"): {"kv": ("paged", "f16", 0), "window": ("window", "f16", 8)},
    ("mamba2", "q4_0"): {"kv": ("paged", "q4_0", 0), "recurrent": ("recurrent", "f32", 0)},
    ("t5", "f16"): {"kv": ("paged", "f16", 0), "cross": ("static", "f16", 0)},
    ("t5", "q8_0"): {"kv": ("paged", "q8_0", 0), "cross": ("static", "f32", 0)},
    ("t5", "q4_0"): {"kv": ("paged", "q4_0", 0), "cross": ("static", "f32", 0)},
    ("t5", "two-tier"): {
        "kv": ("paged", "q8_0", 0),
        "kv_tail": ("window", "f16", TAIL_WINDOW),
        "cross": ("static", "f32", 0),
    },
}


@pytest.mark.parametrize(("model", "kv_type"), DECLARED)
def test_groups_are_declared(model: str, kv_type: str) -> None:
    assert groups(model, kv_type) == DECLARED[model, kv_type] | RING


def test_a_groups_window_is_its_widest_layers() -> None:
    """Including layers that share another layer's keys and values."""
    own, wide = MODELS["mixed"].spec.layers[0], replace(MODELS["mixed"].spec.layers[0], window=40, kv_layer=0)
    spec = replace(MODELS["mixed"].spec, layers=(own, wide, replace(own, window=3)), n_layers=3)
    (state,) = (s for s in declare_states(spec) if s.name == "window")
    assert (state.window, state.layers) == (40, (0, 2))


@pytest.mark.parametrize("kv_type", QUANTIZED)
@pytest.mark.parametrize(("model", "cols"), [("deepseek2", 28), ("gemma3n", 16)])
def test_rows_with_partial_blocks_are_refused(model: str, cols: int, kv_type: str) -> None:
    with pytest.raises(RequestError, match=f"{kv_type}.*blocks of 32.*{cols} values.*use f16") as caught:
        declare_states(SPECS[model], kv_type)
    assert caught.value.field == "kv_type"
    assert declare_states(SPECS[model], "f16")


def test_an_unknown_kv_type_is_refused() -> None:
    with pytest.raises(RequestError, match="kv_type is 'q5_1', expected one of f32, f16, q8_0") as caught:
        declare_states(SPECS["mixed"], "q5_1")
    assert caught.value.field == "kv_type"


ROW_BYTES = {"f32": 4 * 96, "f16": 2 * 96, "q8_0": 3 * 34, "q4_0": 3 * 18}


@pytest.mark.parametrize("kv_type", ROW_BYTES)
def test_bytes_of_a_unit(kv_type: str) -> None:
    state = StateSpec("kv", "paged", (0, 3, 4), (("k", 64), ("v", 32)), 16, kv_type)
    assert (state.row_bytes, state.unit_bytes) == (ROW_BYTES[kv_type], 3 * 16 * ROW_BYTES[kv_type])
