from __future__ import annotations

from collections.abc import Iterator

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
