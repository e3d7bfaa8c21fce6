"""The rule of conftest.py: under CI an unknown skip, or a tier in which nothing passed, is a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
PASSES = "def test_passes(): pass\n"
SKIPS = "import pytest\n@pytest.mark.{tier}\ndef test_skips(): pytest.skip({reason!r})\n"


def pytest_in(folder: Path, text: str, *options: str, **environment: str) -> tuple[int, str]:
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "test_sample.py").write_text(text)
    markers = "\n".join(f"  {name}: a tier" for name in ("unit", "conformance", "parity", "e2e", "faults"))
    (folder / "pytest.ini").write_text(f"[pytest]\nmarkers =\n{markers}\n")
    clean = {key: value for key, value in os.environ.items() if key not in {"CI", "CAMELID_NO_SKIPS"}}
    clean |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # half of a run would be their imports
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist.plugin"]
    command += [*options, str(folder)]
    done = subprocess.run(command, env=clean | environment, capture_output=True, text=True, cwd=folder)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("tier", "reason", "complaint"),
    [
        ("unit", "no adapter", "'no adapter' is not in ALLOWED_SKIPS"),
        ("unit", "shared material absent: nothing there", None),
        ("parity", "shared material absent: nothing there", "tier parity: 1 tests, none passed"),
    ],
)
@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "two processes"])
def test_ci_accepts_known_skips_only(
    tmp_path: Path, tier: str, reason: str, complaint: str | None, options: tuple[str, ...]
) -> None:
    text = PASSES + SKIPS.format(tier=tier, reason=reason)
    assert pytest_in(tmp_path, text, *options)[0] == 0
    code, out = pytest_in(tmp_path, text, *options, CI="true")
    assert code == (1 if complaint else 0)
    assert complaint is None or complaint in out


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "two processes"])
def test_ci_sees_a_file_that_skips_itself(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "test_whole.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    code, out = pytest_in(tmp_path, PASSES, *options, CI="true")
    assert code != 0
    assert "could not import 'no_such_module'" in out
