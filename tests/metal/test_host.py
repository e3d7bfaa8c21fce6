"""The backend's contract as on a GPU: the tests of `tests/mlx/test_host.py` on the rig."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.metal.on_rig import MetalOnRig
from tests.mlx import test_host as host

CONTRACT = (
    host.test_memory_is_as_forecast,
    host.test_close_frees_weights_and_state_of_a_held_program,
    host.test_a_truncated_file_is_refused,
    host.test_state_beyond_the_machine_s_memory_is_refused,
    host.test_state_of_another_size_is_refused_and_changes_nothing,
)


@pytest.mark.parametrize("contract", CONTRACT, ids=lambda contract: contract.__name__)
def test_holds_on_a_gpu(contract: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "open_backend", MetalOnRig)
    contract()
