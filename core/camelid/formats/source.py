"""Byte ranges on request, so that a parser reads a file without I/O of its own.

A parser is a generator that yields (offset, length) and receives exactly those bytes. `read_file` reads them
from a local file; `read_remote` awaits them, e.g. from an HTTP Range request.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Generator
from os import PathLike, fspath
from pathlib import Path
from typing import NoReturn, TypeAlias, TypeVar

from camelid.errors import ModelFormatError

T = TypeVar("T")
Ask: TypeAlias = Generator[tuple[int, int], bytes, T]
Parser: TypeAlias = Callable[[int, str], Ask[T]]  # (file_size, path) -> the parser's generator

MAX_HEADER_BYTES = 128 << 20  # three times the largest known header; a header is in memory at once
FIRST_CHUNK = 64 << 10
MAX_CHUNK = 1 << 20
U64 = struct.Struct("<Q")


def format_error(path: str, message: str, **facts: object) -> ModelFormatError:
    """Makes a ModelFormatError with the path before its message."""
    return ModelFormatError(located(path, message), path=path, **facts)


def located(path: str, message: str) -> str:
    """The message with the path before it, if the path is not empty."""
    return f"{path}: {message}" if path else message


def read_file(path: str | PathLike[str], parser: Parser[T]) -> T:
    """Runs a parser on a local file. Raises ModelFormatError if the file cannot be read.

    Uses read() and not mmap: a file truncated during the read then raises an error, not a SIGBUS.
    """
    name = fspath(path)
    try:
        if Path(path).is_fifo():
            raise format_error(name, "this is a pipe; expected a file, since a model is read out of order")
        with Path(path).open("rb") as file:
            steps = parser(file.seek(0, 2), name)
            return drive(steps, lambda offset, length: (file.seek(offset), file.read(length))[1])
    except FileNotFoundError:
        raise format_error(name, "there is no such file") from None
    except OSError as error:
        raise format_error(name, f"the file cannot be read: {error.strerror or error}") from error


def read_small(path: Path, limit: int) -> bytes:
    """Reads a whole file. Raises ModelFormatError if it has over `limit` bytes or cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size > limit:
                raise format_error(str(path), f"the file is larger than {limit} bytes", got=size, want=limit)
            file.seek(0)
            return file.read(size)  # read() allocates `size` bytes at once, so the limit is checked first
    except OSError as error:
        raise format_error(str(path), f"the file cannot be read: {error.strerror or error}") from error


def drive(steps: Ask[T], read: Callable[[int, int], bytes]) -> T:
    """Runs a parser with `read(offset, length)` and returns its result."""
    try:
        request = next(steps)
        while True:
            request = steps.send(read(*request))
    except StopIteration as stop:
        return stop.value


async def drive_async(steps: Ask[T], read: Callable[[int, int], Awaitable[bytes]]) -> T:
    """Runs a parser with an async `read(offset, length)` and returns its result."""
    try:
        request = next(steps)
        while True:
            request = steps.send(await read(*request))
    except StopIteration as stop:
        return stop.value


async def read_remote(
    read: Callable[[int, int], Awaitable[bytes]], file_size: int, path: str, parser: Parser[T]
) -> T:
    """Runs a parser on a remote file; `read(offset, length)` fetches the bytes."""
    return await drive_async(parser(file_size, path), read)


class Source:
    """A window of requested bytes of a file, and a cursor in it."""

    def __init__(self, size: int, path: str) -> None:
        self.size = size
        self.path = path
        self.start = 0  # of `window`, in the file
        self.window = b""
        self.cursor = 0  # in `window`
        self.chunk = FIRST_CHUNK

    @property
    def position(self) -> int:
        """Offset in the file of the next byte to parse."""
        return self.start + self.cursor

    @property
    def remaining(self) -> int:
        """Bytes of the file from the cursor to the end."""
        return self.size - self.position

    def fail(self, message: str) -> NoReturn:
        """Raises ModelFormatError with path and offset."""
        raise format_error(self.path, f"{message} (at byte {self.position})", offset=self.position)

    def need(self, n: int) -> Ask[None]:
        """Requests bytes until `n` bytes follow the cursor in `window`. Raises ModelFormatError before the
        request if the file has fewer bytes, or if the header would be too large."""
        if n > self.remaining:
            self.fail(
                f"the file ends after {self.size} bytes, inside its header; was the download interrupted?"
            )
        if self.position + n > MAX_HEADER_BYTES:
            self.fail(f"the header is larger than {MAX_HEADER_BYTES} bytes")
        available = len(self.window) - self.cursor
        if n > available:
            yield from self._ask(max(n - available, self.chunk))

    def _ask(self, length: int) -> Ask[None]:
        offset = self.start + len(self.window)
        length = min(length, self.size - offset)
        data = yield offset, length
        if len(data) != length:
            self.fail(
                f"a read of {length} bytes at {offset} gave {len(data)}; did the file change meanwhile?"
            )
        self.start, self.window, self.cursor = self.position, self.window[self.cursor :] + data, 0
        self.chunk = min(2 * self.chunk, MAX_CHUNK)

    def take(self, n: int) -> Ask[bytes]:
        """Reads the next `n` bytes."""
        yield from self.need(n)
        self.cursor += n
        return self.window[self.cursor - n : self.cursor]

    def number(self, form: struct.Struct) -> Ask[int]:
        """Reads the next number."""
        data = yield from self.take(form.size)
        return form.unpack(data)[0]

    def text(self, what: str, limit: int) -> Ask[str]:
        """Reads a name after its u64 length: 1 to `limit` bytes of printable UTF-8, since errors show it."""
        length = yield from self.number(U64)
        if not 1 <= length <= limit:
            self.fail(f"a {what} of {length} bytes; it must have 1 to {limit}")
        data = yield from self.take(length)
        try:
            name = data.decode("utf-8")
        except UnicodeDecodeError:
            self.fail(f"a {what} is not valid UTF-8: {data[:64]!r}")
        if not name.isprintable():
            self.fail(f"a {what} contains control characters: {data[:64]!r}")
        return name
