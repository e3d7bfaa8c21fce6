"""The option -ngl: the number of layers on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from camelid.model.cuts import ALL

F = TypeVar("F", bound=Callable[..., Any])


class GpuLayers(click.ParamType[int]):
    """A number of layers; `all` and -1 mean every layer."""

    name = "layers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of layers. A usage error for any other text and for numbers below -1."""
        try:
            number = ALL if value == "all" else int(value)
        except ValueError:
            number = ALL - 1
        if number < ALL:
            self.fail(f"{value!r} is not a number of layers; expected 0 or more, -1 or all", param, ctx)
        return number


def gpu_layers_option(function: F) -> F:
    """Adds -ngl."""
    return click.option(
        "-ngl", "--gpu-layers", "--n-gpu-layers", "gpu_layers", type=GpuLayers(), metavar="K",
        help="Put the last K layers on a GPU (that of --backend), the others and the embedding on "
        "the processor. As in llama.cpp the output head is the first of the K. all, -1 or K above "
        "the number of layers: GPU only; 0: processor only.",
    )(function)  # fmt: skip
