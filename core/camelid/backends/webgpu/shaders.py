"""Finds WGSL text and joins it: prelude, then codec, then op.

A wheel, a zip and the browser's archive carry the files as `camelid/_shaders`; a checkout (also an
editable install, which ignores that mapping) has them as `shaders/`. Order is free at WGSL's module
scope, so joining with newlines is all the composition there is.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from camelid.errors import BackendError


@cache
def folder() -> Traversable:
    """The folder that holds the .wgsl files."""
    packaged = files("camelid") / "_shaders"
    checkout = Path(__file__).parents[4] / "shaders"
    for place in (packaged, checkout):
        if place.is_dir():
            return place
    raise BackendError(
        f"no shaders at {packaged} nor {checkout}; is the installation complete?", backend="webgpu"
    )


@cache
def names() -> tuple[str, ...]:
    """Every shader's name, sorted, without the suffix."""
    found = (item.name for item in folder().iterdir())
    return tuple(sorted(name.removesuffix(".wgsl") for name in found if name.endswith(".wgsl")))


@cache
def text(name: str) -> str:
    """The text of one file: `text("prelude")` reads prelude.wgsl."""
    if name not in names():
        raise BackendError(f"no shader {name!r}; known: {', '.join(names())}", backend="webgpu")
    return (folder() / f"{name}.wgsl").read_text(encoding="utf-8")


def join(*parts: str) -> str:
    """One WGSL module from several files, in the order given."""
    return "\n".join(text(name) for name in parts)
