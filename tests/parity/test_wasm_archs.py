"""Every architecture on the WASM kernels, in Node: the logits of its golden model equal the reference's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.exhaustive import every
from tests.support.hf_models import HfCase, load_cases
from tests.support.node_host import NodeHost, wasm_host
from tests.support.parity.arch_runs import check_chunks, check_logits

from camelid_native.wasm.backend import WasmBackend

pytestmark = pytest.mark.parity

CASES = load_cases()


@pytest.fixture(scope="module")
def host() -> Iterator[NodeHost]:
    yield wasm_host()


@pytest.mark.parametrize("case", every(5, CASES), ids=str)
def test_logits_equal_the_reference(case: HfCase, host: NodeHost, tmp_path: Path) -> None:
    check_logits(lambda: WasmBackend(host), case, "wasm_relaxed", tmp_path)


@pytest.mark.parametrize("case", every(10, CASES), ids=str)
def test_chunks_change_no_bit(case: HfCase, host: NodeHost, tmp_path: Path) -> None:
    check_chunks(lambda: WasmBackend(host), case, tmp_path)
