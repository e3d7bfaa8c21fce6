"""Camelid: one LLM runtime for every machine.

`import camelid` imports no other module but `camelid.version`: each public name is imported from its own
module on first use. The import is cheap and needs no third-party package, also in a web page.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from camelid.version import __version__ as __version__

if TYPE_CHECKING:
    from camelid.api.llm import LLM, Completion
    from camelid.api.load import aload, load, load_tokenizer
    from camelid.errors import (
        BackendError,
        CamelidError,
        ContextOverflowError,
        DeviceLostError,
        FetchError,
        LearningError,
        ModelFormatError,
        OutOfMemoryError,
        PlanError,
        RequestError,
        TemplateError,
        TensorShapeError,
        UnsupportedModelError,
        WitnessError,
    )

__all__ = [
    "LLM",
    "BackendError",
    "CamelidError",
    "Completion",
    "ContextOverflowError",
    "DeviceLostError",
    "FetchError",
    "LearningError",
    "ModelFormatError",
    "OutOfMemoryError",
    "PlanError",
    "RequestError",
    "TemplateError",
    "TensorShapeError",
    "UnsupportedModelError",
    "WitnessError",
    "aload",
    "load",
    "load_tokenizer",
]

_MODULES = {
    "LLM": "camelid.api.llm",
    "Completion": "camelid.api.llm",
    "aload": "camelid.api.load",
    "load": "camelid.api.load",
    "load_tokenizer": "camelid.api.load",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(
            f"module 'camelid' has no attribute {name!r}; public names: {', '.join(__all__)}"
        )
    return getattr(import_module(_MODULES.get(name, "camelid.errors")), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
