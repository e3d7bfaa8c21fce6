"""The engine's health, as supervisors ask for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.served_here import served_here, until

from camelid.errors import DeviceLostError
from camelid.server.http.errors import ApiError
from camelid.server.service.host import Answer, Batch, Driver

WATCH = "camelid.server.service.watch.check"  # loads a failed model again
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


@pytest.mark.faults
def test_a_request_that_meets_the_engines_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It passed the check of the engine's health before the end, and reaches the engine's thread after it."""

    async def fault(driver: Driver) -> None:
        raise RuntimeError("the driver fails")

    with served_here() as served:
        host, request = served.service.host, served.service.builder.request("Hi", {})
        monkeypatch.setattr(Driver, "_step", fault)
        monkeypatch.setattr(WATCH, lambda models, entry: None)
        refused = served.http.post("/v1/chat/completions", json=CHAT)
        assert refused.status_code >= 500
        until(lambda: host.failure is not None)
        answer = Answer(host, 1)

        async def first() -> Batch:
            return await anext(answer)

        waiting: Any = asyncio.run_coroutine_threadsafe(first(), host._loop)
        host.post(lambda driver: driver.submit(answer, request, 1))
        error = waiting.result(20).error
        assert isinstance(error, ApiError)
        assert (error.status, error.code) == (503, "engine_failed")
