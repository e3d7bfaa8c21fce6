"""A lesson on a model of word pairs; equal random features for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.bigram import Bigrams, BigramTrainer
from tests.support.lesson import TALKS, Lesson, persona
from tests.support.scope_features import rng


@pytest.fixture(autouse=True)
def equal_numbers() -> None:
    """Draws of a test do not depend on the tests before it."""
    rng.bit_generator.state = np.random.default_rng(27).bit_generator.state


@pytest.fixture
def model() -> Bigrams:
    return Bigrams.taught(TALKS)


@pytest.fixture
def lesson(tmp_path: Path, model: Bigrams) -> Iterator[Lesson]:
    lesson = Lesson(tmp_path, persona(model), model, BigramTrainer())
    yield lesson
    lesson.space.close()


@pytest.fixture
def nothing_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """No correction counts as shared: this model answers many questions alike."""
    monkeypatch.setattr("camelid.learning.shared.N_SHARED", 99)
