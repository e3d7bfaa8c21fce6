"""Hatchling build hook that compiles the CPU kernels for a wheel or an editable install.

By default the hook compiles for this machine with the system's C compiler; without a C compiler it requires
the package ziglang and compiles with Zig. If neither compiler is available, Camelid is installed without the
CPU backend and the hook prints a warning.

CAMELID_NO_NATIVE=1            compile nothing
CAMELID_NATIVE_TARGETS=all     compile for every released platform with Zig; or a list of target names
"""

from __future__ import annotations

import os
import sys
import sysconfig
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))
from camelid_native.build import library as builder
from camelid_native.build import targets

ZIG = "ziglang>=0.17"
MAX_BYTES = 6_000_000  # limit on the compressed size of all libraries in a wheel
LIB = "camelid_native/lib"
RELEASE = Path(__file__).resolve().parents[1] / "build/native"  # libraries of all named targets


def is_unwanted() -> bool:
    """True if CAMELID_NO_NATIVE=1 disables compilation."""
    return os.environ.get(builder.NO_NATIVE) == "1"


def named_targets() -> list[str]:
    """Target names in CAMELID_NATIVE_TARGETS; empty if the variable is not set."""
    names = os.environ.get("CAMELID_NATIVE_TARGETS", "").split()
    return [*targets.RELEASED] if names == ["all"] else names


def wheel_tag(built: Iterable[builder.Built]) -> str:
    """Wheel tag: `py3-none-<platform>` for a single library, `py3-none-any` for none or several."""
    facts = [each.facts for each in built]
    return f"py3-none-{platform_of(facts[0])}" if len(facts) == 1 else "py3-none-any"


def platform_of(facts: targets.BuildRecord) -> str:
    """Platform tag of a library's wheel.

    A library from a Linux system's own compiler gets this system's tag: it links against the libc installed
    here, so it cannot claim manylinux compatibility.
    """
    target = targets.Target(facts.target)
    if target.name.startswith(("linux", "musl")) and not facts.is_zig:
        return sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return target.system.wheel.format(targets.WHEEL_ARCHS.get(target.name, target.arch))


class NativeHook(BuildHookInterface[Any]):
    """Adds lib/<target>/ to a wheel, or to the checkout in an editable install."""

    def dependencies(self) -> list[str]:
        """Build requirements: Zig's package if no compiler for the requested targets is installed."""
        if is_unwanted() or builder.zig_program():
            return []
        here = targets.this_target()
        is_needed = named_targets() or (here.name in targets.RELEASED and not builder.has_compiler(here))
        return [ZIG] if is_needed else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles the libraries, then sets the wheel's tag and its list of files."""
        built = [] if is_unwanted() else self.compile()
        if version == "editable":
            return
        build_data["tag"] = wheel_tag(built)
        build_data["pure_python"] = build_data["tag"].endswith("any")
        for each in built:
            for path in each.files:
                build_data["force_include"][str(path)] = f"{LIB}/{each.facts.target}/{path.name}"

    def compile(self) -> list[builder.Built]:
        """Compiles the requested libraries.

        A missing compiler aborts the build if targets are named, else it is a warning and the list is empty.
        """
        names = named_targets()
        try:
            wanted = [builder.find_target(name) for name in names] or [targets.this_target()]
            out = {"out": RELEASE, "by_zig": True} if names else {}
            return [builder.build(target, **out) for target in wanted]
        except builder.NoCompilerError as error:
            if names:
                self.app.abort(str(error))
            self.app.display_warning(f"camelid: installed without the CPU backend: {error}")
        except builder.BuildError as error:
            self.app.abort(f"{error}\nCAMELID_NO_NATIVE=1 installs Camelid without the CPU backend")
        return []

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Prints the compressed size of each library; aborts if the sum exceeds MAX_BYTES."""
        with zipfile.ZipFile(artifact_path) as archive:
            sizes = {item.filename: item.compress_size for item in archive.infolist() if LIB in item.filename}
        for name, size in sizes.items():
            self.app.display_info(f"{size:9,} bytes  {name}")
        if sum(sizes.values()) > MAX_BYTES:
            self.app.abort(
                f"the wheel's libraries have {sum(sizes.values()):,} bytes, expected at most {MAX_BYTES:,}"
            )
