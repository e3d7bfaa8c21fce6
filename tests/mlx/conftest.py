from __future__ import annotations

from importlib.util import find_spec

import pytest

from camelid_native.mlx.library import has_mlx


@pytest.fixture(autouse=True, scope="session")
def mlx() -> None:
    """Skips the tests on a system without MLX; elsewhere `pip install 'camelid[mlx]'` is required."""
    if not has_mlx():
        pytest.skip("not on this platform: MLX runs on Apple silicon and on Linux")
    if find_spec("mlx") is None:
        pytest.skip("no MLX: pip install 'camelid[mlx]'")


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLX_DISABLE_COMPILE", "1")
