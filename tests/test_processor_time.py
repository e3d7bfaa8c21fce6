"""The limit of processor time that tests set: it holds for a block that raises, too."""

from __future__ import annotations

import pytest
from tests.support.processor_time import within


@pytest.mark.parametrize("raises", [False, True])
def test_a_slow_block_fails(raises: bool) -> None:
    with pytest.raises(AssertionError, match="of the processor"), within(1e-3):
        assert sum(range(10_000_000)) > 0
        if raises:
            raise ValueError
