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
        reply = served.http.post("/v1/chat/completions", json=CHAT)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "device_lost")
        assert int(reply.headers["retry-after"]) >= 1
        with pytest.raises(DeviceLostError, match="gone"):
            host.check()
