"""The process that tokenizes long texts at idle priority, for a server's other process.

Its first message is a `TokenizerSource`. Each further one is a job: whether the text opens a prompt, a byte
per span that is 1 for trusted text, and the spans. This module imports the text layer alone.
"""

from __future__ import annotations

from contextlib import suppress
from typing import IO

from camelid.errors import RequestError
from camelid.text.idle_process import (
    DONE,
    ERROR,
    MEMORY_BYTES,
    packed_error,
    packed_ids,
    receive,
    send,
    start,
)
from camelid.text.tokenizers.pipeline import Pipeline
from camelid.text.tokenizers.source import TokenizerSource


def serve(reads: IO[bytes], writes: IO[bytes]) -> None:
    """Does jobs until the parent is gone."""
    with suppress(EOFError, BrokenPipeError):
        send(writes, [DONE])
        tokenizer = TokenizerSource.of_json(receive(reads)[0]).build()
        while True:
            send(writes, answer(tokenizer, *receive(reads)))


def answer(tokenizer: Pipeline, opens: bytes, trusted: bytes, *texts: bytes) -> list[bytes]:
    """The token ids of a job, or its error."""
    try:
        spans = zip((text.decode() for text in texts), map(bool, trusted), strict=True)
        return [DONE, packed_ids(tokenizer.encode_spans(spans, opens=bool(opens)))]
    except RequestError as error:
        return [ERROR, packed_error(error)]
    except MemoryError:
        limit = f"the text needs more than {MEMORY_BYTES >> 30} GiB to be tokenized; send a shorter one"
        return [ERROR, packed_error(RequestError(limit, field="prompt"))]


def main() -> None:
    serve(*start())
