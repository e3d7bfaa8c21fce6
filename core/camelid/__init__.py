"""Camelid: one LLM runtime for every machine.

`import camelid` loads nothing else: each public name is looked up in the module that defines it, the
first time it is used. So the import is cheap, works without any third-party package, and is the same
in a web page.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from camelid.version import __version__ as __version__

if TYPE_CHECKING:
    from camelid.api.llm import LLM, Completion, aload, load, load_tokenizer
    from camelid.errors import (
        BackendError,
        CamelidError,
        ContextOverflowError,
        DeviceLostError,
        FetchError,
        ModelFormatError,
        OutOfMemoryError,
        PlanError,
        RequestError,
        TemplateError,
        TensorShapeError,
        UnsupportedModelError,
    )

__all__ = [
    "LLM",
    "BackendError",
    "CamelidError",
    "Completion",
    "ContextOverflowError",
    "DeviceLostError",
    "FetchError",
    "ModelFormatError",
    "OutOfMemoryError",
    "PlanError",
    "RequestError",
    "TemplateError",
    "TensorShapeError",
    "UnsupportedModelError",
    "aload",
    "load",
    "load_tokenizer",
]

_HOME = {
    "LLM": "camelid.api.llm",
    "Completion": "camelid.api.llm",
    "aload": "camelid.api.llm",
    "load": "camelid.api.llm",
    "load_tokenizer": "camelid.api.llm",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(
            f"module 'camelid' has no attribute {name!r}; public names: {', '.join(__all__)}"
        )
    return getattr(import_module(_HOME.get(name, "camelid.errors")), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
