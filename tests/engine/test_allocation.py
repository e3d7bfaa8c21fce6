"""Unit pools (free, held, cached), and the prefix cache's pages by their tokens."""

from __future__ import annotations

from random import Random

import pytest

from camelid.engine.allocation import UnitPool
from camelid.engine.prefix_cache import PrefixCache, page_key, root_key
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


PAGE = 4


def known_pages(cache: PrefixCache, tokens: list[int], salt: str = "") -> list[bool]:
    return [entry is not None for _, entry in cache.walk(tokens, salt)]


def add(cache: PrefixCache, tokens: list[int], salt: str = "") -> None:
    """Adds all full pages of these tokens, in units numbered by their first token."""
    key = root_key(salt)
    for at in range(0, len(tokens) - PAGE + 1, PAGE):
        page = tuple(tokens[at : at + PAGE])
        cache.add_unit(cache.add_page(key, page), "kv", page[0])
        key = page_key(key, page)


def test_pages_are_found_by_all_tokens_before_them_and_by_salt() -> None:
    cache = PrefixCache(PAGE)
    add(cache, [1, 2, 3, 4, 5, 6, 7, 8])
    assert known_pages(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == [True, True]
    assert known_pages(cache, [1, 2, 3, 4, 5, 6, 7, 9]) == [True, False]
    assert known_pages(cache, [9, 2, 3, 4, 5, 6, 7, 8]) == [False, False]
    assert known_pages(cache, [1, 2, 3, 4], salt="other") == [False]


def test_a_key_collision_matches_no_other_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("camelid.engine.prefix_cache.page_key", lambda parent, tokens: b"same")
    cache = PrefixCache(PAGE)
    add(cache, [1, 2, 3, 4])
    assert known_pages(cache, [1, 2, 3, 4]) == [True]
    assert known_pages(cache, [1, 2, 3, 5]) == [False]


def test_forgetting_a_displaced_page_keeps_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("camelid.engine.prefix_cache.page_key", lambda parent, tokens: b"same")
    cache = PrefixCache(PAGE)
    add(cache, [1, 2, 3, 4])
    add(cache, [5, 6, 7, 8])
    cache.remove_unit("kv", 1)
    assert known_pages(cache, [5, 6, 7, 8]) == [True]


def test_a_page_is_forgotten_with_its_last_unit() -> None:
    cache = PrefixCache(PAGE)
    entry = cache.add_page(root_key(""), (1, 2, 3, 4))
    cache.add_unit(entry, "kv", 7)
    cache.add_unit(entry, "window", 9)
    cache.remove_unit("kv", 7)
    assert known_pages(cache, [1, 2, 3, 4]) == [True]
    cache.remove_unit("window", 9)
    assert known_pages(cache, [1, 2, 3, 4]) == [False]
    cache.remove_unit("window", 9)


def test_a_tail_matches_its_common_prefix_and_the_newest_tail_wins() -> None:
    cache, root = PrefixCache(PAGE), root_key("")
    first, former = cache.add_tail(root, (1, 2, 3))
    cache.add_unit(first, "kv", 5)
    assert former is None
    assert cache.tail(root, [1, 2, 9, 9]) == (first, 2)
    assert cache.tail(root, [1, 2, 3, 4]) == (first, 3)
    assert cache.tail(root, [1]) == (first, 1)
    assert cache.tail(root, [2, 2, 3]) is None
    assert cache.tail(root_key("x"), [1, 2, 3]) is None
    second, former = cache.add_tail(root, (8,))
    assert former is first
    cache.remove_unit("kv", 5)
    assert cache.tail(root, [8, 8]) == (second, 1), "forgetting the former tail removed the new one"
