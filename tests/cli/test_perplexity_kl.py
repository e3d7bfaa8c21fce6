"""camelid perplexity --kl: divergence and agreement against float64 formulas spelled out."""

from __future__ import annotations

import json
from math import exp, fsum, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.support.gguf_files import CORPUS, write_tiny_llama

from camelid.api.load import load
from camelid.api.perplexity import Window
from camelid.cli.main import main
from camelid.cli.perplexity_kl import Divergence

CONTEXT = 16
WORDS = ("-c", CONTEXT, "--chunks", 2, "--backend", "reference")


def call(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    """A model and its q4_0 form."""
    write_tiny_llama(tmp_path / "base.gguf", seed=5, type="f32")
    assert call("quantize", tmp_path / "base.gguf", tmp_path / "small.gguf", "q4_0").exit_code == 0
    (tmp_path / "text.txt").write_text(CORPUS)
    return [tmp_path / "base.gguf", tmp_path / "small.gguf"]


def measured(model: Path, base: Path) -> dict[str, Any]:
    done = call("perplexity", model, "-f", model.with_name("text.txt"), *WORDS, "--kl", base, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def distributions(path: Path) -> list[list[float]]:
    """Probabilities of each scored token's place, in float64, one exponential at a time."""
    rows: list[list[float]] = []
    with load(path, backend="reference", context=CONTEXT) as llm:
        ids = [*llm.tokenizer.frame.before, *llm.tokenizer.encode(CORPUS)]
        for at in (0, CONTEXT):
            logits = np.asarray(llm.logits(ids[at : at + CONTEXT])).astype(float)
            for row in logits[CONTEXT // 2 : CONTEXT - 1]:
                total = fsum(exp(x) for x in row.tolist())
                rows.append([exp(x) / total for x in row.tolist()])
    return rows


def test_figures_are_those_of_the_formula(models: list[Path]) -> None:
    base, small = models
    got = measured(small, base)
    pairs = list(zip(distributions(base), distributions(small), strict=True))
    kl = [fsum(p * log(p / q) for p, q in zip(own, other, strict=True)) for own, other in pairs]
    assert got["n_tokens"] == len(kl)
    assert got["kl_mean"] == pytest.approx(fsum(kl) / len(kl), rel=1e-9)
    assert got["kl_max"] == pytest.approx(max(kl), rel=1e-9)
    assert got["kl_median"] == pytest.approx(float(np.median(kl)), rel=1e-9)
    assert got["kl_99"] == pytest.approx(float(np.quantile(kl, 0.99)), rel=1e-9)
    same = [max(range(len(p)), key=p.__getitem__) == max(range(len(q)), key=q.__getitem__) for p, q in pairs]
    assert got["top1"] == sum(same) / len(same)
    plain = json.loads(call("perplexity", small, "-f", small.with_name("text.txt"), *WORDS, "--json").stdout)
    assert got["perplexity"] == pytest.approx(plain["perplexity"], rel=1e-9)
    assert got["perplexity_ratio"] == pytest.approx(got["perplexity"] / got["base_perplexity"], rel=1e-9)
    assert got["kl_mean"] > 1e-4  # the other direction has another value
    other = measured(base, small)
    assert other["kl_mean"] != pytest.approx(got["kl_mean"], rel=1e-6)
    assert other["perplexity_ratio"] == pytest.approx(1 / got["perplexity_ratio"], rel=1e-9)


def test_a_model_does_not_diverge_from_itself(models: list[Path]) -> None:
    got = measured(models[0], models[0])
    assert (got["kl_max"], got["top1"], got["perplexity_ratio"]) == (0.0, 1.0, 1.0)


def test_text_names_the_figures(models: list[Path]) -> None:
    base, small = models
    done = call("perplexity", small, "-f", small.with_name("text.txt"), *WORDS, "--kl", base)
    for said in ("perplexity ratio", "KL divergence in nats: mean", "same top token"):
        assert said in done.stdout


def test_another_vocabulary_is_refused(models: list[Path], tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "other.gguf", seed=5, type="f32", vocab=321)
    done = call("perplexity", models[0], "-f", tmp_path / "text.txt", *WORDS, "--kl", tmp_path / "other.gguf")
    assert done.exit_code == 1 and "the base has other tokens" in done.stderr


def test_a_divergence_by_hand() -> None:
    """Probabilities (1/2, 1/2) to (3/4, 1/4): log(2/3)/2 + log(2)/2."""
    base, model = np.log([[0.5, 0.5]] * 3), np.log([[0.75, 0.25]] * 3)
    divergence = Divergence()
    divergence.add(Window((0, 1, 1), 1), base, model)
    assert list(divergence.kl) == pytest.approx([log(2 / 3) / 2 + log(2) / 2] * 2)
    assert divergence.facts()["top1"] == 1.0  # a tie takes the lowest id
    assert divergence.facts()["perplexity_ratio"] == pytest.approx(2.0)
