"""A small file system of its own that can be filled and freed. Needs the right to mount."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path


def mounted(folder: Path, size: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """Mounts `size` bytes on a folder; returns functions that fill it and free it again.

    The mount is visible to this process only, and vanishes with it.
    """
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    filler = folder / "filler"

    def fill() -> None:
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass

    return fill, filler.unlink
