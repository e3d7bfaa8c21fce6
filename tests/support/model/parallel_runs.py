"""Tensor-parallel backends of a model without an engine."""

from __future__ import annotations

from collections.abc import Callable

from camelid.backends.base import Backend, Shares
from camelid.loading.options import LoadOptions
from camelid.loading.several import shares_of
from camelid.model.arch import Model


def shares(model: Model, n: int, context: int) -> Shares:
    return shares_of(model, LoadOptions(tensor_parallel=n, context=context))


def parallel(open_parallel: Callable[[int, Shares], Backend], model: Model, n: int, context: int) -> Backend:
    """A backend of n devices for a model that is loaded at this context."""
    return open_parallel(n, shares(model, n, context))
