"""The option that says how many layers are on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from camelid.model.cuts import ALL

F = TypeVar("F", bound=Callable[..., Any])


class GpuLayers(click.ParamType[int]):
    """A number of layers; `all` and -1 are all of them."""

    name = "layers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number. A usage error for other words and for numbers below -1."""
        try:
            number = ALL if value == "all" else int(value)
        except ValueError:
            number = ALL - 1
        if number < ALL:
            self.fail(f"{value!r} is no number of layers; give 0 or more, -1 or all", param, ctx)
        return number


def gpu_layers_option(function: F) -> F:
    """-ngl."""
    return click.option(
        "-ngl", "--gpu-layers", "--n-gpu-layers", "gpu_layers", type=GpuLayers(), metavar="K",
        help="The last K layers on webgpu, or the GPU backend that is named; the others and the embedding on "
        "cpu. As in llama.cpp the head is the first of the K. all, -1 and any K above the layers: the GPU "
        "alone; 0: cpu alone.",
    )(function)  # fmt: skip
