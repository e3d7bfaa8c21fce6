"""The rules of tests/conftest.py on tiers and skips hold here too."""

from tests.conftest import pytest_collectreport, pytest_itemcollected, pytest_runtest_makereport

__all__ = ["pytest_collectreport", "pytest_itemcollected", "pytest_runtest_makereport"]
