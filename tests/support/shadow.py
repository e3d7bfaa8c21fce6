"""A shadow of device memory whose "model" hashes the tokens that its units hold.

It executes a step in a device's order: page-table updates, copies, ring and row writes of all sequences, then
the reads of all outputs. A wrong page, slot or position, a stale or shared unit, or a unit reused while the
step still reads it, changes ids. `expected_ids` computes the ids from the prompt alone, as the oracle.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from hashlib import blake2b

from camelid.backends.base import PoolSize
from camelid.plan.plan import StateSpec
from camelid.plan.step import FROM_RING, Step, StepRow, StepSampling

VOCAB = 1000
POISON = -1  # content of unwritten memory and of units that a failed step wrote
TABLES = ("paged", "window")
START = 0  # a recurrent slot before the first token
View = tuple[int, ...]


def digest(value: object) -> int:
    return int.from_bytes(blake2b(repr(value).encode(), digest_size=8).digest(), "little")


def mixed(state: int, token_id: int) -> int:
    """A recurrent slot after one more token; 63 bits fit a signed word."""
    return digest((state, token_id)) >> 1


def adapted(token_id: int, adapter: int) -> int:
    """The stored value of a row on which an adapter acts; 31 bits fit a signed word."""
    return digest((token_id, "adapter", adapter)) >> 33 if adapter and token_id != POISON else token_id


def drawn(views: Sequence[View], *, how: tuple[object, ...] = ()) -> int:
    """The next id, 1 .. VOCAB - 1: no hash is token 0."""
    return 1 + digest((tuple(views), how)) % (VOCAB - 1)


def f32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def chain_key(how: StepSampling, position: int, recent: Sequence[int]) -> tuple[object, ...]:
    """Inputs of a draw on the device besides the logits: noise, options, penalised ids; greedy: none."""
    penalties = (how.repeat_penalty, how.frequency_penalty, how.presence_penalty)
    is_penalised = penalties != (1.0, 0.0, 0.0)
    if not (how.temperature or is_penalised or how.biases):
        return ()
    noise = (how.seed, how.choice, position + how.offset) if how.temperature > 0 else ()
    numbers = (how.temperature, how.top_k, how.top_p, how.min_p)
    biases = tuple((i, f32(bias)) for i, bias in how.biases)
    return noise, tuple(map(f32, numbers + penalties)), biases, tuple(recent) if is_penalised else ()


def views_of(states: Sequence[StateSpec], token_ids: Sequence[int]) -> Iterator[View]:
    """The view of the row after these tokens in each group that it reads."""
    for state in states:
        if state.kind in TABLES:
            yield tuple(token_ids[max(0, len(token_ids) - (state.window or len(token_ids))) :])
        elif state.kind == "recurrent":
            yield (reduce(mixed, token_ids, START),)


def next_id(
    states: Sequence[StateSpec],
    token_ids: Sequence[int],
    how: StepSampling | None,
    stored: Sequence[int] = (),
) -> int:
    """The oracle: the id that the device draws after these tokens; greedy without `how`.

    `stored` are the rows of the tokens, if an adapter acts on some.
    """
    position = len(token_ids)
    recent = token_ids[max(0, position - how.penalty_last_n) :] if how else ()
    views = tuple(views_of(states, stored or token_ids))
    return drawn(views, how=chain_key(how, position, recent) if how else ())


def expected_ids(
    states: Sequence[StateSpec], prompt: Sequence[int], n: int, how: StepSampling | None = None
) -> list[int]:
    """The oracle: the `n` ids after the prompt."""
    token_ids = list(prompt)
    for _ in range(n):
        token_ids.append(next_id(states, token_ids, how))
    return token_ids[len(prompt) :]


@dataclass
class Group:
    """One state group: the rows of each unit, and page tables where the kind has them."""

    spec: StateSpec
    units: list[list[int]]
    table: list[list[int]]

    @property
    def rows(self) -> int:
        return self.spec.unit_rows

    def place(self, table_row: int, state_row: int) -> tuple[int, int]:
        """Unit, and row in the unit, of one row of a sequence."""
        return self.table[table_row][state_row // self.rows], state_row % self.rows

    def slice(self, table_row: int, state_rows: range) -> View:
        places = (self.place(table_row, i) for i in state_rows)
        return tuple(self.units[unit][row] for unit, row in places)


@dataclass
class Shadow:
    """Memory of all groups. `run` executes one step and returns the views of each output."""

    states: Sequence[StateSpec]
    sizes: Mapping[str, PoolSize]
    groups: list[Group] = field(init=False)

    def __post_init__(self) -> None:
        self.groups = [self._group(s, self.sizes[s.name]) for s in self.states]

    @staticmethod
    def _group(spec: StateSpec, pool: PoolSize) -> Group:
        units = [[POISON] * spec.unit_rows for _ in range(pool.units)]
        return Group(spec, units, [[0] * pool.table_cols for _ in range(pool.table_rows)])

    def group(self, name: str) -> Group:
        return next(g for g in self.groups if g.spec.name == name)

    def kind(self, *kinds: str) -> Iterator[tuple[int, Group]]:
        return ((i, g) for i, g in enumerate(self.groups) if g.spec.kind in kinds)

    def run(self, step: Step, *, is_failed: bool = False) -> list[tuple[View, ...]]:
        """Executes one step. A failed step writes poison."""
        self.update(step)
        self._copy(step)
        adapters = [self._adapter(step, row) for row in step.rows]
        rows = zip(self._embed(step), adapters, strict=True)
        tokens = [POISON if is_failed else adapted(token, adapter) for token, adapter in rows]
        self._write(step, tokens)
        slots = self._recur(step, tokens)
        return [tuple(self._views(step, slots, row)) for row, _, _ in step.outputs]

    def add(self, states: Sequence[StateSpec], sizes: Mapping[str, PoolSize]) -> None:
        """Adds groups, whose units are unwritten."""
        self.groups += [self._group(state, sizes[state.name]) for state in states]

    def _adapter(self, step: Step, row: StepRow) -> int:
        """The content of the adapter slot of a row; 0 without one."""
        slot = step.sequences[row.sequence].adapter
        (group,) = (g for g in self.groups if g.spec.kind == "adapter") if slot else (None,)
        content = group.units[slot][0] if group else 0
        assert content != POISON, "an adapter slot is read before it is written"
        return content

    def update(self, step: Step) -> None:
        for group, table_row, index, unit in step.updates:
            assert self.groups[group].spec.kind in TABLES, "an update of a group without tables"
            assert table_row and unit, "an update of trash: row or unit 0"
            self.groups[group].table[table_row][index] = unit

    def _copy(self, step: Step) -> None:
        held = [list(self.groups[group].units[source]) for group, source, _, _ in step.copies]
        for (group, source, target, n_rows), rows in zip(step.copies, held, strict=True):
            assert source and target, "a copy from or to trash: unit 0"
            self.groups[group].units[target][:n_rows] = rows[:n_rows]

    def _embed(self, step: Step) -> list[int]:
        """Each row's token; rings store the ids that the host supplied."""
        (at, ring), *_ = self.kind("ring")
        slots = [step.sequences[row.sequence].groups[at][0] for row in step.rows]
        places = [
            (ring.units[slot], row.state_row % ring.rows) for slot, row in zip(slots, step.rows, strict=True)
        ]
        tokens = [
            unit[i] if row.source == FROM_RING else row.value
            for row, (unit, i) in zip(step.rows, places, strict=True)
        ]
        for (unit, i), token in zip(places, tokens, strict=True):
            unit[i] = token
        return tokens

    def _write(self, step: Step, tokens: Sequence[int]) -> None:
        for at, group in self.kind(*TABLES):
            written = set[tuple[int, int]]()
            for row, token in zip(step.rows, tokens, strict=True):
                unit, i = self.place(step, row, at)
                assert (unit, i) not in written, f"two rows of a step write {group.spec.name} {unit}.{i}"
                written.add((unit, i))
                group.units[unit][i] = token

    def place(self, step: Step, row: StepRow, at: int) -> tuple[int, int]:
        table_row = step.sequences[row.sequence].groups[at][0]
        unit, i = self.groups[at].place(table_row, row.state_row)
        assert unit, "a row was written to trash"
        assert row.positions == (row.state_row,), "RoPE position and state row differ"
        return unit, i

    def _recur(self, step: Step, tokens: Sequence[int]) -> dict[tuple[int, int], int]:
        """Recurrent state after each row, by (group, row); all slots are read before any is written."""
        after: dict[tuple[int, int], int] = {}
        for at, group in self.kind("recurrent"):
            self._check_slots([s.groups[at] for s in step.sequences])
            starts = [group.units[s.groups[at][0]][0] if s.groups[at][2] else START for s in step.sequences]
            for sequence, state in zip(step.sequences, starts, strict=True):
                for row in range(sequence.first_row, sequence.first_row + sequence.rows):
                    state = after[at, row] = mixed(state, tokens[row])
                group.units[sequence.groups[at][1]][0] = state
        return after

    @staticmethod
    def _check_slots(words: Sequence[tuple[int, int, int]]) -> None:
        """Sequences of a step run at once: a slot has one writer, and a written slot no other reader."""
        targets = Counter(write for _, write, _ in words)
        assert max(targets.values()) == 1, "two sequences write one recurrent slot"
        for read, write, held in words:
            assert not held or read == write or not targets[read], (
                f"slot {read} is read and written in a step"
            )

    def _views(self, step: Step, slots: Mapping[tuple[int, int], int], row: int) -> Iterator[View]:
        for at, group in self.kind(*TABLES, "recurrent"):
            if group.spec.kind == "recurrent":
                yield (slots[at, row],)
            else:
                table_row = step.sequences[step.rows[row].sequence].groups[at][0]
                yield group.slice(table_row, self.seen(step, row, at))

    def seen(self, step: Step, row: int, at: int) -> range:
        """The state rows of a group that a row attends to."""
        end, window = step.rows[row].state_row + 1, self.groups[at].spec.window
        first_kept = step.sequences[step.rows[row].sequence].groups[at][1]
        return range(max(first_kept, end - (window or end)), end)

    def recent(self, step: Step, sequence: int, position: int) -> list[int]:
        """The ids in the ring that a draw for this position penalises."""
        how = step.sampling[step.sequences[sequence].sampling]
        (at, ring), *_ = self.kind("ring")
        unit = ring.units[step.sequences[sequence].groups[at][0]]
        return [unit[i % ring.rows] for i in range(max(0, position - how.penalty_last_n), position)]

    def keep(self, step: Step, token_ids: Sequence[int]) -> None:
        """Writes drawn ids into the rings: of each sequence, only the last output."""
        (at, ring), *_ = self.kind("ring")
        last = {sequence: (p, t) for (_, sequence, p), t in zip(step.outputs, token_ids, strict=True)}
        for sequence, (position, token) in last.items():
            ring.units[step.sequences[sequence].groups[at][1]][position % ring.rows] = token

    def read(self, name: str, unit: int) -> bytes:
        """A unit's bytes: 4 per row, 8 per recurrent slot."""
        rows = self.group(name).units[unit]
        return struct.pack(f"<{len(rows)}{self._code(name)}", *rows)

    def write(self, name: str, unit: int, data: bytes) -> None:
        assert unit, "a write to trash: unit 0"
        rows = self.group(name).units[unit]
        rows[:] = struct.unpack(f"<{len(rows)}{self._code(name)}", data)

    def _code(self, name: str) -> str:
        return "q" if self.group(name).spec.kind == "recurrent" else "i"
