"""Cases of recurrent ops: sequences that start (whatever their slots hold), decode and continue a prefill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.parity.case_tools import array, empty, vector, weight

from camelid.backends.common.op_runner import OpCase

# Three sequences; one that decodes; one whose rows are more than a kernel takes at once.
SEQUENCES: tuple[dict[str, Any], ...] = (
    {"lengths": (3, 1, 2), "positions": (0, 1, 2, 7, 4, 5)},
    {"lengths": (1,), "positions": (9,)},
    {"lengths": (21, 2), "positions": (*range(4, 25), 0, 1)},
)


def conv_cases() -> Iterator[OpCase]:
    """Filters of several widths, also wider than a sequence's rows; channels in two workgroups."""
    for rows in SEQUENCES:
        n = sum(rows["lengths"])
        for act, n_taps, cols, bias in (
            ("silu", 4, 10, {"bias": vector(101, 10)}),
            ("none", 3, 130, {}),
            ("none", 7, 64, {"bias": vector(101, 64)}),
        ):
            yield OpCase(
                op="conv1d",
                views={"y": empty(n, cols), "x": array(102, n, cols)},
                weights={"weight": weight("f32", 103, cols, n_taps), **bias},
                attrs={"act": act},
                slots=array(104, len(rows["lengths"]), (n_taps - 1) * cols),
                **rows,
            )


def recurrent_cases() -> Iterator[OpCase]:
    yield from conv_cases()
