"""Pages of the prefix cache, by their tokens."""

from __future__ import annotations

import pytest

from camelid.engine.prefix_cache import PrefixCache, page_key, root_key

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


def test_pages_are_found_by_their_first_rows_the_longest_first() -> None:
    cache, root = PrefixCache(PAGE), root_key("")
    tail, _ = cache.add_tail(root, (1, 2, 3))
    page = cache.add_page(root, (1, 2, 9, 8))
    assert cache.beginnings(root, [1, 2, 9, 9]) == [(page, 3), (tail, 2)]
    assert cache.beginnings(root, [1, 2, 3, 4]) == [(tail, 3), (page, 2)]
    assert cache.beginnings(root, [1]) == [(page, 1), (tail, 1)], "of as many rows, the latest comes first"
    assert cache.beginnings(root, [1, 2, 9, 8]) == [(tail, 2)], "a whole page is no beginning"
    assert cache.beginnings(root, [2, 2, 3]) == []
    assert cache.beginnings(root_key("x"), [1, 2, 3]) == []


def test_a_tail_replaces_those_with_which_it_begins() -> None:
    cache, root = PrefixCache(PAGE), root_key("")
    first, other = (cache.add_tail(root, tokens)[0] for tokens in ((1, 2), (8,)))
    cache.add_unit(first, "kv", 5)
    second, replaced = cache.add_tail(root, (1, 2, 3))
    assert replaced == [first]
    cache.remove_unit("kv", 5)
    assert cache.beginnings(root, [1, 2, 3, 4]) == [(second, 3)]
    assert cache.beginnings(root, [8, 8]) == [(other, 1)]
