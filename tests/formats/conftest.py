from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.hub_server import Hub, serve_hub

CONSTANTS = "huggingface_hub.constants"
TEMPLATE = "{repo_id}/resolve/{revision}/{filename}"


def ask(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Points HF_ENDPOINT at this address before huggingface_hub is imported."""
    monkeypatch.setattr(f"{CONSTANTS}.ENDPOINT", url)
    monkeypatch.setattr(f"{CONSTANTS}.HUGGINGFACE_CO_URL_TEMPLATE", f"{url}/{TEMPLATE}")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serve_hub() as served:
        ask(monkeypatch, served.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr(f"{CONSTANTS}.HF_TOKEN_PATH", "/there/is/no/token")
        monkeypatch.setattr(f"{CONSTANTS}.DOWNLOAD_CHUNK_SIZE", 1 << 16)
        yield served


@pytest.fixture
def default_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of fetches that name none."""
    cache = tmp_path / "cache"
    monkeypatch.setattr(f"{CONSTANTS}.HF_HUB_CACHE", str(cache))
    return cache
