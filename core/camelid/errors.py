"""The error classes of Camelid.

CamelidError
├── ModelFormatError        a file breaks its format's rules
│   └── TensorShapeError    a tensor is missing or has a shape that the architecture does not allow
├── UnsupportedModelError   a valid file needs a feature that Camelid lacks
├── TemplateError           a chat template is malformed, or breaks a limit while rendering
├── RequestError            a request is invalid or cannot be served
│   └── ContextOverflowError  prompt and answer do not fit the context
├── FetchError              a download from a hub failed
├── WitnessError            a witness log is damaged or cannot be written
├── LearningError           a learning store is damaged or cannot be written
├── OutOfMemoryError        a buffer or pool does not fit the device or the bound set at load
├── BackendError            a backend cannot run here, or an extra is missing
│   └── DeviceLostError     the device was lost; state must be rebuilt
└── PlanError               a plan breaks the op contract: a bug in a model row or a rewrite

A message states the fault, the value found, the value expected and the way out. The same facts are
attributes, so that a server can map them to a status and a field.
"""

from __future__ import annotations

from collections.abc import Collection


class CamelidError(Exception):
    """Base class of all errors. Keyword facts become attributes: `CamelidError("...", name="x").name`."""

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __getattr__(self, name: str) -> object:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(name)


class ModelFormatError(CamelidError):
    """A file breaks its format's rules. Facts: path, offset."""


class TensorShapeError(ModelFormatError):
    """A tensor is missing or misshapen. Facts: name, got, want."""


class UnsupportedModelError(CamelidError):
    """A valid file needs a feature that Camelid lacks. Facts: kind, name, known."""


class TemplateError(CamelidError):
    """A chat template is malformed, or breaks a limit while rendering. Facts: line."""


class RequestError(CamelidError):
    """A request is invalid or cannot be served. Facts: field."""


class ContextOverflowError(RequestError):
    """Prompt and answer do not fit the context. Facts: n_prompt, n_tokens, context_length."""


class FetchError(CamelidError):
    """A download from a hub failed. Facts: model; reason (gated, refused, missing, network,
    offline, corrupt, disk, protocol, stopped)."""


class WitnessError(CamelidError):
    """A witness log is damaged or cannot be written. Facts: path; line if known."""


class LearningError(CamelidError):
    """A learning store is damaged, or cannot be read or written. Facts: path; reason (full, damaged, busy,
    refused, disk, newer, other, failed)."""


class OutOfMemoryError(CamelidError):
    """A buffer or pool does not fit the device or the bound set at load.

    Facts: want_bytes; limit_bytes if known.
    """


class BackendError(CamelidError):
    """A backend cannot run here, or an extra is missing. Facts: backend."""


class DeviceLostError(BackendError):
    """The device was lost; state must be rebuilt. Facts: backend, reason."""


class PlanError(CamelidError):
    """A plan breaks the op contract: a bug in a model row or a rewrite. Facts: op."""


def nearest(name: str, known: Collection[str]) -> str:
    """The four known names most like an unknown one, and the number of others."""
    from difflib import get_close_matches  # only an error needs it

    near = get_close_matches(name[:80], sorted(known), 4, 0.0)
    return f"{', '.join(near)} and {len(known) - len(near)} others"


def shown(value: object) -> str:
    """A short repr; the type's name for containers and long integers, which may have any size."""
    is_short = value is None or isinstance(value, str | float)
    is_short = is_short or (isinstance(value, int) and value.bit_length() <= 64)
    return repr(value)[:80] if is_short else type(value).__name__
