"""Units of a pool: free, referenced, cached."""

from __future__ import annotations

from random import Random

import pytest

from camelid.engine.allocation import UnitPool
from camelid.errors import PlanError


def test_shared_unit_is_free_after_its_last_release() -> None:
    pool = UnitPool(2)
    unit = pool.allocate()
    pool.share(unit)
    pool.free(unit)
    assert (pool.n_free, pool.ref_count(unit)) == (1, 1)
    pool.free(unit)
    assert pool.n_free == 2


def test_cached_unit_is_evicted_only_without_free_units() -> None:
    evicted: list[int] = []
    pool = UnitPool(3, evicted.append)
    units = [pool.allocate() for _ in range(3)]
    for unit in units[:2]:
        pool.mark_cached(unit)
    for unit in reversed(units):
        pool.free(unit)
    assert (pool.n_free, pool.n_cached, pool.n_available) == (1, 2, 3)
    assert pool.allocate() == units[2]
    assert not evicted
    assert [pool.allocate(), pool.allocate()] == [units[1], units[0]], "the longest idle unit stayed"
    assert evicted == [units[1], units[0]]
    assert pool.n_evicted == 2


def test_idle_unit_that_is_shared_again_is_not_evicted() -> None:
    pool = UnitPool(1)
    unit = pool.allocate()
    pool.mark_cached(unit)
    pool.free(unit)
    pool.share(unit)
    assert pool.n_available == 0
    pool.free(unit)
    pool.unmark_cached(unit)
    assert (pool.n_free, pool.n_cached) == (1, 0)


def test_bookkeeping_errors_raise_at_once() -> None:
    pool = UnitPool(1)
    for wrong in (pool.free, pool.share, pool.mark_cached):
        with pytest.raises(PlanError, match="unit 1 was"):
            wrong(1)
    pool.allocate()
    with pytest.raises(PlanError, match="all 1 units are allocated"):
        pool.allocate()


def test_any_order_of_calls_loses_no_unit() -> None:
    random = Random(5)
    pool, held = UnitPool(6), list[int]()
    for _ in range(4000):
        if pool.n_available and random.random() < 0.5:
            held.append(pool.allocate())
        elif held:
            unit = held.pop(random.randrange(len(held)))
            (pool.mark_cached if random.random() < 0.5 else pool.unmark_cached)(unit)
            if random.random() < 0.3:
                pool.share(unit)
                held.append(unit)
            pool.free(unit)
        assert pool.n_available + len(set(held)) == 6
    assert pool.n_evicted > 100
