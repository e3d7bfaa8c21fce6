"""Low-rank terms of adapters, and the norm behind a term: the gate's cases."""

from __future__ import annotations

from collections.abc import Iterator

from camelid.backends.common.op_runner import OpCase
from camelid.backends.proof.inputs import with_outputs
from camelid.backends.proof.rows_adapters import rows


def adapter_cases() -> Iterator[OpCase]:
    for row in with_outputs(rows()):
        case = row.made().case
        yield case
