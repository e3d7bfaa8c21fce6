"""The process that compiles grammars and computes masks at idle priority, for a server's other process.

A message on standard input is a job: "compile" (option, value as JSON text) or "mask" (key of a grammar,
token ids so far). The worker asks its parent for what it lacks: ids of named tokens, the vocabulary, the
tables of a grammar. This module imports the text layer alone.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import IO

from camelid.errors import RequestError
from camelid.text.grammar.automaton import Automaton, compile_rules
from camelid.text.grammar.kept import KeptGrammars
from camelid.text.grammar.matcher import Matcher
from camelid.text.grammar.network import Network, Tables
from camelid.text.grammar.options import rules_of_option
from camelid.text.grammar.trie import TokenTable
from camelid.text.grammar.worker_errors import too_costly
from camelid.text.idle_process import (
    ASK,
    DONE,
    ERROR,
    MEMORY_BYTES,
    packed_error,
    packed_ids,
    receive,
    send,
    start,
    unpacked_ids,
)

MATCHERS = 32  # positions that the worker keeps, each of one sequence


class SentVocabulary:
    """A vocabulary as the parent sends it: the bytes of each token, empty for tokens without text."""

    def __init__(self, eos_ids: bytes, lengths: bytes, text: bytes) -> None:
        self.eos_ids = frozenset(unpacked_ids(eos_ids))
        self._bytes, at = list[bytes](), 0
        for n_bytes in unpacked_ids(lengths):
            self._bytes.append(text[at : at + n_bytes])
            at += n_bytes

    @property
    def vocab_size(self) -> int:
        return len(self._bytes)

    def token_bytes(self, token_id: int) -> bytes:
        return self._bytes[token_id]

    def is_control(self, token_id: int) -> bool:  # noqa: ARG002 - their bytes are empty already
        return False


def vocabulary_parts(table: TokenTable) -> list[bytes]:
    """A vocabulary as messages carry it."""
    texts = table.token_bytes
    return [packed_ids(sorted(table.eos_ids)), packed_ids([*map(len, texts)]), b"".join(texts)]


class OutOfTime(BaseException):
    """A job has used its processor time."""


class GrammarWorker:
    """Does the jobs of one parent, in order, each within `limit_s` seconds of processor time."""

    def __init__(self, reads: IO[bytes], writes: IO[bytes], limit_s: float) -> None:
        self._reads, self._writes, self._limit_s = reads, writes, limit_s
        self._kept = KeptGrammars()
        self._table: TokenTable | None = None
        self._matchers: dict[tuple[bytes, bytes], Matcher] = {}  # by grammar and token ids

    def serve(self) -> None:
        """Does jobs until the parent is gone."""
        with suppress(EOFError, BrokenPipeError):
            send(self._writes, [DONE])
            while True:
                send(self._writes, self._answer(receive(self._reads)))

    def _answer(self, job: list[bytes]) -> list[bytes]:
        try:
            with processor_time(self._limit_s):
                return [DONE, *JOBS[job[0]](self, *job[1:])]
        except RequestError as error:
            return [ERROR, packed_error(error)]
        except OutOfTime:
            return [ERROR, packed_error(too_costly(f"more than {self._limit_s:g} s"))]
        except MemoryError:
            return [ERROR, packed_error(too_costly(f"more than {MEMORY_BYTES >> 30} GiB of memory"))]

    def _ask(self, *question: bytes) -> list[bytes]:
        send(self._writes, [ASK, *question])
        return receive(self._reads)

    def compile(self, name: bytes, text: bytes) -> list[bytes]:
        """The tables of an option's grammar."""
        automaton = compile_rules(rules_of_option(name.decode(), text.decode(), self._token_id))
        return automaton.network.tables.parts()

    def _token_id(self, name: str) -> int | None:
        found = self._ask(b"token", name.encode(errors="surrogatepass"))
        return int(found[0]) if found else None

    def mask(self, key: bytes, path: bytes) -> list[bytes]:
        """The mask after some token ids of a grammar."""
        return [self._matcher(key, path).mask()]

    def _matcher(self, key: bytes, path: bytes) -> Matcher:
        """A matcher after these token ids, advanced from the nearest known position of a sequence."""
        automaton, table = self._automaton(key), self.table
        known = [done for own, done in self._matchers if own == key and path.startswith(done)]
        nearest = max(known, key=len, default=b"")
        matcher = self._matchers.pop((key, nearest), None) or Matcher(automaton, table)
        for token_id in unpacked_ids(path[len(nearest) :]):
            matcher.accept(token_id)
        self._matchers[key, path] = matcher
        if len(self._matchers) > MATCHERS:
            self._matchers.pop(next(iter(self._matchers)))
        return matcher

    def _automaton(self, key: bytes) -> Automaton:
        found = self._kept.get(key)
        return found or self._kept.put(key, Automaton(Network(Tables.of_parts(self._ask(b"tables")))))

    @property
    def table(self) -> TokenTable:
        """The parent's vocabulary."""
        if self._table is None:
            self._table = TokenTable(SentVocabulary(*self._ask(b"vocabulary")))
        return self._table

    def warm(self) -> list[bytes]:
        """Builds the tries of the vocabulary, which the first mask would build."""
        self.table.written_in(frozenset(), others=True)
        self.table.of_length(0)
        return []


JOBS: dict[bytes, Callable[..., list[bytes]]] = {
    b"compile": GrammarWorker.compile,
    b"mask": GrammarWorker.mask,
    b"warm": GrammarWorker.warm,
}


@contextmanager
def processor_time(seconds: float) -> Generator[None]:
    """Raises OutOfTime in the block after some seconds of this process on a processor.

    Clock time would refuse any grammar while the machine is busy with streams. Windows has no such timer;
    there the parent's limit alone holds.
    """
    if sys.platform == "win32":
        yield
        return
    signal.signal(signal.SIGPROF, out_of_time)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def out_of_time(*_: object) -> None:
    raise OutOfTime


def main() -> None:
    GrammarWorker(*start(), float(sys.argv[2])).serve()
