"""Every architecture on the CPU kernels: the logits of its golden model equal the reference's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.exhaustive import every, exhaustive
from tests.support.hf_models import HfCase, load_cases
from tests.support.native.kernels import VARIANTS
from tests.support.parity.arch_runs import check_chunks, check_logits

from camelid_native.cpu.backend import open_backend

pytestmark = pytest.mark.parity

CASES = load_cases()


def pairs() -> Iterator[object]:
    """Each case with each variant; in ordinary runs each third case with the newest one, a few with all."""
    for i, case in enumerate(CASES):
        for variant in VARIANTS:
            one = (case, variant)
            yield one if i % (3 if variant == VARIANTS[-1] else 24) == 0 else exhaustive(one)


@pytest.mark.parametrize(("case", "variant"), [*pairs()], ids=str)
def test_logits_equal_the_reference(case: HfCase, variant: str, tmp_path: Path) -> None:
    check_logits(open_backend, case, variant, tmp_path)


@pytest.mark.parametrize("case", every(12, CASES), ids=str)
def test_logits_of_bf16_are_close_to_the_reference(case: HfCase, tmp_path: Path) -> None:
    check_logits(open_backend, case, VARIANTS[-1], tmp_path, "bf16")


@pytest.mark.parametrize("case", every(9, CASES), ids=str)
def test_chunks_change_no_bit(case: HfCase, tmp_path: Path) -> None:
    check_chunks(open_backend, case, tmp_path)
