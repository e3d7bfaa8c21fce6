"""Products of large weights, of which a lane has several quads on software adapters (matvec_wide.wgsl)."""

from __future__ import annotations

from tests.support.parity.case_tools import array, empty, weight

from camelid.backends.common.op_runner import OpCase

ROWS, N_IN = 11, 1152
TWO_QUADS, FOUR_QUADS = 598, 1006  # weight rows that give a lane two and four quads with one token row


def wide_case(type_: str, n_out: int, rows: int = ROWS) -> OpCase:
    views = {"y": empty(rows, n_out), "x": array(76, rows, N_IN)}
    return OpCase(op="linear", views=views, weights={"weight": weight(type_, 77, n_out, N_IN)})


def wide_cases() -> list[OpCase]:
    """One token row with two and with four quads, and several token rows."""
    return [
        wide_case("q4_0", n_out, rows) for n_out, rows in ((TWO_QUADS, 1), (FOUR_QUADS, 1), (TWO_QUADS, ROWS))
    ]
