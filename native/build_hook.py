"""Compiles the CPU kernels when a wheel or an editable install is made: hatchling's hook.

Without settings: for this machine, by its C compiler or else by Zig's wheel, which is asked for only then.
Where neither can be had, Camelid is installed without the CPU backend, and says so.

CAMELID_NO_NATIVE=1            compiles nothing
CAMELID_NATIVE_TARGETS=all     for every platform of a release, by Zig; or some of their names
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
MAX_BYTES = 6_000_000  # of a wheel's libraries, compressed
LIB = "camelid_native/lib"
RELEASE = Path(__file__).resolve().parents[1] / "build/native"  # libraries for other machines, too


def is_unwanted() -> bool:
    """Whether nothing is to be compiled."""
    return os.environ.get(builder.NO_NATIVE) == "1"


def named_targets() -> list[str]:
    """What CAMELID_NATIVE_TARGETS asks for; empty if it is not set."""
    names = os.environ.get("CAMELID_NATIVE_TARGETS", "").split()
    return [*targets.RELEASED] if names == ["all"] else names


def wheel_tag(built: Iterable[builder.Built]) -> str:
    """py3-none-<platform> of a single library, any of none and of several, one of which will fit."""
    facts = [each.facts for each in built]
    return f"py3-none-{platform_of(facts[0])}" if len(facts) == 1 else "py3-none-any"


def platform_of(facts: targets.BuildRecord) -> str:
    """The platform that a library asks for. A system's compiler on Linux links what just this system has."""
    target = targets.Target(facts.target)
    if target.name.startswith(("linux", "musl")) and not facts.is_zig:
        return sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return target.system.wheel.format(targets.WHEEL_ARCHS.get(target.name, target.arch))


class NativeHook(BuildHookInterface[Any]):
    """Adds lib/<target>/ to a wheel; in an editable install, to the checkout."""

    def dependencies(self) -> list[str]:
        """Zig, if it is needed and runs here."""
        if is_unwanted() or builder.zig_program():
            return []
        here = targets.this_target()
        is_needed = named_targets() or (here.name in targets.RELEASED and not builder.has_compiler(here))
        return [ZIG] if is_needed else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles, and tells hatchling what to pack and what to call the wheel."""
        built = [] if is_unwanted() else self.compile()
        if version == "editable":
            return
        build_data["tag"] = wheel_tag(built)
        build_data["pure_python"] = build_data["tag"].endswith("any")
        for each in built:
            for path in each.files:
                build_data["force_include"][str(path)] = f"{LIB}/{each.facts.target}/{path.name}"

    def compile(self) -> list[builder.Built]:
        """The libraries asked for; none, with a warning, where nobody asked and there is no compiler."""
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
        """Says what the libraries weigh in the wheel; more than MAX_BYTES fails."""
        with zipfile.ZipFile(artifact_path) as archive:
            sizes = {item.filename: item.compress_size for item in archive.infolist() if LIB in item.filename}
        for name, size in sizes.items():
            self.app.display_info(f"{size:9,} bytes  {name}")
        if sum(sizes.values()) > MAX_BYTES:
            self.app.abort(f"the libraries take {sum(sizes.values()):,} bytes, more than {MAX_BYTES:,}")
