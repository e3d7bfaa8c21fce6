"""Sources of `plain_weights.py`: files whose bytes are computed as they are read, rows of joined planes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from camelid.backends.base import Sources
from camelid.backends.common.part_reader import PartReader
from camelid.backends.common.plain_weights import rows_source
from camelid.backends.common.stored_rows import stored_rows
from camelid.formats.quants import row_bytes
from camelid.plan.weights import Weight


def joined_sources(weights: Iterable[Weight], sources: Sources) -> dict[str, JoinedRows]:
    """The sources of plain weights, by name."""
    return {rows_source(w): JoinedRows(w, sources) for w in weights if w.has_planes}


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """A handle of a weight's rows in its own type; `open` as of a path."""

    weight: Weight
    sources: Sources

    def open(self, _: str = "rb") -> JoinedFile:
        return JoinedFile(self.weight, self.sources)


class JoinedFile:
    """The bytes of a weight's rows. As a context manager it closes the files that it reads."""

    def __init__(self, weight: Weight, sources: Sources) -> None:
        self._reader, self._at = PartReader(sources), 0
        self._stored = stored_rows(weight, self._reader.read)
        self._row_bytes = row_bytes(weight.type, weight.cols)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.__exit__()

    def seek(self, at: int) -> None:
        self._at = at

    def read(self, n_bytes: int) -> bytes:
        """Bytes from the place of `seek` on. Raises the errors of `join_groups.joined`."""
        end, each = self._at + n_bytes, self._row_bytes
        first = self._at // each
        rows = self._stored(first, -(-end // each) - first)
        return rows.tobytes()[self._at - first * each : end - first * each]
