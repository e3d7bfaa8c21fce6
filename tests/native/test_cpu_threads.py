"""Number of threads: affinity, the container's quota, the option; and binding to processors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from camelid.backends.common import processors as system
from camelid.errors import RequestError
from camelid_native.cpu import threads as cpu_threads
from camelid_native.cpu.api import Library
from camelid_native.cpu.threads import MAX_THREADS, may_pin, processors

ALLOWED = [1, 2, 5, 7]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four processors, no quota."""
    monkeypatch.setattr(cpu_threads, "allowed_processors", lambda: ALLOWED)
    monkeypatch.setattr(cpu_threads, "cpu_quota", lambda: None)


@pytest.mark.parametrize(
    ("asked", "quota", "want"),
    [
        (None, None, [1, 2, 5, 7]),
        (None, 2.0, [1, 2]),
        (None, 2.9, [1, 2]),
        (None, 0.5, [1]),
        (None, 64.0, [1, 2, 5, 7]),
        (3, 1.0, [1, 2, 5]),
        (6, None, [1, 2, 5, 7, 1, 2]),
    ],
)
def test_processors(
    asked: int | None, quota: float | None, want: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_threads, "cpu_quota", lambda: quota)
    assert processors(asked) == want


@pytest.mark.parametrize("n", [-1, 0, MAX_THREADS + 1, 1 << 40])
def test_invalid_numbers_are_refused(n: int) -> None:
    with pytest.raises(
        RequestError, match=f"threads is {n:,}, expected an integer from 1 to 1,024"
    ) as caught:
        processors(n)
    assert caught.value.facts["field"] == "threads"


def test_the_maximum_is_accepted() -> None:
    assert len(processors(MAX_THREADS)) == MAX_THREADS


def test_a_quota_of_cgroup_version_1_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("200000\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    monkeypatch.setattr(cpu_threads, "cpu_quota", lambda: system.cpu_quota(tmp_path))
    assert processors() == [1, 2]


@pytest.mark.parametrize(
    ("cpus", "want"), [([1, 2, 5, 7], True), ([1, 2], False), ([1], False), ([1, 2, 5, 7, 1], False)]
)
def test_threads_are_bound_only_if_they_use_every_processor(cpus: list[int], want: bool) -> None:
    assert may_pin(cpus) is want


@pytest.mark.parametrize(("cpus", "want"), [([1, 2, 5, 7], [1, 2, 5, 7]), ([1, 2], None)])
def test_a_pool_receives_the_binding(
    cpus: list[int], want: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, told = Library(), list[tuple[int, list[int] | None, bool]]()

    def start(n: int, bound: ctypes.Array[ctypes.c_uint32] | None, with_host: bool) -> int:
        told.append((n, None if bound is None else list(bound), with_host))
        return 1

    monkeypatch.setattr(library, "_c", SimpleNamespace(cam_start=start))
    assert library.start(cpus, with_host=True) == 1
    assert told == [(len(cpus), want, want is not None)]
