"""The kernels' tests, promises and whole models under AddressSanitizer and UBSan: `make sanitize`.

Options are pytest's, as in `make sanitize ARGS="-k rope"`. --threads: ThreadSanitizer, on one variant and the
tests with the most sharing between threads. GCC is required: its runtime library is preloaded. A fault ends
the run, with the place in C on stderr.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from camelid_native.build import library as build
from camelid_native.build.targets import SANITIZED, this_target

ROOT = Path(__file__).parents[2]
# Tests of other libraries, of Node, and of exhausted memory: AddressSanitizer reserves terabytes.
LEFT_OUT = (
    *("test_build", "test_build_hook", "test_cpu_library", "test_pool", "test_release_targets"),
    "test_wasm_modules",
)
NATIVE = sorted(str(path) for path in (ROOT / "tests/native").glob("test_*.py") if path.stem not in LEFT_OUT)
PROMISES = ("tests/engine/test_promises.py", "-k", "cpu and greedy")
PARITY = ("tests/parity/test_cpu_archs.py", "tests/engine/test_staged_promises.py")
MEETINGS = [
    f"tests/native/{name}.py"
    for name in ("test_matrix", "test_pool_order", "test_sampling_threads", "test_state")
]
ONE_VARIANT = {"x86_64": "avx2", "aarch64": "neon_dot"}
# The test checks adjacent blocks, but the plugin allocates each block separately.
ARENA = "--deselect=tests/native/test_cpu_backend.py::test_large_blocks_waste_no_chunk"
# pytest must not capture output that precedes an abort.
PYTEST = ("pytest", "-q", "--capture=sys", "-p", "no:cacheprovider", ARENA)


class Watch(NamedTuple):
    """A sanitizer: the compiler's runtime library, its settings, pytest's options."""

    watched: str
    runtime: str
    settings: Mapping[str, str]
    options: tuple[str, ...] = ()


MEMORY = Watch(
    watched="memory",
    runtime="libasan.so",
    settings={"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0"},  # Python frees little at exit
    options=("-p", "tests.support.native.watched_memory"),
)
THREADS = Watch(
    watched="threads",
    runtime="libtsan.so",
    # The synchronization of NumPy's own threads is invisible to the sanitizer.
    settings={"TSAN_OPTIONS": "halt_on_error=1:exitcode=66", "OPENBLAS_NUM_THREADS": "1"},
)


def find_runtime(name: str) -> str:
    """Path of the compiler's runtime library."""
    compiler = build.find_compiler(this_target())
    asked = build.run((*compiler.command, f"-print-file-name={name}")).stdout.strip()
    if not Path(asked).is_absolute():
        raise build.NoCompilerError(f"{compiler.version} has no {name}; install gcc")
    return asked


def run(watch: Watch, tests: tuple[str, ...], preload: str) -> int:
    """Runs pytest. Returns its exit code."""
    own = {"LD_PRELOAD": preload, "CAMELID_NATIVE_DIR": str(SANITIZED[watch.watched]), **watch.settings}
    command = [sys.executable, "-m", *PYTEST, *watch.options, *tests]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **own}).returncode


def main(options: list[str]) -> int:
    """Returns the exit code of the build, or else the worst of all suites."""
    rest = tuple(option for option in options if option != "--threads")
    watch, suites, only = MEMORY, [tuple(NATIVE), PROMISES, PARITY], list[str]()
    if "--threads" in options:
        watch, suites = THREADS, [tuple(MEETINGS), PROMISES]
        only = ["--variant", ONE_VARIANT.get(this_target().arch, "portable")]
    else:
        rest += ("--whole",)
    try:
        preload = find_runtime(watch.runtime)
    except build.BuildError as error:
        print(f"camelid: {error}", file=sys.stderr)
        return 1
    built = build.main(["--sanitize", watch.watched, *only])
    return built or max(run(watch, (*suite, *rest), preload) for suite in suites)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
