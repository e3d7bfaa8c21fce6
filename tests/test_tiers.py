"""The rules of conftest.py: CI fails on an unknown skip and on a tier without a passed test; an ordinary run
deselects exhaustive tests and prints their number.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.exhaustive import share_of

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
MARKERS = ("unit", "conformance", "parity", "e2e", "faults", "exhaustive")
WAYS = {"two processes": ("-n", "2"), "alone": ()}
in_both_ways = pytest.mark.parametrize("way", WAYS)
as_make_test_does = pytest.mark.parametrize("way", share_of(WAYS))
PASSES = "def test_passes(): pass\n"
EXHAUSTIVE = "import pytest\n@pytest.mark.exhaustive\ndef test_fails(): assert False\n"
SKIPS = "import pytest\n@pytest.mark.{tier}\ndef test_skips(): pytest.skip({reason!r})\n"


def pytest_in(folder: Path, text: str, *options: str, **environment: str) -> tuple[int, str]:
    shutil.copy(ROOT / "conftest.py", folder)
    (folder / "test_sample.py").write_text(text)
    markers = "\n".join(f"  {name}: a tier" for name in MARKERS)
    (folder / "pytest.ini").write_text(f"[pytest]\nmarkers =\n{markers}\n")
    clean = {key: value for key, value in os.environ.items() if key not in {"CI", "CAMELID_NO_SKIPS"}}
    clean |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # half of a run would be plugin imports
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist.plugin"]
    command += options
    done = subprocess.run(command, env=clean | environment, capture_output=True, text=True, cwd=folder)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("tier", "reason", "complaint"),
    share_of(
        [
            ("parity", "shared material absent: nothing there", "tier parity: 1 tests, none passed"),
            ("unit", "shared material absent: nothing there", None),
            ("unit", "no adapter", "'no adapter' is not in ALLOWED_SKIPS"),
        ],
        2,
    ),
)
@as_make_test_does
def test_ci_accepts_known_skips_only(
    tmp_path: Path, tier: str, reason: str, complaint: str | None, way: str
) -> None:
    text = PASSES + SKIPS.format(tier=tier, reason=reason)
    assert pytest_in(tmp_path, text, *WAYS[way])[0] == 0
    code, out = pytest_in(tmp_path, text, *WAYS[way], CI="true")
    assert code == (1 if complaint else 0)
    assert complaint is None or complaint in out


@in_both_ways
def test_ci_refuses_a_file_that_skips_itself(tmp_path: Path, way: str) -> None:
    (tmp_path / "test_whole.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    code, out = pytest_in(tmp_path, PASSES, *WAYS[way], CI="true")
    assert code != 0
    assert "could not import 'no_such_module'" in out


@in_both_ways
def test_exhaustive_tests_run_on_request(tmp_path: Path, way: str) -> None:
    code, out = pytest_in(tmp_path, EXHAUSTIVE + PASSES, *WAYS[way], CI="true")
    assert code == 0 and "1 passed" in out
    assert out.count("exhaustive tests left out: 1 (`make exhaustive` runs them)") == 1
    for asked in (["--exhaustive", "-m", "unit"], ["test_sample.py::test_fails"], ["-k", "fails"]):
        code, out = pytest_in(tmp_path, EXHAUSTIVE + PASSES, *WAYS[way], *asked)
        assert code == 1 and "1 failed" in out and "passed" not in out and "left out" not in out


def test_whole_runs_deselect_nothing(tmp_path: Path) -> None:
    code, out = pytest_in(tmp_path, EXHAUSTIVE + PASSES, "--whole")
    assert code == 1 and "1 failed, 1 passed" in out and "left out" not in out


def test_last_failed_runs_exhaustive_tests(tmp_path: Path) -> None:
    kept = ("-p", "cacheprovider")
    pytest_in(tmp_path, EXHAUSTIVE + PASSES, *kept, "--exhaustive")
    code, out = pytest_in(tmp_path, EXHAUSTIVE + PASSES, *kept, "--last-failed")
    assert code == 1 and "1 failed" in out and "passed" not in out
