"""Slot files: the tokens and rows of a slot as a session file, in one folder.

A request names a file, never a path: names are checked, symbolic links and special files are refused. Each
file belongs to the key that saved it, and the folder is bounded in files and bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePath
from time import perf_counter
from typing import BinaryIO

from camelid.api.sessions.file import (
    SavedSession,
    SessionHeader,
    encode_session,
    read_header,
    read_rows,
    rows_mismatch,
    write_atomically,
)
from camelid.api.sessions.fingerprint import fingerprint
from camelid.engine.state_transfer import ExportedState
from camelid.errors import CamelidError, ModelFormatError
from camelid.formats.source import drive
from camelid.requests.transcript import Segment, transcript_ids
from camelid.server.http.errors import ApiError
from camelid.server.service.service import Service
from camelid.server.service.slots import Slot
from camelid.version import __version__

MAX_NAME = 200
FORBIDDEN = frozenset('/\\:*?"<>|\u2044\u2215\u2216\u29f8\u29f9')  # and what looks like a slash
# Names of devices on Windows, with any suffix.
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?")
SALT = "slot_salt"  # the option of a file with the hash of its rows' salt, which is its key's
MAX_FILES = 1024  # of one folder
SHARE = 0.5  # of the bytes that the folder's files and the free disk have together
# One writer: no other save comes between the look at a file's owner, or at the room left, and the write. A
# thread, since a client that goes away does not end a write.
WRITER = ThreadPoolExecutor(1, "camelid slot files")


@dataclass(frozen=True, slots=True)
class Saved:
    """A slot file written or read: its rows, its bytes, and the milliseconds that it took."""

    n_rows: int
    n_bytes: int
    ms: float


def checked_name(name: object) -> str:
    """A file name that is safe on every system. Raises ApiError 400."""
    reason = name_fault(name) if isinstance(name, str) else "it is no text"
    if reason:
        raise ApiError(
            400, f"Invalid filename: {reason}; use letters, digits, dots and dashes", param="filename"
        )
    return str(name)


def name_fault(name: str) -> str:
    """The reason why a name is refused; "" for a good one."""
    faults = (
        (not name, "it is empty"),
        (len(name) > MAX_NAME or len(name.encode("utf-8", "replace")) > MAX_NAME, "it is too long"),
        (any(c in FORBIDDEN for c in name), "it has a character that paths use"),
        (any(unicodedata.category(c)[0] == "C" for c in name), "it has a control character"),
        (unicodedata.normalize("NFKC", name) != name, "it has characters that look like others"),
        (".." in name or name.startswith("."), "it begins with a dot, or has two in a row"),
        (name != name.strip() or name.endswith("."), "it begins or ends with a space, or ends with a dot"),
        (RESERVED.fullmatch(name), "it names a device"),
    )
    return next((reason for is_bad, reason in faults if is_bad), "")


def salt_mark(salt: str) -> str:
    """The mark of a salt in a file: a hash, which does not reveal the key."""
    return hashlib.sha256(f"slot {salt}".encode("utf-8", "surrogatepass")).hexdigest()[:32] if salt else ""


async def save(service: Service, slot: Slot, folder: Path, name: str, salt: str) -> Saved:
    """Writes the slot's tokens and the rows that are still cached; `salt` is that of the client's key.

    Raises ApiError 400 for rows of another salt, which no restore would find, 403 for another key's file, 507
    for a full disk or folder.
    """
    start, token_ids = perf_counter(), slot.token_ids
    if token_ids and slot.salt != salt:
        raise ApiError(
            400, f"slot {slot.id} holds the tokens of a request with cache_salt, which are never saved; send "
            "the request without it", param="id",
        )  # fmt: skip
    host = service.host
    mark = await asyncio.to_thread(_fingerprint, service)
    exported = await host.call(host.running.engine.export_rows(token_ids, salt, slot.row_keys))
    session = SavedSession(
        id=f"slot-{slot.id}", model=PurePath(host.running.file.name).name, fingerprint=mark, messages=(),
        transcript=_transcript(service, token_ids), options={SALT: salt_mark(salt)}, n_drawn=0,
        n_forgotten=0, camelid=__version__, row_keys=slot.row_keys,
    )  # fmt: skip
    chunks = encode_session(session, host.running.engine.state.states, exported)
    write = asyncio.get_running_loop().run_in_executor(WRITER, _write, folder / name, chunks, salt)
    return Saved(exported.n_rows, await write, 1e3 * (perf_counter() - start))


def _fingerprint(service: Service) -> str:
    """The model's fingerprint, computed outside the server's event loop, since it reads the file."""
    return asyncio.run(fingerprint(service.host.running.file))


def _transcript(service: Service, token_ids: tuple[int, ...]) -> tuple[Segment, ...]:
    if not token_ids:
        return ()
    text = service.builder.tokenizer.decode(token_ids, special=True)
    return (Segment(text, token_ids, ((0, len(text)),) if text else ()),)


def _write(path: Path, chunks: Iterator[bytes], salt: str) -> int:
    """Writes a whole file or none, and returns its size. The reply names the file, not its folder."""
    _check_replaceable(path, salt)
    try:
        write_atomically(path, _bounded(chunks, _room(path)))
        return path.stat().st_size
    except (ModelFormatError, OSError) as error:
        cause = error.__cause__ if isinstance(error, ModelFormatError) else error
        reason = getattr(cause, "strerror", None) or "it cannot be written"
        raise _not_saved(
            f"the slot file {path.name!r} was not saved: {reason}; no partial file remains"
        ) from error


def _check_replaceable(path: Path, salt: str) -> None:
    """Raises ApiError 400 for a name that is no plain file, 403 for a file that this key did not save."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ApiError(400, f"{path.name!r} is no plain file; use another name", param="filename")
    if path.exists() and _owner(path) != salt_mark(salt):
        raise ApiError(
            403, f"the slot file {path.name!r} was not saved with this key; use another name",
            param="filename",
        )  # fmt: skip


