"""Adapters of requests, and the slots of adapter state that running sequences share.

An adapter is written to a slot when its first sequence starts, and stays there until another adapter needs
the slot. Sequences whose adapter finds no slot wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from struct import unpack

from camelid.engine.media import KEY_BIT
from camelid.errors import RequestError
from camelid.plan.op_rows_adapters import FEATURE

Write = Callable[[str, int, bytes], Awaitable[None]]  # (state group, unit, bytes)


@dataclass(frozen=True, slots=True)
class RowKeys:
    """The part of an adapter in the keys by which the prefix cache finds rows.

    `adapter` is the adapter's key, empty without an adapter; `first` is the first row on which it acts, None
    if it acts on all rows.
    """

    adapter: bytes = b""
    first: int | None = None

    def salt(self, salt: str) -> str:
        """The salt of rows; no salt of a request has a zero character."""
        return f"{salt}\0adapter {self.adapter.hex()}" if self.adapter and self.first is None else salt

    def ids(self, token_ids: Sequence[int]) -> Sequence[int]:
        """The ids of rows: from row `first` on, keys of token and adapter."""
        if not self.adapter or self.first is None:
            return token_ids
        own = (_row_key(self.adapter, token_id) for token_id in token_ids[self.first :])
        return [*token_ids[: self.first], *own]


NO_ADAPTER = RowKeys()


@dataclass(frozen=True, slots=True)
class AdapterPart:
    """One of the adapters of a request, for replies and logs; `digest` is that of its terms."""

    id: int
    name: str
    digest: str
    scale: float


@dataclass(frozen=True, slots=True, eq=False)
class RequestAdapter:
    """The adapters that act on a request together.

    `key` identifies their terms and scales. `units` returns the bytes of their slot by state group.
    `invocation` are the tokens from which activated adapters act; empty if they act on all rows.
    """

    name: str
    key: bytes
    units: Callable[[], Mapping[str, bytes]]
    invocation: tuple[int, ...] = ()
    parts: tuple[AdapterPart, ...] = ()

    def first_row(self, prompt_ids: Sequence[int]) -> int:
        """The first row on which the adapters act: that of the last invocation in the prompt.

        Raises RequestError for a prompt without the invocation tokens.
        """
        found = last_invocation(self.invocation, prompt_ids)
        if found is None:
            raise RequestError(
                f"adapter {self.name!r} acts from its invocation tokens {list(self.invocation)} on, which "
                "the prompt does not contain; use the prompt format of its training, or no adapter",
                field="adapter",
            )
        return found

    def row_keys(self, first: int) -> RowKeys:
        """The keys of rows on which the adapters act from row `first` on."""
        return RowKeys(self.key, first if self.invocation else None)


def last_invocation(words: tuple[int, ...], prompt_ids: Sequence[int]) -> int | None:
    """The first row of the last occurrence of these tokens, 0 for no tokens; None if there is none."""
    n = len(words)
    starts = range(len(prompt_ids) - n, -1, -1) if n else (0,)
    return next((i for i in starts if tuple(prompt_ids[i : i + n]) == words), None)


def names_of(adapters: Iterable[RequestAdapter | None]) -> tuple[str, ...]:
    """The names of all adapters of some requests, sorted."""
    return tuple(sorted({part.name for each in adapters if each for part in each.parts}))


@lru_cache(maxsize=1 << 14)  # the vocabulary of a long answer
def _row_key(key: bytes, token_id: int) -> int:
    digest = blake2b(token_id.to_bytes(8, "little"), key=key[:64], digest_size=4).digest()
    return KEY_BIT | unpack("<I", digest)[0]


def with_adapters(program: str) -> str:
    """The name of a program's variant for steps with adapters."""
    return f"{program}+{FEATURE}"


def base_program(program: str) -> str:
    """The name of a program without the suffix of its variant."""
    return program.removesuffix(f"+{FEATURE}")


class AdapterSlots:
    """The slots 1 to `n_slots` of adapter state; slot 0 stands for none. Without slots no adapter runs."""

    def __init__(self) -> None:
        self.n_slots = 0
        self._slots: OrderedDict[bytes, int] = OrderedDict()  # key -> slot, the least recently used first
        self._users: dict[bytes, int] = {}
        self._unwritten: dict[int, RequestAdapter] = {}
        self.n_loads = 0

    def acquire(self, adapter: RequestAdapter) -> int | None:
        """The slot of an adapter for one more sequence; None while all slots are in use."""
        if adapter.key not in self._slots:
            slot = self._free_slot()
            if slot is None:
                return None
            self._slots[adapter.key] = slot
            self._unwritten[slot] = adapter
        self._slots.move_to_end(adapter.key)
        self._users[adapter.key] = self._users.get(adapter.key, 0) + 1
        return self._slots[adapter.key]

    def release(self, adapter: RequestAdapter) -> None:
        """Ends one sequence's use of an adapter, whose slot stays until another adapter needs it."""
        self._users[adapter.key] -= 1
        if not self._users[adapter.key]:
            del self._users[adapter.key]

    def _free_slot(self) -> int | None:
        if len(self._slots) < self.n_slots:
            return min({*range(1, self.n_slots + 1)} - {*self._slots.values()})
        idle = next((key for key in self._slots if key not in self._users), None)
        return None if idle is None else self._slots.pop(idle)

    async def write(self, slot: int, write: Write) -> None:
        """Writes the slot's adapter to the device, unless it is there. A cancelled call may be repeated."""
        adapter = self._unwritten.get(slot)
        if adapter is None:
            return
        for group, data in adapter.units().items():
            await write(group, slot, data)
        del self._unwritten[slot]
        self.n_loads += 1

    @property
    def in_use(self) -> int:
        """Slots of running sequences."""
        return len(self._users)

    def drop(self, key: bytes) -> None:
        """Frees the slot of an adapter that no sequence uses, so that a later use writes it again."""
        if key not in self._users:
            slot = self._slots.pop(key, 0)
            self._unwritten.pop(slot, None)

    def clear(self) -> None:
        """Forgets all contents, after a device was lost with them. No sequence may run."""
        self._slots.clear()
        self._unwritten.clear()
