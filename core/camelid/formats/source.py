"""Byte ranges on request: how a parser reads a file without doing I/O.

A parser is a generator that yields (offset, length) and is sent exactly those bytes. `read_file`
answers from a local file; `read_remote` awaits an answer, such as an HTTP Range request.
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
Parser: TypeAlias = Callable[[int, str], Ask[T]]  # (file_size, path) -> steps

MAX_HEADER_BYTES = 128 << 20  # three times the largest known; headers are held in memory, tensors are not
FIRST_CHUNK = 64 << 10
MAX_CHUNK = 1 << 20
U64 = struct.Struct("<Q")


def format_error(path: str, message: str, **facts: object) -> ModelFormatError:
    """A ModelFormatError whose message opens with the path."""
    return ModelFormatError(located(path, message), path=path, **facts)


def located(path: str, message: str) -> str:
    """The message after its path, where there is one."""
    return f"{path}: {message}" if path else message


def read_file(path: str | PathLike[str], parser: Parser[T]) -> T:
    """Run `parser` on a local file; ModelFormatError if the file cannot be read.

    Reads plainly, without mmap: a file cut short meanwhile is then an error and not a SIGBUS.
    """
    name = fspath(path)
    try:
        if Path(path).is_fifo():
            raise format_error(name, "this is a pipe; a model must be a file, as it is read out of order")
        with Path(path).open("rb") as file:
            steps = parser(file.seek(0, 2), name)
            return drive(steps, lambda offset, length: (file.seek(offset), file.read(length))[1])
    except FileNotFoundError:
        raise format_error(name, "there is no such file") from None
    except OSError as error:
        raise format_error(name, f"the file cannot be read: {error.strerror or error}") from error


def read_small(path: Path, limit: int) -> bytes:
    """All of a file that must be small; ModelFormatError if it is over `limit` bytes or cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size > limit:
                raise format_error(str(path), f"the file is larger than {limit} bytes", got=size, want=limit)
            file.seek(0)
            return file.read(size)  # which sets aside as many bytes as it is asked for
    except OSError as error:
        raise format_error(str(path), f"the file cannot be read: {error.strerror or error}") from error


def drive(steps: Ask[T], read: Callable[[int, int], bytes]) -> T:
    """Answer every ask of a parser with `read(offset, length)`; its result."""
    try:
        ask = next(steps)
        while True:
            ask = steps.send(read(*ask))
    except StopIteration as stop:
        return stop.value


async def drive_async(steps: Ask[T], read: Callable[[int, int], Awaitable[bytes]]) -> T:
    """`drive` with a `read` that is awaited."""
    try:
        ask = next(steps)
        while True:
            ask = steps.send(await read(*ask))
    except StopIteration as stop:
        return stop.value


async def read_remote(
    read: Callable[[int, int], Awaitable[bytes]], file_size: int, path: str, parser: Parser[T]
) -> T:
    """Run `parser` on bytes that `read(offset, length)` fetches."""
    return await drive_async(parser(file_size, path), read)


class Source:
    """The bytes asked for and not yet parsed, and a cursor in them."""

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
        """Bytes of the file that lie ahead."""
        return self.size - self.position

    def fail(self, message: str) -> NoReturn:
        """Raise ModelFormatError with path and offset."""
        raise format_error(self.path, f"{message} (at byte {self.position})", offset=self.position)

    def need(self, n: int) -> Ask[None]:
        """Ask until `n` bytes lie ahead of the cursor in `window`; nothing is allocated for a false `n`."""
        if n > self.remaining:
            self.fail(
                f"the file ends after {self.size} bytes, inside its header; was the download cut short?"
            )
        if self.position + n > MAX_HEADER_BYTES:
            self.fail(f"the header is larger than {MAX_HEADER_BYTES} bytes")
        held = len(self.window) - self.cursor
        if n > held:
            yield from self._ask(max(n - held, self.chunk))

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
        """The next `n` bytes."""
        yield from self.need(n)
        self.cursor += n
        return self.window[self.cursor - n : self.cursor]

    def number(self, form: struct.Struct) -> Ask[int]:
        """The next number."""
        data = yield from self.take(form.size)
        return form.unpack(data)[0]

    def text(self, what: str, limit: int) -> Ask[str]:
        """A name after its u64 length: 1 to `limit` bytes of printable UTF-8, as errors show it."""
        length = yield from self.number(U64)
        if not 1 <= length <= limit:
            self.fail(f"a {what} of {length} bytes; it must have 1 to {limit}")
        data = yield from self.take(length)
        try:
            name = data.decode("utf-8")
        except UnicodeDecodeError:
            self.fail(f"a {what} is not valid UTF-8: {data[:64]!r}")
        if not name.isprintable():
            self.fail(f"a {what} holds control characters: {data[:64]!r}")
        return name
