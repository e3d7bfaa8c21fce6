"""Grammars compiled and masks computed in worker processes, so that no other request's stream waits.

Two processes: a schema may take seconds to compile, and a mask for another request must not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from camelid.requests.grammar_process import LIMIT_S, GrammarProcess, Job
from camelid.text.grammar.automaton import Automaton
from camelid.text.grammar.configs import Config
from camelid.text.grammar.matcher import Matcher
from camelid.text.grammar.network import Network, Tables
from camelid.text.grammar.trie import TokenTable
from camelid.text.grammar.worker import vocabulary_parts
from camelid.text.idle_process import packed_ids


class GrammarWorkers:
    """The worker processes of one model."""

    def __init__(
        self, table: TokenTable, token_id: Callable[[str], int | None], *, limit_s: float = LIMIT_S
    ) -> None:
        self.compiling, self.masking = GrammarProcess(limit_s=limit_s), GrammarProcess(limit_s=limit_s)
        self._table = table
        self._token_id = token_id
        self._compiled: dict[tuple[str, str], Job] = {}  # not done
        self._masks: dict[Config, Job] = {}  # not done

    async def warm(self) -> None:
        """Starts both processes, and builds the tries of the vocabulary, which the first mask needs."""
        tries = self.masking.start(b"warm", answers=self._answers())
        await self.compile("choice", '["a"]')
        await tries.wait()

    def close(self) -> None:
        """Ends the processes."""
        self.compiling.close()
        self.masking.close()

    async def compile(self, name: str, text: str) -> Automaton:
        """The grammar of an option whose value is given as JSON text.

        Requests for the same grammar wait for one job, which ends if all of them are cancelled. Raises
        RequestError: with code "schema_too_costly" beyond a limit of processor time or memory, with
        "grammar_workers_busy" if other processes leave the worker no time.
        """
        job = self._compiled.get((name, text))
        if job is None:
            job = self.compiling.start(b"compile", name.encode(), text.encode(), answers=self._answers())
            self._compiled[name, text] = job
        try:
            return Automaton(Network(Tables.of_parts(await job.wait())))
        finally:
            if job.is_over and self._compiled.get((name, text)) is job:
                del self._compiled[name, text]

    def mask(self, key: bytes, matcher: Matcher, token_ids: Sequence[int]) -> Job:
        """The job that computes the mask after some token ids; sequences at one config share it."""
        config = matcher.config
        job = self._masks.get(config)
        if job is None:
            tables = matcher.automaton.network.tables
            answers = self._answers() | {b"tables": tables.parts}
            job = self.masking.start(b"mask", key, packed_ids(token_ids), answers=answers)
            self._masks[config] = job
            job.future.add_done_callback(partial(self._keep, matcher.automaton, config))
        return job

    def _keep(self, automaton: Automaton, config: Config, done: Future[list[bytes]]) -> None:
        """Caches a mask, on the thread of the process."""
        del self._masks[config]
        if not (done.cancelled() or done.exception()):
            automaton.masks(self._table).keep(config, int.from_bytes(done.result()[0], "little"))

    def _answers(self) -> dict[bytes, Callable[..., list[bytes]]]:
        return {b"token": self._named, b"vocabulary": lambda: vocabulary_parts(self._table)}

    def _named(self, name: bytes) -> list[bytes]:
        token_id = self._token_id(name.decode(errors="surrogatepass"))
        return [] if token_id is None else [b"%d" % token_id]


class WorkerMatcher:
    """The constraint of one sequence, whose masks a worker computes unless they are in the cache."""

    def __init__(self, workers: GrammarWorkers, key: bytes, matcher: Matcher) -> None:
        self._workers = workers
        self._key = key
        self._matcher = matcher
        self._token_ids: list[int] = []
        self._job: Job | None = None

    @property
    def is_finished(self) -> bool:
        return self._matcher.is_finished

    @property
    def is_lazy(self) -> bool:
        return self._matcher.is_lazy

    def ready(self) -> bool:
        """True if the next mask is at hand; if not, a worker computes it from the first call on."""
        if self._matcher.knows_mask:
            return True
        self._job = self._job or self._workers.mask(self._key, self._matcher, self._token_ids)
        return self._job.future.done()

    def mask(self) -> bytes:
        """The mask. Raises the worker's error."""
        if self._job and self._job.future.done() and not self._matcher.knows_mask:
            return self._job.future.result()[0]
        return self._matcher.mask()

    def accept(self, token_id: int) -> bool:
        """Advances by one token, as `Matcher.accept`."""
        is_allowed = self._matcher.accept(token_id)
        if is_allowed:
            self._token_ids.append(token_id)
            self._job = None
        return is_allowed
