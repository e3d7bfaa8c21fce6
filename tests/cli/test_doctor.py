"""`camelid doctor`: its report of the machine and of backends, and its exit code."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from huggingface_hub import constants
from tests.support.gate_device import Device
from tests.support.parity.adapters import need_driver, show_drivers

from camelid.backends.common.processors import cpu_quota
from camelid.backends.proof.verdicts import stored
from camelid.backends.registry import BACKENDS, BackendRow, backend_extras
from camelid.cli import doctor_examine, doctor_machine
from camelid.cli.doctor_machine import cpu_name, extras, hub_cache, instructions, memory_limit
from camelid.cli.main import main
from camelid.errors import BackendError
from camelid.plan.ops import OPS

show_drivers()
Json = dict[str, Any]
FOUND = {
    "name", "is_available", "device", "build", "promise", "activations", "max_in_flight", "is_software",
    "fused", "limits", "kernels", "gate", "verdict", "seconds",
}  # fmt: skip
OF_OP = {
    "status", "cases", "passed", "refused", "worst_nmse", "allowed_nmse", "worst_case", "failures",
}  # fmt: skip


def call(*words: str, columns: int = 80) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(main, ["doctor", *words])


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Device]:
    """Replaces the backend `cpu` by a device, and all other backends by one that raises."""
    monkeypatch.setenv("CAMELID_CACHE", str(tmp_path))

    def place(**how: Any) -> Device:
        types: Json = {"weight_types": frozenset({"f32", "q4_0"})}
        device = Device(**(types | how))

        async def open_named(name: str, adapter: str = "", **_: Any) -> Device:
            if name != "cpu":
                raise BackendError(f"{name} is not here: pip install {name}", backend=name)
            return device

        monkeypatch.setattr(doctor_examine, "open_named", open_named)
        return device

    return place


def minus(numbers: Any) -> Any:
    return -numbers


def test_json_has_the_documented_facts(put: Callable[..., Device]) -> None:
    device = put()
    done = call("--backend", "cpu", "--quick", "--json")
    assert done.exit_code == 0, done.output
    assert done.stderr == "", "a progress bar in a pipe"
    found: Json = json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert found.keys() == {"version", "machine", "backends", "passed"} and found["passed"] is True
    assert found["machine"].keys() == {*doctor_machine.Machine.__dataclass_fields__}
    (cpu,) = found["backends"]
    assert cpu.keys() == FOUND and cpu["verdict"] == "passed" and cpu["kernels"].keys() == {*OPS}
    assert cpu["kernels"]["linear"]["q4_0"] == "" and "q6_k" in cpu["kernels"]["linear"]["q6_k"]
    assert all(op.keys() == OF_OP and op["status"] == "passed" for op in cpu["gate"].values())
    assert cpu["gate"]["linear"]["cases"] == 2, "not one case for each type"
    assert device.n_closed == 1 and stored(device.capabilities()) == ""


def test_a_failing_kernel_fails_the_command_and_is_stored(put: Callable[..., Device]) -> None:
    device = put(off=minus)
    done = call("--backend", "cpu", "--quick")
    assert done.exit_code == 1
    assert done.stderr == "camelid: error: cpu failed its gate\n"
    assert "cpu failed its gate: 0 passed" in done.stdout.replace("\n", " ").replace("  ", " ")
    assert "NMSE" in (stored(device.capabilities()) or "")


def test_json_of_a_raising_kernel_holds_no_infinity(put: Callable[..., Device]) -> None:
    put(error=ValueError("no such\x1b shape"))
    done = call("--backend", "cpu", "--op", "norm", "--json")
    assert done.exit_code == 1
    (cpu,) = json.loads(done.stdout)["backends"]
    norm: Json = cpu["gate"].pop("norm")
    assert norm["worst_nmse"] is None and norm["status"] == "failed" and norm["cases"] > 3
    assert "no such" in norm["failures"][0] and len(norm["failures"]) == norm["cases"]
    assert not cpu["gate"]


def test_one_op_alone_is_no_verdict(put: Callable[..., Device]) -> None:
    device = put()
    assert call("--backend", "cpu", "--op", "add").exit_code == 0
    assert device.n_runs > 3 and stored(device.capabilities()) is None


def test_a_missing_backend_is_one_line_with_the_way_out(put: Callable[..., Device]) -> None:
    put()
    every = call("--op", "add")
    assert every.exit_code == 0, "an unrequested missing backend failed the command"
    assert "webgpu is not here: pip install webgpu" in every.stdout
    named = call("--backend", "webgpu", "--op", "add")
    assert (named.exit_code, named.stderr) == (1, "camelid: error: webgpu cannot be opened\n")


@pytest.mark.parametrize("columns", [80, 120])
def test_lines_fit_the_terminal(put: Callable[..., Device], columns: int) -> None:
    put(device="Test \x1b[31m[bold]GPU " + "x" * 150, limits={"maxBufferSize": 1 << 31}, activations="q8")
    text = call("--backend", "cpu", "--op", "add", columns=columns).stdout
    assert max(map(len, text.splitlines())) <= columns
    assert "Test ?[31m[bold]GPU" in text, "a driver's text is not escaped"
    for words in ("instructions", "pip install" if any(extras().values()) else "installed", "other ops"):
        assert words in text


def test_the_reference_is_the_oracle() -> None:
    done = call("--backend", "reference", "--json")
    (reference,) = json.loads(done.stdout)["backends"]
    assert (done.exit_code, reference["verdict"], reference["gate"]) == (0, "reference", {})
    assert not any(reason for by in reference["kernels"].values() for reason in by.values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--op", "matmul"), "unknown op 'matmul'; known: tables"),
        (
            ("--backend", "reference", "--adapter", "x"),
            "--adapter does not apply to reference; expected cpu",
        ),
        (("--backend", "null"), "'null' is not one of"),
    ],
)
def test_unknown_arguments_are_usage_errors(words: tuple[str, ...], message: str) -> None:
    done = call(*words)
    assert done.exit_code == 2 and message in done.stderr


def test_help_names_every_option() -> None:
    text = call("--help").stdout
    assert all(word in text for word in ("--backend", "--adapter", "--op", "--full / --quick", "--json"))
    assert "doctor" in CliRunner().invoke(main, ["--help"]).stdout


def test_on_a_real_driver() -> None:
    driver = need_driver("llvmpipe")
    done = call("--backend", "vulkan", "--adapter", driver, "--op", "add", "--json")
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["backends"]
    assert driver in found["device"] and found["is_software"] and found["limits"]
    assert found["gate"]["add"]["passed"] == 5 and found["gate"]["add"]["worst_nmse"] < 1e-10


X86 = (
    "processor\t: 0\nmodel name\t: Some CPU @ 3\nflags\t\t: fpu avx2 avx512_vnni ht\n\nmodel name\t: Other\n"
)
ARM = "processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\nCPU part\t: 0xd0c\n"


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        (X86, "Some CPU @ 3", ("avx2", "avx512_vnni")),
        (ARM, "", ("asimd", "asimddp", "i8mm")),
        ("", "", None),
        ("flags :\n", "", ()),
    ],
)
def test_the_systems_facts_of_the_processor(text: str, name: str, found: tuple[str, ...] | None) -> None:
    assert (cpu_name(text), instructions(text)) == (name, found)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "a b c\n"}, None),
        ({}, None),
    ],
)
def test_a_quota_of_processors(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    write(tmp_path, files)
    assert cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"memory.max": "2147483648\n"}, 1 << 31),
        ({"memory.max": "max\n"}, None),
        ({"memory/memory.limit_in_bytes": "1024\n"}, 1024),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ({}, None),
    ],
)
def test_a_limit_of_memory(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    write(tmp_path, files)
    assert memory_limit(tmp_path) == limit


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def declared(checkout: Path) -> Json:
    """The table [project] of pyproject.toml."""
    return tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))["project"]


def distributions(requirements: Iterable[str]) -> set[str]:
    """Normalized names of the required packages, without versions and markers."""
    return {normalized(re.split(r"[^\w.-]", line)[0]) for line in requirements}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_packages_equal_the_dependencies(checkout: Path) -> None:
    assert {*map(normalized, doctor_machine.PACKAGES)} == distributions(declared(checkout)["dependencies"])


def test_every_extra_is_declared_with_its_modules(checkout: Path) -> None:
    optional = declared(checkout)["optional-dependencies"]
    brought = packages_distributions()
    installed = {normalized(name) for names in brought.values() for name in names} | {"camelid"}
    for extra, modules in (doctor_machine.FACE_EXTRAS | backend_extras()).items():
        assert extra in optional and modules, f"{extra} is not in pyproject.toml, or has no module here"
        if distributions(optional[extra]) <= installed:
            assert {*modules} <= brought.keys(), f"a module of {extra} has another name"


def test_extras_of_one_name_install_equal_modules() -> None:
    stated = {(row.extra, row.modules) for row in BACKENDS.values() if row.extra or row.modules}
    assert stated == {*backend_extras().items()}


def test_a_missing_module_shows_the_extras_command(monkeypatch: pytest.MonkeyPatch) -> None:
    row = BackendRow(module="new.backend", role="other", extra="new", modules=("new_driver",))
    monkeypatch.setitem(BACKENDS, "new", row)
    monkeypatch.setattr(
        doctor_machine, "find_spec", lambda name: name not in ("brotli", "new_driver") or None
    )
    found = extras()
    assert (found["serve"], found["web"]) == ("", "pip install 'camelid[web]'")
    assert found["new"] == "pip install 'camelid[new]'"


def test_the_hub_cache_equals_the_hubs() -> None:
    assert hub_cache() == Path(constants.HF_HUB_CACHE)


def test_failing_numbers_stay_in_their_column(put: Callable[..., Device]) -> None:
    put(off=lambda numbers: numbers * np.float32(np.nan))
    text = call("--backend", "cpu", "--op", "add").stdout
    assert "wrong" in text and "1e-10" in text and "add: " in text, "three failures, then how many more"
    assert "shown by -v" in text and text.count("add x[") == 3
    assert call("-v", "--backend", "cpu", "--op", "add").stdout.count("add x[") == 5


def test_a_backends_facts_are_shown(put: Callable[..., Device]) -> None:
    device = put()
    device.says |= {"ops": frozenset(OPS) - {"pool"}, "promise": "none"}
    text = call("-v", "--backend", "cpu", "--op", "pool", columns=120).stdout
    assert "no kernel     pool\n" in text and "refused 4: it has no kernel for the op pool\n" in text
