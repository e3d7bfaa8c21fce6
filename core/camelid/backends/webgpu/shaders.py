"""Shader files: finds WGSL text and joins it to modules: prelude, then codec, then op.

A wheel, a zip and the browser's archive have the files as `camelid/_shaders`; a checkout (also an editable
install, which ignores that mapping) has them as `shaders/`. Declarations at WGSL's module scope may come in
any order, so files are simply joined with newlines.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from camelid.errors import BackendError


@cache
def folder() -> Traversable:
    """The folder of the .wgsl files. Raises BackendError if it is missing."""
    packaged = files("camelid") / "_shaders"
    checkout = Path(__file__).parents[4] / "shaders"
    for place in (packaged, checkout):
        if place.is_dir():
            return place
    raise BackendError(
        f"no shaders at {packaged} or {checkout}; is the installation complete?", backend="webgpu"
    )


@cache
def names() -> tuple[str, ...]:
    """Names of all shaders, sorted, without the suffix."""
    found = (item.name for item in folder().iterdir())
    return tuple(sorted(name.removesuffix(".wgsl") for name in found if name.endswith(".wgsl")))


@cache
def text(name: str) -> str:
    """The text of one file: `text("prelude")` reads prelude.wgsl."""
    if name not in names():
        raise BackendError(f"no shader {name!r}; known: {', '.join(names())}", backend="webgpu")
    return (folder() / f"{name}.wgsl").read_text(encoding="utf-8")


def join(*parts: str) -> str:
    """Joins several files to one WGSL module, in order."""
    return "\n".join(text(name) for name in parts)
