"""A plan as functions of arrays, each traced and compiled by MLX on its first step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from camelid.plan.plan import Plan, View
from camelid.plan.step import SAMPLING
from camelid_native.mlx.arrays import Array, mx
from camelid_native.mlx.kernels import Kernel
from camelid_native.mlx.layouts import Weights
from camelid_native.mlx.states import States
from camelid_native.mlx.trace import Trace, Variant

SECTIONS = ("rows", "candidates", "floats")  # of results, in order (common/results.py)
# Sampling words that change logits, 0 where unused.
ADJUSTING = ("top_k", "min_p", "penalty_last_n", "biases")
Function = Callable[..., tuple[list[Array], list[Array], list[Array]]]


@dataclass(frozen=True, slots=True)
class Graph:
    """A step that is built, not submitted: arrays of results, and of buffers [capacity, cols]."""

    results: list[Array]
    buffers: list[Array]


class MlxProgram:
    """The functions of a plan over some weights and state. Methods belong to the thread that owns MLX."""

    def __init__(self, plan: Plan, weights: Weights, states: States, kernels: Mapping[str, Kernel]) -> None:
        self.plan, self._weights, self.states, self._kernels = plan, weights, states, kernels
        self._keys = states.keys_of(plan)
        self._functions: dict[tuple[Any, ...], Function] = {}

    def build(self, step: bytes, inputs: Mapping[View, bytes], outputs: Sequence[View]) -> Graph:
        """Builds the graph of a step behind those built before. Its state takes the place of the old one, to
        which nothing refers afterwards but the graph.
        """
        views = list(inputs)
        function = self._function(variant_of(self.plan, step), views, outputs)
        given = [self.padded(view, data) for view, data in inputs.items()]
        state = self.states.arrays
        words = mx.array(np.frombuffer(step, np.uint32))
        results, buffers, after = function(words, given, [state[key] for key in self._keys])
        state.update(zip(self._keys, after, strict=True))
        return Graph(results, buffers)

    def forget(self) -> None:
        """Frees the functions, with the arrays that they refer to."""
        self._functions.clear()

    def _function(self, variant: Variant, inputs: Sequence[View], outputs: Sequence[View]) -> Function:
        key = (variant, *inputs, None, *outputs)
        if key not in self._functions:
            self._functions[key] = mx.compile(self._traced(variant, inputs, outputs))
        return self._functions[key]

    def _traced(self, variant: Variant, inputs: Sequence[View], outputs: Sequence[View]) -> Function:
        def function(
            words: Array, given: list[Array], state: list[Array]
        ) -> tuple[list[Array], list[Array], list[Array]]:
            trace = Trace(
                plan=self.plan,
                weights=self._weights,
                words=words,
                state=dict(zip(self._keys, state, strict=True)),
                table_cols=self.states.table_cols,
                values={view.buffer.name: array for view, array in zip(inputs, given, strict=True)},
                variant=variant,
            )
            for op in self.plan.ops:
                self._kernels[op.name](op, trace)
            results = [trace.results[name] for name in SECTIONS if name in trace.results]
            return results, [trace.values[view.buffer.name] for view in outputs], list(trace.state.values())

        return function

    def padded(self, view: View, data: bytes) -> Array:  # [capacity, cols]
        """The rows of a buffer, and zeros up to the program's capacity."""
        rows = np.zeros((self.plan.rows[view.rows], view.stride), np.float32)
        given = np.frombuffer(data, np.float32).reshape(-1, view.stride)
        rows[: len(given)] = given
        return mx.array(rows)


def variant_of(plan: Plan, step: bytes) -> Variant:
    """The variant that a step needs, by its words."""
    layout, words = plan.layout, memoryview(step).cast("I")
    has_copies = words[layout.header_word("copies")] > 0
    end = layout.sampling_at + len(SAMPLING) * _n_sampled(plan, words)
    starts = range(layout.sampling_at, end, len(SAMPLING))
    temperature, adjusting = SAMPLING.index("temperature"), [SAMPLING.index(name) for name in ADJUSTING]
    draws = any(words[start + temperature] for start in starts)
    return Variant(has_copies, draws, any(words[start + i] for start in starts for i in adjusting))


def _n_sampled(plan: Plan, words: memoryview[int]) -> int:
    """Sampling rows of a step: one a sequence, in a plan that samples."""
    samples = any(op.name == "sample" for op in plan.ops[-2:])
    return words[plan.layout.header_word("sequences")] if samples else 0
