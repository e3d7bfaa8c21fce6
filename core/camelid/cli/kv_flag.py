"""The option --kv-type: the KV cache's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from camelid.model.kv_types import KV_TYPES

F = TypeVar("F", bound=Callable[..., Any])


def kv_type_option(function: F) -> F:
    """Adds --kv-type."""
    return click.option(
        "--kv-type", type=click.Choice([*KV_TYPES]), default="f32", show_default=True, metavar="TYPE",
        help=f"Type of the KV cache: {', '.join(KV_TYPES)}.",
    )(function)  # fmt: skip
