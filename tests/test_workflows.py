"""The files of continuous integration and pre-commit: valid, pinned, and consistent with the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
Yaml = dict[Any, Any]
PINNED = re.compile(r"actions/[a-z-]+@v\d+")


def read(name: str) -> Yaml:
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


@pytest.fixture(scope="module")
def ci() -> Yaml:
    return read(".github/workflows/ci.yml")


@pytest.fixture(scope="module")
def weekly() -> Yaml:
    return read(".github/workflows/exhaustive.yml")


@pytest.fixture(scope="module")
def hooks() -> dict[str, Yaml]:
    repos = read(".pre-commit-config.yaml")["repos"]
    return {hook["id"]: repo | hook for repo in repos for hook in repo["hooks"]}


def steps(ci: Yaml) -> list[Yaml]:
    return [step for job in ci["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("name", ["ci", "weekly"])
def test_every_step_does_one_thing_and_actions_are_pinned(name: str, request: pytest.FixtureRequest) -> None:
    workflow: Yaml = request.getfixturevalue(name)
    assert all(("run" in step) != ("uses" in step) for step in steps(workflow))
    used = {step["uses"] for step in steps(workflow) if "uses" in step}
    assert used and all(PINNED.fullmatch(name) for name in used)
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())


def jobs_of_make_exhaustive() -> list[str]:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (jobs,) = re.findall(r"^JOBS := \$\(addprefix exhaustive-,(.*)\)$", makefile, re.MULTILINE)
    found = [f"exhaustive-{name}" for name in jobs.split()]
    assert all(re.search(rf"^{job}:", makefile, re.MULTILINE) for job in found)
    return found


def test_every_job_of_make_exhaustive_runs_weekly_and_accepts_no_unknown_skip(weekly: Yaml) -> None:
    assert weekly[True]["schedule"]  # YAML 1.1 reads the key "on" as true
    assert weekly["jobs"]["linux"]["strategy"]["matrix"]["job"] == jobs_of_make_exhaustive()
    commands = [step["run"] for step in steps(weekly) if "run" in step]
    assert {"make ${{ matrix.job }}", "python -m pytest --exhaustive -m unit"} <= {*commands}
    assert all(job["env"]["CI"] == "true" for job in weekly["jobs"].values())


def test_the_ci_script_lints_builds_and_tests() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert re.findall(r"^make (.*)$", script, re.MULTILINE) == ["lint", "build", "test"]
    assert re.search("^set -eu$", script, re.MULTILINE) and "\nexport CI=true\n" in script
    assert "\n.ci/setup cached-rivals\n" in script


def test_steps_name_existing_files(ci: Yaml) -> None:
    words = {word for step in steps(ci) for word in step.get("run", "").split()}
    named = {word for word in words if word.startswith(".ci/") or word.endswith(".py")}
    assert named == {".ci/run", ".ci/check-adapter", "web/build.py"}
    assert all((ROOT / name).is_file() for name in named)
    scripts = [ROOT / name for name in named if name.startswith(".ci/")]
    assert sys.platform == "win32" or all(os.access(script, os.X_OK) for script in scripts)


def matrices(workflow: Yaml) -> tuple[Yaml, Yaml]:
    linux, desktop = (workflow["jobs"][name]["strategy"]["matrix"] for name in ("linux", "desktop"))
    return linux, desktop


def test_every_system_runs_the_oldest_and_a_new_python(ci: Yaml, weekly: Yaml) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=")
    (linux, desktop), (linux_weekly, desktop_weekly) = matrices(ci), matrices(weekly)
    for pythons in ([row["python"] for row in linux["include"]], desktop["python"]):
        assert pythons == [oldest, "3.13"]
    assert (linux_weekly["include"], desktop_weekly["os"]) == (linux["include"], desktop["os"])
    assert linux_weekly["python"] == desktop_weekly["python"] == desktop["python"]
    apis = {row["os"].split("-")[0]: row["api"] for row in desktop["include"]}
    assert apis == {"macos": "metal", "windows": "dx12"}
    assert {row["os"] for row in desktop["include"]} == set(desktop["os"])


def test_hooks_are_local_and_pinned_as_the_project_pins(hooks: dict[str, Yaml]) -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    assert {hook["repo"] for hook in hooks.values()} == {"local"}
    for hook in hooks.values():
        packages = hook.get("additional_dependencies", [])
        assert (hook["language"] == "python") == bool(packages)
        assert all(re.fullmatch(r"[a-z]+==[\d.]+", package) for package in packages)
    ruffs = {p for hook in hooks.values() for p in hook.get("additional_dependencies", []) if "ruff" in p}
    assert ruffs <= set(groups["lint"]) and len(ruffs) == 1
    assert (ROOT / "tests" / "parity" / "test_lint.py").is_file()
    assert "tests/parity/test_lint.py" in hooks["shaders"]["entry"]


@pytest.mark.parametrize(
    ("path", "is_shader"),
    [
        ("shaders/norm.wgsl", True),
        ("core/camelid/backends/webgpu/kernels.py", True),
        ("core/camelid/backends/webgpu/shaders.py", True),
        ("core/camelid/api/llm.py", False),
    ],
)
def test_every_shader_source_starts_the_shader_hook(
    path: str, is_shader: bool, hooks: dict[str, Yaml]
) -> None:
    assert (ROOT / path).is_file()
    assert bool(re.search(hooks["shaders"]["files"], path)) is is_shader


OLD = '#!/bin/sh\ncase "$2" in *version_info*) exit 1 ;; esac\n'


@pytest.mark.skipif(sys.platform == "win32", reason="not on this platform: a shell script")
@pytest.mark.parametrize("named", [True, False])
def test_setup_refuses_an_old_python_in_one_line(named: bool, tmp_path: Path) -> None:
    """`python3` of PATH and `PYTHON=` alike, before any package is installed."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    (tmp_path / "bin").mkdir()
    old = tmp_path / "bin" / "python3"
    old.write_text(OLD)
    old.chmod(0o755)
    env = os.environ | {"PYTHON": str(old) if named else "", "PATH": f"{old.parent}:/usr/bin:/bin"}
    done = subprocess.run([tmp_path / ".ci" / "setup", "run"], env=env, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == "" and not (tmp_path / ".venv").exists()
    (line,) = done.stderr.splitlines()
    assert "older than Python 3.11" in line and "make PYTHON=/path/to/python3.12" in line


@pytest.mark.e2e
def test_a_missing_adapter_fails_the_check() -> None:
    script = [sys.executable, str(ROOT / ".ci" / "check-adapter"), "vulkan", "no such adapter"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "core")}
    done = subprocess.run(script, capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 1 and "no such adapter" in done.stderr and "Traceback" not in done.stderr
