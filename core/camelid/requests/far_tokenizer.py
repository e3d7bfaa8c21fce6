"""A tokenizer whose long texts a worker process encodes, so that no stream waits for Python's lock.

1 MB of text holds that lock for 0.6 s, during which streams slow to a third (tests/perf/server.md).
"""

from __future__ import annotations

import subprocess
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from queue import LifoQueue

from camelid.errors import RequestError
from camelid.requests.idle_child import TimeLimit, reap, start_child
from camelid.text.idle_process import ERROR, receive, send, unpacked_error, unpacked_ids
from camelid.text.tokenizers.pipeline import check_surrogates
from camelid.text.tokenizers.source import TokenizerSource
from camelid.text.tokenizers.tokenizer import Tokenizer

FAR_CHARS = 32_768  # about 20 ms of encoding, and of the way to another process
PROCESSES = 2
# An idle process gets next to no time on a busy machine. After 50 times the time that encoding takes here
# (0.6 s a MB), a text is encoded here: streams are slow for 2 % of the wait.
PATIENCE_S, PATIENCE_CHAR_S = 2.0, 32e-6
LIMIT_S = 120.0  # of one text's wait; a longer text is refused then, since it would slow streams for seconds
# The child sees installed packages, of which `tokenizers` is 5 times faster than Python.
WORKER = "camelid.text.tokenizers.worker"
BUSY = "tokenizer_busy"


class FarTokenizer:
    """A `Tokenizer`; `near` does all but the encoding of long texts. Calls from several threads are safe."""

    def __init__(self, near: Tokenizer, source: TokenizerSource) -> None:
        self.vocab_size, self.frame = near.vocab_size, near.frame
        self.bos_id, self.eos_id, self.eos_ids = near.bos_id, near.eos_id, near.eos_ids
        self.decode, self.is_control = near.decode, near.is_control
        self.token_bytes, self.opening_bytes = near.token_bytes, near.opening_bytes
        self._near = near
        self._free = LifoQueue[EncodingProcess]()  # the latest first: a second one starts if two texts meet
        self._all = [EncodingProcess(source) for _ in range(PROCESSES)]
        for process in self._all:
            self._free.put(process)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """As `Tokenizer.encode`."""
        return self.encode_spans([(text, special)])

    def encode_spans(self, spans: Iterable[tuple[str, bool]], *, opens: bool = True) -> list[int]:
        """As `Tokenizer.encode_spans`. Raises RequestError with code "tokenizer_busy" after `LIMIT_S`."""
        parts = list(spans)
        n_chars = sum(len(text) for text, _ in parts)
        if n_chars < FAR_CHARS:
            return self._near.encode_spans(parts, opens=opens)
        for text, _ in parts:
            check_surrogates(text)
        patience_s = max(PATIENCE_S, PATIENCE_CHAR_S * n_chars)
        try:
            with self._one() as process:
                return process.encode(parts, opens=opens, limit_s=min(patience_s, LIMIT_S))
        except RequestError as error:
            if error.facts.get("code") != BUSY or patience_s > LIMIT_S:
                raise
        return self._near.encode_spans(parts, opens=opens)

    @contextmanager
    def _one(self) -> Generator[EncodingProcess]:
        process = self._free.get()
        try:
            yield process
        finally:
            self._free.put(process)

    def close(self) -> None:
        """Ends the processes; texts under way raise RequestError."""
        for process in self._all:
            process.close()


class EncodingProcess:
    """A child process that starts with its first text. For one thread at a time, but for `close`."""

    def __init__(self, source: TokenizerSource) -> None:
        self._source = source
        self._child: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def encode(self, spans: list[tuple[str, bool]], *, opens: bool, limit_s: float) -> list[int]:
        """The token ids; if the child died, once more by another.

        Raises RequestError, with code "tokenizer_busy" after `limit_s` seconds.
        """
        for _ in range(2):
            if self._is_closed:
                break
            try:
                return self._try(spans, opens=opens, limit_s=limit_s)
            except (EOFError, OSError, ValueError):  # ValueError: `close` has closed the pipes
                self._end()
        if self._is_closed:
            raise RequestError("this model was closed; load the model again", field="llm")
        raise RequestError("the text ends the process that tokenizes it; send a shorter one", field="prompt")

    def _try(self, spans: list[tuple[str, bool]], *, opens: bool, limit_s: float) -> list[int]:
        is_new = not self._child
        child = self._child = self._child or start_child(WORKER, has_packages=True)
        limit = TimeLimit(limit_s, child)
        try:
            if is_new:
                _describe(child, self._source)
            return _talk(child, spans, opens=opens)
        except (EOFError, OSError):
            if not limit.is_exceeded:
                raise
            self._end()
            raise RequestError(
                f"the text was not tokenized within {limit_s:g} s, since the machine is busy; send the "
                "request again later", field="prompt", code=BUSY,
            ) from None  # fmt: skip
        finally:
            limit.end()
            if self._is_closed:  # perhaps while the child started
                self._end()

    def _end(self) -> None:
        child, self._child = self._child, None
        if child:
            reap(child)

    def close(self) -> None:
        """Ends the child."""
        self._is_closed = True
        self._end()


def _describe(child: subprocess.Popen[bytes], source: TokenizerSource) -> None:
    assert child.stdin, "the child has pipes"
    send(child.stdin, [source.to_json()])


def _talk(child: subprocess.Popen[bytes], spans: list[tuple[str, bool]], *, opens: bool) -> list[int]:
    assert child.stdin and child.stdout, "the child has pipes"
    trusted = bytes(is_trusted for _, is_trusted in spans)
    send(child.stdin, [b"1" if opens else b"", trusted, *(text.encode() for text, _ in spans)])
    kind, data = receive(child.stdout)
    if kind == ERROR:
        raise unpacked_error(data)
    return unpacked_ids(data)
