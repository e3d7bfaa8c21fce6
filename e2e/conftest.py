"""The rules of tests/conftest.py on tiers and skips hold here too."""

from tests.conftest import (
    pytest_itemcollected,
    pytest_make_collect_report,
    pytest_runtest_logreport,
    pytest_runtest_makereport,
)

__all__ = [
    "pytest_itemcollected",
    "pytest_make_collect_report",
    "pytest_runtest_logreport",
    "pytest_runtest_makereport",
]
