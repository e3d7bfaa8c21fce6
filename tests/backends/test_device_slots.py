"""Adapter slots of models on several devices: beside the KV cache, and after a failure of one device."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.random_adapters import random_adapter

import camelid
from camelid import LLM
from camelid.errors import BackendError, OutOfMemoryError

SEVERAL = [{"tensor_parallel": 2}, {"pipeline_parallel": 2}]


def load(**how: Any) -> LLM:
    return camelid.load("cria", backend="reference", context=64, **how)


def answer(llm: LLM, **how: Any) -> str:
    return llm.generate("The sky is", temperature=0, max_tokens=12, **how).text


def page(llm: LLM) -> bytes:
    return llm._runner.run(llm.running.backend.read_state("kv", 1))


def last_device(llm: LLM) -> Any:
    backend: Any = llm.running.backend
    return backend.backends[-1]


async def full(*_: object) -> None:
    raise OutOfMemoryError("the device is full")


@pytest.fixture(scope="module")
def wanted() -> tuple[str, str]:
    """The answers of one device, without and with the adapter."""
    with load() as llm:
        return answer(llm), answer(llm, adapter=llm.load_adapter(random_adapter(llm, 3)))


@pytest.mark.parametrize("how", SEVERAL, ids=str)
def test_slots_stand_beside_the_kv_cache(how: dict[str, Any], wanted: tuple[str, str]) -> None:
    with load(**how) as llm:
        assert answer(llm) == wanted[0] != wanted[1]
        before = page(llm)
        name = llm.load_adapter(random_adapter(llm, 3))
        assert page(llm) == before
        assert (answer(llm), answer(llm, adapter=name)) == wanted


@pytest.mark.parametrize("how", SEVERAL, ids=str)
def test_slots_that_failed_on_a_device_are_added_by_the_next_call(
    how: dict[str, Any], wanted: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with load(**how) as llm:
        answer(llm)
        before, adapter = page(llm), random_adapter(llm, 3)
        with monkeypatch.context() as patch, pytest.raises(OutOfMemoryError, match="device is full"):
            patch.setattr(last_device(llm), "allocate", full)
            llm.load_adapter(adapter)
        assert page(llm) == before
        assert answer(llm) == wanted[0]
        name = llm.load_adapter(adapter)
        assert page(llm) == before
        assert (answer(llm), answer(llm, adapter=name)) == wanted


def test_slots_of_another_size_are_refused_on_a_device_that_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    with load(tensor_parallel=2) as llm:
        with monkeypatch.context() as patch, pytest.raises(OutOfMemoryError):
            patch.setattr(last_device(llm), "allocate", full)
            llm.load_adapter(random_adapter(llm, 3, rank=20))
        with pytest.raises(BackendError, match=r"device 1 of 2: .* in another size, .* load the model anew"):
            llm.load_adapter(random_adapter(llm, 3, rank=4))
