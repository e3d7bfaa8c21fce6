"""A copy of the project with kernels of a few lines of C, so that a build takes a second."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from camelid_native.build.targets import Target, this_target
from camelid_native.cpu.records import ABI

ROOT = Path(__file__).parents[3]
API = """
#include "shared.h"
#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
EXPORT unsigned cam_abi(void) { return CAM_ABI; }
EXPORT unsigned stand_in_has(void) {
    unsigned has = 0;
#ifdef CAM_HAS_PORTABLE
    has = has * 2 + cam_variant_portable;
#endif
#ifdef CAM_HAS_AVX512BF16
    has = has * 2 + cam_variant_avx512bf16;
#endif
#ifdef CAM_HAS_NEON_I8MM
    has = has * 2 + cam_variant_neon_i8mm;
#endif
    return has;
}
EXPORT int stand_in_read(volatile unsigned end) {  /* past the end from 4 on, for AddressSanitizer */
    volatile int values[4] = {1, 2, 3, 4};
    return values[end];
}
"""
FILES = {
    "api.c": API,
    "pool.c": '#include "shared.h"\n',
    "cpuid.c": '#include "shared.h"\n',
    "kernels.c": '#include "shared.h"\nconst unsigned JOIN(cam_variant_, CAM_VARIANT) = 1;\n',
    "shared.h": f"""#pragma once
#define CAM_ABI {ABI}
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
extern const unsigned cam_variant_portable, cam_variant_avx512bf16, cam_variant_neon_i8mm;
""",
}
# A fake compiler: prints its version, logs its arguments, writes an output.
FAKE_COMPILER = """#!/bin/sh
case "$1" in version | --version) echo 9.9; exit ;; esac
echo "$@" >> {log}
while [ $# -gt 1 ]; do [ "$1" = -o ] && echo made > "$2"; shift; done
"""
NO_PROGRAMS = "/nonexistent"  # as PATH: no compiler is found


@dataclass(frozen=True)
class Project:
    """A copy of the project, and commands in it."""

    root: Path

    @property
    def target(self) -> Target:
        return this_target()

    @property
    def library(self) -> Path:
        """Path at which a build without --out puts this machine's library."""
        return self.root / "native/camelid_native/lib" / this_target().path

    def source(self, name: str) -> Path:
        return self.root / "native/camelid_native/cpu/c" / name

    def python(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs this Python with the copy's camelid_native, and with hidden/ before site-packages."""
        path = [self.root / "hidden", self.root / "native", ROOT / "core"]
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("CAMELID", "PYTHON"))}
        clean |= {"PYTHONPATH": os.pathsep.join(map(str, path)), "CC": ""}
        command = (sys.executable, *map(str, arguments))
        return subprocess.run(command, cwd=self.root, env=clean | environment, capture_output=True, text=True)

    def build(self, *options: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "camelid_native.build", *options, **environment)

    def wheel(self, version: str = "standard", **environment: str) -> subprocess.CompletedProcess[str]:
        """Builds a wheel in dist/."""
        return self.python("-m", "hatchling", "build", "-t", f"wheel:{version}", "-d", "dist", **environment)


def make_project(root: Path) -> Project:
    """Copies the build's files. A `ziglang` without Zig hides an installed one."""
    for name in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "native/build_hook.py",
        "core/camelid/version.py",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    shutil.copytree(
        ROOT / "native/camelid_native",
        root / "native/camelid_native",
        ignore=shutil.ignore_patterns("lib", "c"),
    )
    for folder in ("shaders", "web", "hidden/ziglang", "native/camelid_native/cpu/c"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").touch()
    project = Project(root)
    for name, text in FILES.items():
        project.source(name).write_text(text)
    return project


def make_program(path: Path, text: str) -> Path:
    """Writes a script that stands in for a compiler."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path
