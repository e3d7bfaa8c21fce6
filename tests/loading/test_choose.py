"""The choice of a backend: options, and backends left open."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import fields
from typing import Any

import pytest
from tests.support.model.stress.shapes import SHAPES

import camelid
from camelid.backends.base import Capabilities
from camelid.backends.reference.backend import ReferenceBackend
from camelid.backends.staged.backend import StagedBackend
from camelid.errors import BackendError
from camelid.loading import choose
from camelid.loading.options import LoadOptions

MODEL = SHAPES["gpt_oss"].model()


class Opened(ReferenceBackend):
    """A backend with other capabilities that records its end."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.changes, self.is_closed = changes, False

    def capabilities(self) -> Capabilities:
        can = super().capabilities()
        return Capabilities(**{f.name: getattr(can, f.name) for f in fields(can)} | self.changes)

    async def close(self) -> None:
        await super().close()  # calls the constructor
        self.is_closed = True


def test_a_gate_that_raises_leaves_no_backend_open(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Opened()

    async def fail(*_: object) -> str:
        raise asyncio.CancelledError

    monkeypatch.setattr(choose, "open_backend", lambda _: backend)
    monkeypatch.setattr(choose, "may_have_gpu", lambda: True)
    monkeypatch.setattr(choose, "verdict", fail)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(choose.choose_backend(LoadOptions(), MODEL))
    assert backend.is_closed


def test_a_layer_split_has_the_geometry_of_its_devices() -> None:
    """The chunk that every device can run, and the row buckets of any device."""
    parts = [
        Opened(page_rows=32, chunk=128, row_buckets=(1, 4)),
        Opened(page_rows=32, chunk=48, row_buckets=(2,)),
    ]
    can = StagedBackend(parts, (1,), len(MODEL.spec.layers)).capabilities()
    assert (can.page_rows, can.chunk, can.row_buckets) == (32, 48, (1, 2, 4))


def test_a_layer_split_needs_pages_of_one_size() -> None:
    staged = StagedBackend([Opened(page_rows=32), Opened()], (1,), len(MODEL.spec.layers))
    with pytest.raises(BackendError, match="pages of one size: reference has 32, reference has 16"):
        staged.capabilities()


def test_load_and_the_load_options_have_equal_names_and_defaults() -> None:
    """`load` spells the options out, so that editors and type checkers know them."""
    parameters = inspect.signature(camelid.load).parameters.values()
    stated = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "progress"}
    assert stated == {field.name: field.default for field in fields(LoadOptions)}
