"""Submission of a request, or of the one that its probe chooses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from camelid.engine.request import Request
from camelid.server.service.host import Answer, EngineHost
from camelid.server.service.job import Job


async def submitted(
    host: EngineHost, job: Job, request: Request, prepare: Callable[[Request], Awaitable[None]]
) -> tuple[Answer, Request]:
    """The answer of a request, or of the one that its probe chooses after the first token, and that one.

    `prepare` compiles what the other request needs.
    """
    answer = host.submit(request, job.n, reports=job.reports_progress)
    if request.probe is None:
        return answer, request
    try:
        await answer.begin()
        other = await request.probe.redirected(request)
        if other is None:
            return answer, request
        await prepare(other)
    except BaseException:
        answer.close()
        raise
    answer.close()
    return host.submit(other, job.n), other
