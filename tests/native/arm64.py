"""The kernels' tests on arm64's library, in qemu-user: `make arm64`, or `make arm64 ARGS="-k rope"`.

The library is a release's, built by Zig for linux-aarch64; Python, NumPy and the tests run on arm64, too.
Each row is an emulated processor with its tests; as many rows run at once as this machine has processors.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from camelid_native.build.targets import FACTS, Target

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".venv/arm64"
LIBRARIES = ROOT / "build/native"
TARGET = Target("linux-aarch64")
# Tests that compile C, run Node, or limit memory need the building machine.
LEFT_OUT = (
    *("test_build", "test_build_hook", "test_cpu_library", "test_pool", "test_release_targets", "test_vmath"),
    "test_wasm_modules",
)
PARITY = [ROOT / "tests/native/test_gate.py", ROOT / "tests/parity/test_cpu_archs.py"]
FOUND = {*(ROOT / "tests/native").glob("test_*.py")} - {*PARITY}
KERNELS = sorted(path for path in FOUND if path.stem not in LEFT_OUT)
# An assertion in qemu 7.2 fails if a child of fork() starts threads.
FORKS = [
    f"--deselect=tests/native/test_cpu_backend.py::test_fork_{name}"
    for name in ("shares_nothing", "during_a_step")
]
SOME = [ROOT / f"tests/native/{name}.py" for name in ("test_matrix", "test_panels", "test_basic")]


class Row(NamedTuple):
    """An emulated processor by qemu's name, and the variant that the library must select on it."""

    cpu: str
    variant: str
    tests: list[Path]


# The first two rows cover all variants and take longest.
ROWS = (
    Row("max", "neon_i8mm", KERNELS),
    Row("max", "neon_i8mm", PARITY),
    Row("cortex-a76", "neon_dot", SOME),  # an i8mm instruction ends the process on this processor
    Row("cortex-a57", "portable", SOME),  # likewise a dot product or float16 instruction
)
NO_TESTS = 5  # pytest's exit code if the options select no test of a row
CHOSEN = "from camelid_native.cpu.api import Library; print(Library().variant)"


def environment(cpu: str) -> dict[str, str]:
    """Environment of an arm64 process."""
    paths = (ROOT / "core", ROOT / "native", ROOT)
    own = {"QEMU_CPU": cpu, "CAMELID_NATIVE_DIR": str(LIBRARIES)}
    return {**os.environ, **own, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def described() -> str:
    """The binaries and their environment."""
    library = LIBRARIES / TARGET.path
    facts = json.loads((library.parent / FACTS).read_text(encoding="utf-8"))
    digest = hashlib.sha256(library.read_bytes()).hexdigest()[:16]
    qemu = subprocess.run(["qemu-aarch64", "--version"], capture_output=True, text=True, check=True).stdout
    return f"{TARGET.path} {digest}, built by {facts['compiler']}; {qemu.splitlines()[0]}"


def python(row: Row, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs arm64's Python on that processor; its output is collected, as rows run concurrently."""
    command, joined = (str(PLACE / "bin/python"), *arguments), subprocess.STDOUT
    out = subprocess.PIPE
    return subprocess.run(command, env=environment(row.cpu), cwd=ROOT, stdout=out, stderr=joined, text=True)


def run(row: Row, options: list[str]) -> int:
    """Runs one processor's tests. Returns 1 if the library selects another variant."""
    chosen = python(row, "-c", CHOSEN).stdout.strip()
    if chosen != row.variant:
        print(f"-cpu {row.cpu}: expected {row.variant}, but it chooses\n{chosen}", flush=True)
        return 1
    pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--whole", *FORKS)
    done = python(row, *pytest, *map(str, row.tests), *options)
    print(f"-cpu {row.cpu}: chooses {chosen}\n{done.stdout}", flush=True)
    return int(done.returncode not in ({0, NO_TESTS} if options else {0}))


def main(options: list[str]) -> int:
    """Runs all rows, even after a failure."""
    print(described(), flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return max(pool.map(partial(run, options=options), ROWS))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
