"""Every error that Camelid raises on purpose.

CamelidError
├── ModelFormatError        a file breaks its format's rules
│   └── TensorShapeError    a tensor is missing or has a shape that the architecture does not allow
├── UnsupportedModelError   a valid file that needs something Camelid does not have
├── TemplateError           a chat template is malformed, or breaks a limit while rendering
├── RequestError            a request that cannot be served as asked
│   └── ContextOverflowError  prompt and answer do not fit the context
├── FetchError              a model could not be fetched from a hub
├── OutOfMemoryError        a buffer or pool does not fit the device or the bound set at load
├── BackendError            a backend cannot run here, or an extra is missing
│   └── DeviceLostError     the device went away; state must be rebuilt
└── PlanError               a plan breaks the op contract: a bug in a model row or a rewrite

Messages say what was wrong, what was found, what was expected and the way out; the same facts are
attributes, so that a server can map them to a status and a field.
"""

from __future__ import annotations


class CamelidError(Exception):
    """Base of the tree. Keyword facts become attributes: `CamelidError("...", name="x").name`."""

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
    """A valid file that needs something Camelid does not have. Facts: kind, name, known."""


class TemplateError(CamelidError):
    """A chat template is malformed, or breaks a limit while rendering. Facts: line."""


class RequestError(CamelidError):
    """A request that cannot be served as asked. Facts: field."""


class ContextOverflowError(RequestError):
    """Prompt and answer do not fit. Facts: n_tokens, context_length."""


class FetchError(CamelidError):
    """A model could not be fetched from a hub. Facts: model; reason (gated, refused, missing, network,
    offline, corrupt, disk, protocol, stopped)."""


class OutOfMemoryError(CamelidError):
    """A buffer or pool does not fit. Facts: want_bytes, and limit_bytes where it is known."""


class BackendError(CamelidError):
    """A backend cannot run here, or an extra is missing. Facts: backend."""


class DeviceLostError(BackendError):
    """The device went away; state must be rebuilt. Facts: backend, reason."""


class PlanError(CamelidError):
    """A plan breaks the op contract. Facts: op."""


def shown(value: object) -> str:
    """A short repr; of containers and long integers the type only, as they may be of any size."""
    is_short = value is None or isinstance(value, str | float)
    is_short = is_short or (isinstance(value, int) and value.bit_length() <= 64)
    return repr(value)[:80] if is_short else type(value).__name__
