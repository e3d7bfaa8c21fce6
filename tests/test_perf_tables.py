"""Inputs of the tables of `tests/perf`: files of random weights, targets, trials. Nothing is timed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.golden.quant_oracle import oracle_decode
from tests.perf.embeddings import MANY, Figures, texts
from tests.perf.rivals import Duel
from tests.perf.rivals_sweep import MOST_BYTES, SHAPES, Trial, shape, trials
from tests.perf.rivals_table import DECODE, RATIO, Target, line
from tests.perf.shapes import FLOATS, TYPES, random_rows, write

import camelid
from camelid.cli.bench_cases import Case
from camelid.cli.bench_predict import Prediction, Yardstick
from camelid.cli.bench_report import Row
from camelid.cli.bench_runs import Run
from camelid.formats.quants import quant


@pytest.mark.parametrize("type_name", TYPES)
def test_random_weights_are_finite_and_of_similar_size(type_name: str) -> None:
    rows = random_rows(type_name, 600, 512, np.random.default_rng(1))
    values = oracle_decode(type_name, rows.reshape(-1, quant(type_name).block_bytes))
    assert np.isfinite(values).all()
    assert 0.005 < values.std() < 20
    assert rows.shape == (600, 512 // quant(type_name).block * quant(type_name).block_bytes)


@pytest.mark.parametrize("type_name", [*FLOATS, "q4_0", "q4_k_m"])
@pytest.mark.parametrize("experts", [0, 4])
def test_files_of_random_weights_run(type_name: str, experts: int, tmp_path: Path) -> None:
    small = shape(256, 256, 4, 2, 64, 300, layers=1, experts=experts, used=min(experts, 2))
    write("small", small, type_name, tmp_path / "x.gguf")
    with camelid.load(tmp_path / "x.gguf", backend="cpu", context=16) as llm:
        assert np.isfinite(np.asarray(llm.logits([1, 2, 299]))).all()
        assert llm.spec.vocab_size == 300
        assert bool(llm.spec.experts) == bool(experts)


def test_sweep_covers_every_type_and_every_shape() -> None:
    wanted = list(trials(4))
    assert len(wanted) == 4 * len(SHAPES) == 80
    assert {trial.type_name for trial in wanted} == {*TYPES}
    assert all(trial.n_bytes <= MOST_BYTES for trial in wanted)
    assert not Trial(shape(576, 1536, 9, 3, 64, 100), "q4_k").fits
    assert not Trial(shape(8192, 8192, 64, 64, 128, 100), "f32").fits


def duel(ours: float, on: float, off: float, share: float) -> Duel:
    """Rates of each side, and the share of the bandwidth that Camelid uses."""

    def run(rate: float) -> list[Run]:
        return [Run(seconds=1 / rate, n_tokens=1, ttft_s=0.0)]

    n_bytes = round(share * 1e9 / ours)
    prediction = Prediction(n_tokens=1, n_bytes=n_bytes, flops=1, read_s=1.0, multiply_s=0.0)
    facts = {"case": Case("tg", 8), "yardstick": Yardstick(1.0, 1.0), "prediction": prediction}
    return Duel(
        rows={name: Row(**facts, runs=run(ours), rival=run(n)) for name, n in (("on", on), ("off", off))}
    )


@pytest.mark.parametrize(
    ("found", "target", "is_met"),
    [
        (duel(30, 20, 10, 0.1), RATIO, True),
        (duel(30, 10, 20.1, 0.1), RATIO, False),  # the faster rival counts
        (duel(30, 25, 10, 0.9), RATIO, False),
        (duel(30, 25, 10, 0.9), DECODE, True),
        (duel(30, 25, 10, 0.84), DECODE, False),
        (duel(30, 20, 10, 0.1), DECODE, True),
    ],
)
def test_targets(found: Duel, target: Target, is_met: bool) -> None:
    assert target.is_met(found) == is_met
    shown = line(Path("x.gguf"), found, target)
    assert shown.endswith("| yes |") == is_met
    assert found.facts()["ratio"] == found.ratio == pytest.approx(30 / max(run.tps for run in rivals(found)))


def rivals(found: Duel) -> list[Run]:
    return [run for row in found.rows.values() for run in row.rival]


@pytest.mark.parametrize(("kind", "least", "most"), [("sentences", 6, 24), ("passages", 20, 140)])
def test_embedded_texts_differ_in_length(kind: str, least: int, most: int) -> None:
    lengths = [len(text.split()) for text in texts(kind)]
    assert len(lengths) == MANY == len(set(texts(kind)))
    assert least <= min(lengths) < max(lengths) <= most
    assert max(lengths) > 2 * min(lengths)


def test_embeddings_row_marks_a_missed_target() -> None:
    seconds = {"camelid": 0.5, "sentence-transformers": 1.0, "llama.cpp": 0.7}
    row = Figures(seconds, {"camelid": 0.99999996}).line("sentences", 64, "f32")
    assert row == "| sentences | 64 | f32 | 128 | 64 | 2.00 | 91 | **1.40** | 1.0000000 |"
