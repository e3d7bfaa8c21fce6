"""The kernels' tests under AddressSanitizer and UBSan: `make sanitize`, or `make sanitize ARGS="-k rope"`.

--share: one variant and some of the tests, which CI runs. Needs GCC, whose libasan.so is loaded before all
else. A fault ends the run, with the place in C on stderr.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from camelid_native import build
from camelid_native.targets import LIB, this_target

ROOT = Path(__file__).parents[2]
LIBRARIES = LIB / "sanitized"
# Those of other libraries and of Node, and of memory that runs out, as AddressSanitizer reserves terabytes.
LEFT_OUT = ("test_build", "test_build_hook", "test_cpu_library", "test_pool", "test_wasm_modules")
NATIVE = sorted(str(path) for path in (ROOT / "tests/native").glob("test_*.py") if path.stem not in LEFT_OUT)
PROMISES = ("tests/engine/test_promises.py", "-k", "cpu and greedy")
SHARE = [f"tests/native/{name}.py" for name in ("test_gate", "test_matrix", "test_panels", "test_state")]
SHARED_VARIANT = {"x86_64": "avx2", "aarch64": "neon_dot"}
# Python frees little as it ends, and pytest must not swallow what is said before the end.
OPTIONS = "detect_leaks=0:abort_on_error=0"
# It tells how blocks lie side by side, and the plugin gives each a place of its own.
ARENA = "--deselect=tests/native/test_cpu_backend.py::test_large_blocks_waste_no_chunk"
PYTEST = (
    "pytest",
    "-q",
    "--capture=sys",
    "-p",
    "no:cacheprovider",
    "-p",
    "tests.native.watched_memory",
    ARENA,
)


def runtime() -> str:
    """Where the compiler has its libasan.so."""
    compiler = build.find_compiler(this_target())
    asked = build.run((*compiler.command, "-print-file-name=libasan.so")).stdout.strip()
    if not Path(asked).is_absolute():
        raise build.NoCompilerError(f"{compiler.version} has no libasan.so; install gcc")
    return asked


def run(tests: tuple[str, ...], preload: str) -> int:
    """pytest's exit code."""
    own = {"LD_PRELOAD": preload, "ASAN_OPTIONS": OPTIONS, "CAMELID_NATIVE_DIR": str(LIBRARIES)}
    command = [sys.executable, "-m", *PYTEST, *tests]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **own}).returncode


def main(options: list[str]) -> int:
    """Builds, then runs all of it even if some fails."""
    is_share = "--share" in options
    rest = tuple(option for option in options if option != "--share")
    only = ["--variant", SHARED_VARIANT.get(this_target().arch, "portable")] if is_share else []
    suites = [tuple(SHARE)] if is_share else [tuple(NATIVE), PROMISES]
    try:
        preload = runtime()
    except build.BuildError as error:
        print(f"camelid: {error}", file=sys.stderr)
        return 1
    return build.main(["--sanitize", *only]) or max(run((*suite, *rest), preload) for suite in suites)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
