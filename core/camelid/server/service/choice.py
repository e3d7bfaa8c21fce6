"""The choice of a request's probe between the request and another one."""

from __future__ import annotations

import time

from camelid.engine.request import Request
from camelid.server.service.host import Answer


async def chosen(answer: Answer, request: Request) -> Request | None:
    """The request that a probe chooses after the answer's first token; None to go on, or without a probe."""
    if request.probe is None:
        return None
    began = time.monotonic()
    await answer.begin()
    return await request.probe.redirected(request.after(time.monotonic() - began))
