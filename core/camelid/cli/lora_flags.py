"""The options --lora, --lora-scaled, --adapter-rank and --adapter-slots: adapters loaded with a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, TypeVar

import click

from camelid.loading.lora import scaled_files
from camelid.loading.options import MOST_SLOTS
from camelid.model.adapter import MOST_RANK

F = TypeVar("F", bound=Callable[..., Any])
LORA_NAMES = ("lora", "lora_scaled", "adapter_rank", "adapter_slots")
FLAGS = (
    click.option("--lora", multiple=True, metavar="FILE[:SCALE]",
                 help="A LoRA adapter that acts on every answer: a PEFT or mlx-lm directory, a GGUF, or a "
                 "hub id of one; several with commas, or the flag several times."),
    click.option("--lora-scaled", multiple=True, metavar="FILE:SCALE", help="As --lora."),
    click.option("--adapter-rank", type=click.IntRange(0, MOST_RANK), default=0, metavar="N",
                 help="Largest rank of an answer's adapters together. Default: that of --lora."),
    click.option("--adapter-slots", type=click.IntRange(0, MOST_SLOTS), default=0, metavar="N",
                 help="Different adapters that run at once. Default: one per sequence."),
)  # fmt: skip


def lora_options(function: F) -> F:
    """Adds the options of adapters."""
    return reduce(lambda wrapped, flag: flag(wrapped), reversed(FLAGS), function)


def read_lora(options: dict[str, Any]) -> dict[str, Any]:
    """Pops the values of `lora_options` from a command's options, and returns load options."""
    words = [word for name in ("lora", "lora_scaled") for given in options.pop(name) for word in split(given)]
    return {
        "lora": tuple(scaled_files(words)),
        "adapter_rank": options.pop("adapter_rank"),
        "adapter_slots": options.pop("adapter_slots"),
    }


def split(given: str) -> list[str]:
    """The files of a list with commas. A usage error for an empty one."""
    words = [word.strip() for word in given.split(",")]
    if not all(words):
        raise click.UsageError(f"--lora {given!r} has an empty name; expected FILE or FILE:SCALE")
    return words


def without_lora(words: Mapping[str, Any]) -> dict[str, Any]:
    """The load options of another model, which has no adapters."""
    return {name: value for name, value in words.items() if name not in LORA_NAMES}
