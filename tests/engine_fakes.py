"""A backend whose "model" is a hash of the tokens that a sequence's pages really hold.

It keeps page tables, pages and rings as a device would, so a wrong page, slot, position or a unit shared by
two sequences changes ids. `expected_ids` computes the same from the prompt alone, and is the oracle.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from camelid.backends.base import Capabilities, OutputRow, Pool, Program, Result, Ticket
from camelid.backends.null import NullBackend
from camelid.engine import StepEngine, Stream
from camelid.plan.plan import Plan, StateSpec
from camelid.plan.step import FROM_RING, Step, decode_step
from camelid.sampling import SamplingParams
from camelid.scheduler import DECODE, MIXED, Limits, program_key
from camelid.sequence import Request
from camelid.state import StateManager

VOCAB, PAGE_ROWS, RING_ROWS = 1000, 4, 16
EOS = 0  # no hash is 0
STATES = (
    StateSpec("kv", "paged", (0,), (("k", 1), ("v", 1)), PAGE_ROWS),
    StateSpec("tokens", "ring", (), (("id", 1),), RING_ROWS),
)
GREEDY = SamplingParams(temperature=0.0, seed=0)


def hashed(token_ids: Sequence[int]) -> int:
    """The id that follows these: 1 .. VOCAB - 1."""
    digest = hashlib.blake2b(repr(list(token_ids)).encode(), digest_size=8).digest()
    return 1 + int.from_bytes(digest, "little") % (VOCAB - 1)


def expected_ids(prompt: Sequence[int], n: int) -> list[int]:
    ids = list(prompt)
    for _ in range(n):
        ids.append(hashed(ids))
    return ids[len(prompt) :]


@dataclass
class Memory:
    """What the device holds: pages, page tables and rings, all poisoned at first."""

    pages: list[list[int]]
    table: list[list[int]]
    rings: list[list[int]]


@dataclass
class HashBackend(NullBackend):
    """Computes in `run`, answers in `read`, keeps every step. `faults` maps a step to what goes wrong."""

    depth: int = 2
    eos_after: dict[int, int] = field(default_factory=dict)  # last prompt token -> position where EOS comes
    run_faults: dict[int, Exception] = field(default_factory=dict)
    read_faults: dict[int, Exception] = field(default_factory=dict)
    statuses: dict[int, str] = field(
        default_factory=dict
    )  # position -> status, for prompts that begin with 7
    steps: list[Step] = field(default_factory=list)
    entries: list[str] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    memory_: Memory | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="hash", device="test", ops=frozenset(), weight_types=frozenset(), promise="A+B",
            max_in_flight=self.depth,
        )  # fmt: skip

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, Pool]) -> None:
        kv, tokens = units["kv"], units["tokens"]
        self.memory_ = Memory(
            [[-1] * PAGE_ROWS for _ in range(kv.units)],
            [[0] * kv.table_cols for _ in range(kv.table_rows)],
            [[-1] * RING_ROWS for _ in range(tokens.units)],
        )

    def run(self, program: Program, step: bytes, inputs: Mapping[str, Ticket] | None = None) -> Ticket:
        decoded = decode_step(step, program.plan.layout)
        number = len(self.steps)
        self.steps.append(decoded)
        self.entries.append(program.key.entry)
        if number in self.run_faults:
            raise self.run_faults[number]
        return Ticket(program, len(decoded.outputs), (number, self.compute(decoded)))

    async def read(self, ticket: Ticket) -> Result:
        number, rows = ticket.handle
        await asyncio.sleep(0)
        self.reads.append(number)
        if number in self.read_faults:
            raise self.read_faults[number]
        return rows

    def compute(self, step: Step) -> list[OutputRow]:
        memory = self.memory_
        assert memory is not None
        for group, table_row, index, unit in step.updates:
            assert group == 0
            assert table_row and unit, "row and unit 0 are trash"
            memory.table[table_row][index] = unit
        for row in step.rows:
            (table_row, _, _), (slot, _, _) = step.sequences[row.sequence].groups
            token = memory.rings[slot][row.state_row % RING_ROWS] if row.source == FROM_RING else row.value
            unit = memory.table[table_row][row.state_row // PAGE_ROWS]
            assert unit, "a row was written to trash"
            assert row.positions == (row.state_row,)
            memory.pages[unit][row.state_row % PAGE_ROWS] = token
        return [self.output(step, *output) for output in step.outputs]

    def output(self, step: Step, row: int, sequence: int, position: int) -> OutputRow:
        memory = self.memory_
        assert memory is not None
        (table_row, _, _), (_, slot, _) = step.sequences[sequence].groups
        assert step.rows[row].state_row == position - 1
        table = memory.table[table_row]
        tokens = [memory.pages[table[i // PAGE_ROWS]][i % PAGE_ROWS] for i in range(position)]
        token = EOS if self.eos_after.get(tokens[0]) == position else hashed(tokens)
        memory.rings[slot][position % RING_ROWS] = token
        status = self.statuses.get(position, "ok") if tokens[0] == 7 else "ok"
        return OutputRow(token_id=token, status=status, logit=1.0, log_sum_exp=1.5)


def make_plan(entry: str, limits: Limits) -> Plan:
    return Plan(key=program_key(entry, limits, PAGE_ROWS), stages=(), states=STATES)


async def make_engine(
    backend: HashBackend,
    *,
    context: int = 64,
    parallel: int = 3,
    chunk: int = 8,
    n_pages: int | None = None,
    max_in_flight: int | None = None,
) -> StepEngine:
    limits = Limits(chunk, parallel)
    state = StateManager(STATES, context=context, n_sequences=parallel, n_pages=n_pages)
    await backend.allocate(STATES, state.sizes())
    programs = {entry: await backend.compile(make_plan(entry, limits)) for entry in (DECODE, MIXED)}
    return StepEngine(backend, programs, state, limits=limits, vocab_size=VOCAB, max_in_flight=max_in_flight)


def request(prompt: Sequence[int], max_tokens: int | None = 8, **more: Any) -> Request:
    return Request(
        prompt_ids=tuple(prompt), sampling=GREEDY, max_tokens=max_tokens, eos_ids=frozenset({EOS}), **more
    )


async def collect(stream: Stream) -> list[int]:
    return [event.token_id async for event in stream if event.token_id is not None]
