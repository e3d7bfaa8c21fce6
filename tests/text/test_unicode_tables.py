"""The shipped character classes against the regex engine of `tokenizers`, over every code point."""

from __future__ import annotations

import re

import pytest
from tests.tools import make_unicode

from camelid.text.pretokenize import SPLITTERS
from camelid.text.unicode_tables import compile_published, tables


@pytest.mark.conformance
def test_the_table_is_what_the_oracle_says() -> None:
    assert make_unicode.TABLE.read_text("utf-8") == make_unicode.table()


def test_ranges_ascend_without_touching() -> None:
    for runs in tables().values():
        borders = [border for run in runs for border in run]
        assert borders == sorted(set(borders))


def test_no_class_of_the_interpreter_is_left_in_a_compiled_splitter() -> None:
    """Python 3.11 and 3.14 disagree about \\w, \\d and \\s, and about re.IGNORECASE."""
    for splitter in SPLITTERS.values():
        for pattern in splitter.patterns:
            compiled = compile_published(pattern)
            assert not re.search(r"\\[wWdDsSbBp]", compiled.pattern)
            assert not compiled.flags & re.IGNORECASE
