"""Hatchling hooks of the distribution camelid-web: its dependency, and the files of the built site."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parents[2]
# Files without which the page starts slowly, runs on WebGPU alone, or cannot be exported.
NEEDED = ("snapshot.bin", "wasm-relaxed/camelid_cpu.wasm", "cria.gguf", "one_file/shell.html")
COMPRESSED = {".br", ".gz"}  # for hosts: a wheel compresses files itself


class Dependencies(MetadataHookInterface):
    """Requires the camelid of the same version, whose core the page contains."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Sets the dependencies."""
        metadata["dependencies"] = [f"camelid[web]=={metadata['version']}"]


class Site(BuildHookInterface[Any]):
    """Adds the built site, from build/web or the folder that CAMELID_SITE names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Aborts if the site is not complete."""
        site = Path(os.environ.get("CAMELID_SITE") or ROOT / "build" / "web")
        missing = [name for name in NEEDED if not (site / name).is_file()]
        if missing:
            self.app.abort(f"{site} has no {', '.join(missing)}; build it with: make build")
        for path in sorted(site.rglob("*")):
            if path.is_file() and path.suffix not in COMPRESSED:
                build_data["force_include"][str(path)] = (
                    f"camelid_web/site/{path.relative_to(site).as_posix()}"
                )