def _owner(path: Path) -> str:
    """The mark of the key that saved a file; "" without a key, and for a file that cannot be read."""
    try:
        with _opened(path) as file:
            header = drive(read_header(os.fstat(file.fileno()).st_size, path.name), _reader(file))
    except CamelidError:
        return ""
    return str(header.saved.options.get(SALT, ""))


def _room(path: Path) -> int:
    """The bytes that a file of this name may have. Raises ApiError 507 for a folder with too many files."""
    with os.scandir(path.parent) as entries:
        sizes = {each.name: each.stat(follow_symlinks=False).st_size for each in entries}
    if len(sizes) >= MAX_FILES and path.name not in sizes:
        raise _not_saved(
            f"the folder of slot files has {len(sizes):,} files, at most {MAX_FILES:,} are kept; save under "
            "the name of an older file, or ask the operator to delete some"
        )
    most = SHARE * (sum(sizes.values()) + shutil.disk_usage(path.parent).free)
    return int(most) - sum(sizes.values()) + sizes.get(path.name, 0)


def _bounded(chunks: Iterable[bytes], room: int) -> Iterator[bytes]:
    """The chunks of a file. Raises ApiError 507 beyond `room` bytes."""
    for chunk in chunks:
        room -= len(chunk)
        if room < 0:
            raise _not_saved(
                f"the slot files would take more than {SHARE:.0%} of the disk that is free for them; ask the "
                "operator to delete some, or to give them a larger disk"
            )
        yield chunk


def _not_saved(message: str) -> ApiError:
    return ApiError(507, message, code="insufficient_storage", kind="server_error")


async def restore(service: Service, slot: Slot, folder: Path, name: str, salt: str) -> Saved:
    """Puts a file's rows into the prefix cache, and its tokens into the slot.

    Rows that an adapter computed are found by requests with that very adapter alone.

    Raises ApiError 404 for a missing file, 400 for one that is damaged or another model's, 403 for one that
    another key saved, 503 where there is no room for its rows.
    """
    start, engine = perf_counter(), service.host.running.engine
    header, exported, n_bytes = await asyncio.to_thread(_read, service, folder / name)
    if header.saved.options.get(SALT, "") != salt_mark(salt):
        raise ApiError(403, f"the slot file {name!r} was saved with another key", param="filename")
    token_ids, keys = transcript_ids(header.saved.transcript), header.saved.row_keys
    n_rows = await service.host.call(engine.import_rows(token_ids, exported, salt, keys))
    slot.remember(token_ids, salt, keys)
    return Saved(n_rows, n_bytes, 1e3 * (perf_counter() - start))


def _read(service: Service, path: Path) -> tuple[SessionHeader, ExportedState, int]:
    """The header and rows of a file that this model saved."""
    with _opened(path) as file:
        read, n_bytes = _reader(file), os.fstat(file.fileno()).st_size
        try:
            header = drive(read_header(n_bytes, path.name), read)
            _check_model(service, header)
            return header, drive(read_rows(header), read), n_bytes
        except ApiError:
            raise
        except CamelidError as error:
            raise ApiError(
                400, f"the slot file cannot be restored: {error.message}", param="filename"
            ) from None


def _reader(file: BinaryIO) -> Callable[[int, int], bytes]:
    """A function that reads so many bytes at an offset."""

    def read(offset: int, length: int) -> bytes:
        file.seek(offset)
        return file.read(length)

    return read


def _opened(path: Path) -> BinaryIO:
    """A plain file opened for reading; not through a symbolic link, and without waiting for a pipe."""
    try:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        number = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise ApiError(404, f"there is no slot file {path.name!r}", param="filename") from None
    except OSError:
        raise ApiError(400, f"{path.name!r} is no plain file that can be read", param="filename") from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise ApiError(400, f"{path.name!r} is no plain file that can be read", param="filename")
    return os.fdopen(number, "rb")


def _check_model(service: Service, header: SessionHeader) -> None:
    """Raises ApiError 400 for the file of another model, or of other load options."""
    if header.saved.fingerprint != _fingerprint(service):
        raise ApiError(
            400, f"the slot file cannot be restored: the model {header.saved.model!r:.80} saved it, not this "
            "one", param="filename",
        )  # fmt: skip
    reason = rows_mismatch(header, service.host.running.engine.state.states)
    if reason:
        raise ApiError(400, f"the slot file cannot be restored: {reason}", param="filename")
