"""The shipped character classes and mappings against `tokenizers`, over every code point."""

from __future__ import annotations

import re

import pytest
from tests.tools import make_unicode
from tokenizers import normalizers

from camelid.text.tokenizers.pretokenize import SPLITTERS
from camelid.text.tokenizers.splitting import FUNCTIONS, compiled
from camelid.text.unicode_tables import (
    ASCII_END,
    BMP_END,
    N_CODE_POINTS,
    compile_published,
    end_of,
    members,
    rows,
    runs,
)


@pytest.mark.conformance
def test_a_class_and_a_mapping_equal_the_oracles() -> None:
    """Every code point, so that stale tables show at once."""
    word, lower = make_unicode.matched(r"\w"), make_unicode.mapped(normalizers.Lowercase())
    assert make_unicode.set_row("word", word) in lines("unicode.txt")
    assert make_unicode.map_row("Lowercase", lower) in lines("unicode_maps.txt")


def lines(name: str) -> list[str]:
    return (make_unicode.DATA / name).read_text("utf-8").splitlines()


@pytest.mark.conformance
@pytest.mark.exhaustive
def test_the_tables_equal_the_oracles() -> None:
    for name, text in make_unicode.files().items():
        assert (make_unicode.DATA / name).read_text("utf-8") == text


def test_ranges_ascend_without_touching() -> None:
    for name in [*rows("unicode.txt"), "L", "N", "P", "S", "Z"]:
        borders = [border for run in runs(name) for border in run]
        assert borders == sorted(set(borders))


@pytest.mark.parametrize("end", [ASCII_END, BMP_END, N_CODE_POINTS])
def test_no_compiled_splitter_uses_the_interpreters_classes(end: int) -> None:
    """Python 3.11 and 3.14 differ in \\w, \\d and \\s, and in re.IGNORECASE."""
    patterns = {pattern for row in SPLITTERS.values() for pattern in row.patterns}
    for pattern in patterns.difference(FUNCTIONS):
        assert not re.search(r"\\[wWdDsSbBp]", compiled(pattern, end).pattern)
        assert not compiled(pattern, end).flags & re.IGNORECASE


def test_a_difference_of_classes_has_the_first_classs_members_alone() -> None:
    assert set(members("Lo-Han")) == set(members("Lo")) - set(members("Han"))


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("", ASCII_END),
        ("a\x7f", ASCII_END),
        ("\x80a", BMP_END),
        ("a\uffff", BMP_END),
        ("\U00010000a", N_CODE_POINTS),
        ("a\U0010ffff", N_CODE_POINTS),
    ],
)
def test_a_text_has_the_end_of_its_highest_character(text: str, end: int) -> None:
    assert end_of(text) == end


@pytest.mark.parametrize("members_of_a_set", [r"\u4e00", r"\x41-\x43", r"\D", r"\f", r"\P{L}", r"a-\z"])
def test_a_set_that_is_not_understood_is_refused(members_of_a_set: str) -> None:
    with pytest.raises(ValueError, match="unsupported escape"):
        compile_published(f"[{members_of_a_set}]")
