"""Random features of prompts, as a base model would give them, and a scope that is fitted to some."""

from __future__ import annotations

from typing import Any

import numpy as np

from camelid.learning.trained.scope_head import Fitted, fitted
from camelid.model.features import DEPTHS

WIDTH = 12
rng = np.random.default_rng(27)


def features(n: int, centre: float) -> Any:
    """[n, D * WIDTH] around a centre."""
    return (rng.normal(size=(n, len(DEPTHS) * WIDTH)) + centre).astype(np.float32)


def fit(n_items: int = 2) -> Fitted:
    """A head of some items far from 40 past requests."""
    return fitted(features(n_items, 1.5), features(40, 0.0), features(0, 0.0), np.zeros(40, bool))
