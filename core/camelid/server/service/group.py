"""Several jobs as one request: chains of jobs side by side, within the places that the request took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from camelid.engine.adapters import RequestAdapter
from camelid.engine.request import Request
from camelid.server.service.admission import Place
from camelid.server.service.host import Batch
from camelid.server.service.job import Job
from camelid.server.service.service import Service, Started

MAX_PIECES = 64  # unread pieces of all chains; beyond them the chains wait


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """A job and its engine request."""

    job: Job
    request: Request


@dataclass(frozen=True, slots=True)
class Piece:
    """A batch of one job of a chain."""

    chain: int
    started: Started
    batch: Batch

    @property
    def is_scoring(self) -> bool:
        """True if the job scores the chain's prompt."""
        return self.started.job.prompt_logprobs is not None


Chain = Sequence[CheckedJob]


class HeldPlaces:
    """Owner of places that a request keeps until all its jobs are done."""

    def now(self) -> float:
        """The clock of places."""
        return time.monotonic()

    def leave(self, n: int, seconds: float) -> None:
        """Does nothing: the group frees the places."""


class JobGroup:
    """Chains of jobs. The jobs of a chain run one after the other."""

    def __init__(self, service: Service, chains: Sequence[Chain], place: Place, n_side_by_side: int) -> None:
        self.chains = chains
        self._service, self._place, self._n_side_by_side = service, place, n_side_by_side

    @classmethod
    async def open(cls, service: Service, jobs: Sequence[Sequence[Job]]) -> JobGroup:
        """Takes places for as many chains as can run at once, and checks every job.

        Raises as `Service.start`.
        """
        n_choices = max(job.n for chain in jobs for job in chain)
        service.check_choices(n_choices)
        n_chains = min(len(jobs), max(service.admission.parallel // n_choices, 1))
        place = service.admission.enter(n_chains * n_choices)
        try:
            chains = [[await checked(service, job) for job in chain] for chain in jobs]
        except BaseException:
            place.leave()
            raise
        return cls(service, chains, place, n_chains)

    @property
    def adapter(self) -> RequestAdapter | None:
        """The adapters of its requests, which are those of the first that has some."""
        requests = (each.request for chain in self.chains for each in chain)
        return next((request.adapter for request in requests if request.adapter), None)

    def close(self) -> None:
        """Frees the places."""
        self._place.leave()

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """The batches of all chains; closing the generator cancels the jobs. Raises a job's error."""
        try:
            if len(self.chains) == 1:
                async with aclosing(self._chain(0)) as pieces:
                    async for piece in pieces:
                        yield piece
            else:
                async with aclosing(self._merged()) as pieces:
                    async for piece in pieces:
                        yield piece
        finally:
            self.close()

    async def _chain(self, number: int) -> AsyncGenerator[Piece, None]:
        for checked in self.chains[number]:
            started = self._service.launch(
                checked.job, checked.request, Place(HeldPlaces(), checked.job.n, self._place.entered)
            )
            async with aclosing(started.batches()) as batches:
                async for batch in batches:
                    yield Piece(number, started, batch)

    async def _merged(self) -> AsyncGenerator[Piece, None]:
        """The pieces of all chains, as they come."""
        queue = asyncio.Queue[Piece | Exception | None](MAX_PIECES)
        numbers = iter(range(len(self.chains)))
        workers = [asyncio.create_task(self._work(numbers, queue)) for _ in range(self._n_side_by_side)]
        n_open = len(workers)
        try:
            while n_open:
                piece = await queue.get()
                if isinstance(piece, Exception):
                    raise piece
                if piece is None:
                    n_open -= 1
                else:
                    yield piece
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)

    async def _work(self, numbers: Iterator[int], queue: asyncio.Queue[Piece | Exception | None]) -> None:
        """Runs chain after chain; puts their pieces, and at the end None or an error."""
        end: Exception | None = None
        try:
            for number in numbers:
                async with aclosing(self._chain(number)) as pieces:
                    async for piece in pieces:
                        await queue.put(piece)
        except Exception as error:
            end = error
        await queue.put(end)


async def checked(service: Service, job: Job) -> CheckedJob:
    """A job with its request. Raises RequestError or ContextOverflowError."""
    await asyncio.sleep(0)  # other tasks between short prompts, which this loop tokenizes
    request = await service.request(job)
    service.check(request)
    return CheckedJob(job, request)
