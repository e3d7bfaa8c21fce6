"""One run of a plan as a graph: the step's words as arrays, the buffers, and the state.

Counts of a step are known on the device alone, so a graph always has a program's capacities. Rows beyond the
step's count are *dead*: their words are zeros, they compute numbers that nobody reads, and what they write to
state goes to index 0, which belongs to unit 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from camelid.plan.plan import Plan, StateRef, StateSpec, View
from camelid.plan.step import BIAS, COPY, GROUP, OUTPUT, ROW, SAMPLING, SEQUENCE, UPDATE
from camelid_native.mlx.arrays import Array, indices, mx
from camelid_native.mlx.layouts import Weights

Key = tuple[str, int, str]  # state group, layer, tensor
TABLE = "table"  # in a key: the page table of a group, with layer 0


class Variant(NamedTuple):
    """Work of a step beyond the common one: copies of units, noise for draws, changes of logits."""

    copies: bool
    draws: bool
    adjusts: bool


@dataclass(kw_only=True)
class Trace:
    """The graph of one run while it is built. No slots: `cached_property` needs a `__dict__`."""

    plan: Plan
    weights: Weights
    words: Array  # the step, u32
    state: dict[Key, Array]  # page tables have one entry more, at index 0, for dead updates
    table_cols: dict[str, int]
    values: dict[str, Array]  # buffers by name, [capacity, cols]
    variant: Variant
    results: dict[str, Array] = field(default_factory=dict[str, Array])  # sections of common/results.py

    def read(self, view: View) -> Array:  # [rows, cols]
        buffer = self.values[view.buffer.name]
        return buffer if view.cols == view.stride else buffer[:, view.offset : view.offset + view.cols]

    def write(self, view: View, value: Array) -> None:
        name = view.buffer.name
        if view.cols == view.stride:
            self.values[name] = value
            return
        buffer = self.values[name] if name in self.values else mx.zeros((len(value), view.stride))
        end = view.offset + view.cols
        sides = (buffer[:, : view.offset], value, buffer[:, end:])
        self.values[name] = mx.concatenate([side for side in sides if side.shape[1]], axis=1)

    def spec(self, ref: StateRef) -> StateSpec:
        return self.plan.state(ref.group)

    def count(self, name: str) -> Array:  # scalar
        return self.words[self.plan.layout.header_word(name)]

    @cached_property
    def rows(self) -> Array:  # [T, words of a row]
        return self._section(self.plan.layout.rows_at, self.plan.rows["T"], self.plan.layout.row_words)

    @cached_property
    def sequences(self) -> Array:  # [S, words of a sequence]
        layout = self.plan.layout
        return self._section(layout.sequences_at, self.plan.rows["S"], layout.sequence_words)

    @cached_property
    def outputs(self) -> Array:  # [O, 3]
        return self._section(self.plan.layout.outputs_at, self.plan.rows["O"], len(OUTPUT))

    @cached_property
    def sampling(self) -> Array:  # [S, words of a sampling row]
        return self._section(self.plan.layout.sampling_at, self.plan.rows["S"], len(SAMPLING))

    @cached_property
    def biases(self) -> Array:  # [B, 2]
        return self._section(self.plan.layout.biases_at, self.plan.key.capacity.biases, len(BIAS))

    @cached_property
    def updates(self) -> Array:  # [U, 4]
        return self._section(self.plan.layout.updates_at, self.plan.key.capacity.updates, len(UPDATE))

    @cached_property
    def copies(self) -> Array:  # [P, 4]
        return self._section(self.plan.layout.copies_at, self.plan.key.capacity.copies, len(COPY))

    def _section(self, start: int, n: int, width: int) -> Array:
        return self.words[start : start + n * width].reshape(n, width)

    @cached_property
    def row_numbers(self) -> Array:  # [T]
        return indices(self.plan.rows["T"])

    @cached_property
    def is_live(self) -> Array:  # [T]
        return self.row_numbers < self.count("rows")

    @cached_property
    def is_live_sequence(self) -> Array:  # [S]
        return indices(self.plan.rows["S"]) < self.count("sequences")

    @cached_property
    def is_live_output(self) -> Array:  # [O]
        return indices(self.plan.rows["O"]) < self.count("outputs")

    def row_word(self, name: str) -> Array:  # [T]
        return self.rows[:, ROW.index(name)]

    def positions(self, channel: int = 0) -> Array:  # [T]
        return self.rows[:, len(ROW) + channel]

    @cached_property
    def of_rows(self) -> Array:  # [T, words of a sequence]
        """The words of each row's sequence."""
        return self.sequences[self.row_word("sequence")]

    @cached_property
    def of_outputs(self) -> Array:  # [O, words of a sequence]
        """The words of each output's sequence."""
        return self.sequences[self.outputs[:, OUTPUT.index("sequence")]]

    def group_word(self, words: Array, group: str, name: str) -> Array:  # [n, words of a sequence] -> [n]
        return words[:, len(SEQUENCE) + len(GROUP) * self.plan.group(group) + GROUP.index(name)]

    def sequence_word(self, words: Array, name: str) -> Array:  # [n, words of a sequence] -> [n]
        return words[:, SEQUENCE.index(name)]

    def pages_of_rows(self, group: str, numbers: Array) -> Array:  # numbers of pages [T, n] -> units [T, n]
        first = self.group_word(self.of_rows, group, "read")[:, None] * self.table_cols[group]
        return self.state[group, 0, TABLE][first + numbers + 1]

    def put(self, key: Key, index: Array, value: Array) -> None:
        """Writes rows of state. MLX does so in place if nothing else refers to the array."""
        pool = self.state[key]
        pool[index] = value
        self.state[key] = pool
