"""Every pipeline compiles under Tint (Dawn's null backend in Node.js) and under Naga (wgpu)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.parity.sections import all_pipelines

pytestmark = pytest.mark.parity

ROOT = Path(__file__).parents[2]
COMMENT = re.compile(r"//.*")
DIVISOR = re.compile(r"[/%] ([A-Z]\w*)")
INTEGER = re.compile(r"^override (\w+): [iu]32 = (\d+)u?;", re.MULTILINE)


@pytest.fixture(scope="module")
def pipelines() -> list[dict[str, Any]]:
    return all_pipelines()


def tint(pipelines: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    node = shutil.which("node")
    if node is None or not (ROOT / "node_modules" / "webgpu").is_dir():
        pytest.skip("no Dawn: run `make test`, which installs the npm packages")
    file = folder / "pipelines.json"
    file.write_text(json.dumps(pipelines))
    script = Path(__file__).with_name("tint_lint.mjs")
    done = subprocess.run(
        [node, str(script), str(file)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # the lines before are Dawn's log


def test_tint_accepts_every_pipeline(pipelines: list[dict[str, Any]], tmp_path: Path) -> None:
    report = tint(pipelines, tmp_path)
    assert report["checked"] == len(pipelines) > 30
    assert report["errors"] == []


def test_tint_refuses_a_barrier_in_non_uniform_flow(pipelines: list[dict[str, Any]], tmp_path: Path) -> None:
    """Naga accepts this shader, browsers do not: hence both compilers check every shader."""
    norm = next(p for p in pipelines if p["name"].endswith("+norm"))
    early = "let start = group.y * X_STRIDE + X_OFFSET + group.x * SIZE;"
    broken = norm | {"wgsl": norm["wgsl"].replace(early, early + " if (lane > 5u) { return; }")}
    assert broken != norm
    assert any("uniform" in error for error in tint([broken], tmp_path)["errors"])


def zero_divisors(pipeline: dict[str, Any]) -> set[str]:
    """Integer constants of value 0 by which the shader divides."""
    code = COMMENT.sub("", pipeline["wgsl"])
    numbers = {name: int(default) for name, default in INTEGER.findall(code)}
    values = {name: pipeline["constants"].get(name, default) for name, default in numbers.items()}
    return {name for name in DIVISOR.findall(code) if values.get(name) == 0}


def test_no_pipeline_divides_by_a_constant_of_0(pipelines: list[dict[str, Any]]) -> None:
    """Chromium refuses such a pipeline while it generates code, which Dawn's null backend does not do."""
    assert [f"{one['name']}: {found}" for one in pipelines if (found := zero_divisors(one))] == []
    by_zero = {"wgsl": "override N: u32 = 1u;\nfn f(v: u32) -> u32 { return v % N; }", "constants": {"N": 0}}
    assert zero_divisors(by_zero) == {"N"}


def test_naga_accepts_every_pipeline(pipelines: list[dict[str, Any]]) -> None:
    from tests.support.parity.adapters import need_driver

    from camelid.backends.webgpu.host_python import choose_adapter

    device: Any = choose_adapter(need_driver("llvmpipe")).request_device_sync()
    for one in pipelines:
        device.create_shader_module(code=one["wgsl"])
