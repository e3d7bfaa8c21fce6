"""Log lines: one per request, as text or JSON, written by a thread of their own.

A line never has a key or a query string, and a prompt or an answer only if --log-prompts asks for them.
Control characters are escaped, so that no client can forge a line. A reader that stops reading loses lines,
but stops nothing.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from queue import Full, SimpleQueue
from threading import Thread
from typing import Any

from camelid.requests.output_text import Completion
from camelid.server.metrics.record import Record

ACCESS = logging.getLogger("camelid.access")
MAX_LINES = 10_000  # that wait for their reader
MAX_CONTENT_CHARS = 16_384  # of a call's prompts, and of its answers
CLOSE_S = 1.0
Fields = dict[str, Any]


def access_fields(record: Record, *, with_content: bool) -> Fields:
    """The facts of a call, in the order in which they are written; absent facts are left out.

    Prompts, and the answers that ended, are JSON text that is cut where it is long.
    """
    call, jobs = record.call, record.jobs
    found: Fields = {
        "request_id": call.request_id, "key": call.key.name, "method": record.method, "path": call.path,
        "status": record.status,
    }  # fmt: skip
    if record.code:
        found["error"] = record.code
    if jobs:
        found |= {
            "model": jobs[0].started.service.name, "prompt_tokens": record.n_prompt,
            "cached_tokens": record.n_cached, "answer_tokens": record.n_answer,
            "finish_reason": ",".join(record.reasons), "queue_ms": ms(jobs[0].queue_s),
            "ttft_ms": ms(jobs[0].ttft_s),
        }  # fmt: skip
    found["total_ms"] = ms(record.seconds)
    if record.status == 499 or any(live.was_cancelled for live in jobs):
        found["client_gone"] = True
    if with_content and jobs:
        found["prompt"] = content([live.started.job.prompt for live in jobs])
        ended = (live.completions[choice] for live in jobs for choice in sorted(live.completions))
        found["answer"] = content([answer_fields(completion) for completion in ended])
    return found


def content(items: Sequence[object]) -> str:
    """Prompts or answers as JSON text of bounded length."""
    return json.dumps(items, ensure_ascii=False, default=str)[:MAX_CONTENT_CHARS]


def answer_fields(completion: Completion) -> Fields:
    """The parts that an answer has: text, reasoning, tool calls."""
    calls = [asdict(call) for call in completion.tool_calls]
    found: Fields = {"text": completion.text, "reasoning": completion.reasoning, "tool_calls": calls}
    return {name: value for name, value in found.items() if value}


def ms(seconds: float) -> float:
    """Milliseconds with three digits, which is a microsecond."""
    return round(1e3 * seconds, 3)


def log_access(record: Record, *, with_content: bool) -> None:
    """Writes the line of a call."""
    if ACCESS.isEnabledFor(logging.INFO):
        fields = access_fields(record, with_content=with_content)
        ACCESS.info("request", extra={"fields": fields, "at": record.at})


def escaped(text: str) -> str:
    """The text with every character that is not printable as its escape: no line ends early."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def timestamp(seconds: float) -> str:
    """UTC with milliseconds, as RFC 3339 has it."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def text_value(value: object) -> str:
    """A value without a bare space or sign that would read as another field."""
    text = str(value)
    plain = text and not any(c in ' "=\\' for c in text)
    return escaped(text if plain else json.dumps(text, ensure_ascii=False))


class TextFormat(logging.Formatter):
    """A line of text: time, level, logger, message, and `name=value` fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback follows on marked lines of its own."""
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        words = [
            timestamp(getattr(record, "at", record.created)), record.levelname.lower(),
            f"{record.name}: {escaped(record.getMessage())}",
            *(f"{name}={text_value(value)}" for name, value in fields.items()),
        ]  # fmt: skip
        trace = self.formatException(record.exc_info).splitlines() if record.exc_info else []
        return "\n".join([" ".join(words), *(f"  | {escaped(line)}" for line in trace)])


class JsonFormat(logging.Formatter):
    """A line of JSON with the same facts."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        found: Fields = {
            "time": timestamp(getattr(record, "at", record.created)), "level": record.levelname.lower(),
            "logger": record.name, "message": record.getMessage(), **getattr(record, "fields", {}),
        }  # fmt: skip
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found)


FORMATS: Mapping[str, Callable[[], logging.Formatter]] = {"text": TextFormat, "json": JsonFormat}


class LogWriter(logging.Handler):
    """A handler whose thread writes, so that a full pipe never stops the server's loop."""

    def __init__(self, log_format: str, write: Callable[[bytes], object] | None = None) -> None:
        super().__init__()
        self.setFormatter(FORMATS[log_format]())
        self.n_dropped = 0
        self._write = write or _write_stderr
        self._lines = SimpleQueue[str | None]()
        self._thread = Thread(target=self._run, name="camelid log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queues a line, or counts it as dropped."""
        try:
            if self._lines.qsize() >= MAX_LINES:
                raise Full
            self._lines.put(self.format(record))
        except Full:
            self.n_dropped += 1
        except Exception:  # a malformed call of the logger, which must not reach the caller
            self.handleError(record)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            lines = [line]
            while not self._lines.empty() and len(lines) < 256:
                more = self._lines.get()
                if more is None:
                    self._lines.put(None)
                    break
                lines.append(more)
            self._write("".join(f"{each}\n" for each in lines).encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """Writes the waiting lines, for at most a second: the reader may have stopped."""
        self._lines.put(None)
        self._thread.join(CLOSE_S)
        super().close()


def _write_stderr(data: bytes) -> None:
    """Writes past Python's buffer, whose lock a blocked thread would hold at the interpreter's end."""
    while data:
        try:
            data = data[os.write(2, data) :]
        except OSError:
            return


def configure(log_format: str, level: int = logging.INFO) -> LogWriter:
    """Sends the process's log lines to stderr in this format: Camelid's from `level`, others' warnings."""
    writer, root = LogWriter(log_format), logging.getLogger()
    root.handlers[:] = [writer]
    root.setLevel(logging.WARNING)
    logging.getLogger("camelid").setLevel(level)
    return writer
