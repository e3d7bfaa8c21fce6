"""`camelid adapter convert` and `export`: an adapter to another format, through the weights of its base."""

from __future__ import annotations

import asyncio
from os import PathLike, fspath
from pathlib import Path

from camelid.errors import RequestError
from camelid.loading.adapters.merge import NO_BOUND
from camelid.loading.adapters.open import open_adapter
from camelid.loading.adapters.write import save_gguf, save_peft
from camelid.loading.model_file import open_model

FORMATS = ("peft", "gguf")


def format_of(target: str | PathLike[str]) -> str:
    """The format that a name states."""
    return "gguf" if fspath(target).endswith(".gguf") else "peft"


def convert_adapter(
    adapter: str | PathLike[str],
    model: str | PathLike[str],
    target: str | PathLike[str],
    *,
    to: str,
    base: str = "",
) -> None:
    """Writes an adapter in the format "peft" or "gguf"; `base` is the base's name in a PEFT directory.

    Raises RequestError for a target that is the source, and the errors of `open_adapter` and the writers.
    """
    out = Path(fspath(target))
    if out.exists() and out.resolve() == Path(fspath(adapter)).resolve():
        raise RequestError(f"{out}: the target is the source; give another name", field="target")
    file = asyncio.run(open_model(model))
    name = out.name.removesuffix(".gguf")
    opened = open_adapter(adapter, file, name=name, most_rank=NO_BOUND)
    if to == "gguf":
        save_gguf(opened, file, out)
    else:
        save_peft(opened, file, out, base=base or opened.facts.get("base", ""))
