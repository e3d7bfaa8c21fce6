"""The release's compiler accepts the sources for every platform: this machine's may be less strict."""

from __future__ import annotations

from pathlib import Path

import pytest

from camelid_native.build.library import compiles, find_compiler, run
from camelid_native.build.targets import FLAGS, RELEASED, Target


@pytest.mark.parametrize("name", RELEASED)
def test_sources_compile(name: str, tmp_path: Path) -> None:
    """All sources except kernels, and so every header that threads share."""
    target = Target(name)
    compiler = find_compiler(target, by_zig=True)
    flags = (*FLAGS, "-O0", "-Werror", *target.system.flags)
    for made, *source in compiles({}, target.system.baseline):
        done = run((*compiler.command, *flags, *source, "-c", "-o", str(tmp_path / made)))
        assert done.returncode == 0, done.stderr
