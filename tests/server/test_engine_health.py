"""The engine's health, as supervisors ask for it."""

from __future__ import annotations

import pytest
from tests.support.served_here import served_here

from camelid.errors import DeviceLostError

CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}


@pytest.mark.faults
def test_a_lost_device_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with served_here() as served:
        host = served.service.host
        host.check()

        async def step() -> bool:
            raise DeviceLostError("gone", backend="cpu", reason="test")

        monkeypatch.setattr(served.engine, "step", step)
        assert served.http.post("/v1/chat/completions", json=CHAT).status_code in (500, 503)
        with pytest.raises(DeviceLostError, match="gone"):
            host.check()
