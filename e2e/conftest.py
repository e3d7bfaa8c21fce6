"""The rules of tests/conftest.py on tiers, skips and long results hold here too."""

from tests.conftest import (
    pytest_itemcollected,
    pytest_make_collect_report,
    pytest_runtest_logreport,
    pytest_runtest_makereport,
    short_results,
)

__all__ = [
    "pytest_itemcollected",
    "pytest_make_collect_report",
    "pytest_runtest_logreport",
    "pytest_runtest_makereport",
    "short_results",
]
