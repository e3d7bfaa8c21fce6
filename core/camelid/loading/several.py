"""Several devices of one backend: which backend, the devices' numbers, and what each has of a model."""

from __future__ import annotations

from collections.abc import Sequence

from camelid.backends.base import Shares
from camelid.backends.registry import names_of, names_with, row_of
from camelid.errors import RequestError
from camelid.loading.deployment import check_context
from camelid.loading.options import LoadOptions
from camelid.model.arch import Model
from camelid.model.decoder import lower
from camelid.model.parallel import share_states, shares
from camelid.model.spec_reader import at_context
from camelid.plan.plan import Plan, StateSpec


def shares_of(model: Model, options: LoadOptions) -> Shares:
    """The shares of `tensor_parallel` devices. Raises RequestError for a model that cannot be divided so."""
    n = options.tensor_parallel
    models = shares(at_context(model, check_context(options.context, model)), n)

    def plans(plan: Plan) -> list[Plan]:
        return [lower(own, plan.key, share_states(plan.states, n)) for own in models]

    def states(whole: Sequence[StateSpec]) -> tuple[StateSpec, ...]:
        return share_states(whole, n)

    return Shares(plans, states)


def several_backend(options: LoadOptions, option: str) -> str:
    """The backend of several devices for an option that counts them: the named one, or the first GPU's."""
    known = names_with("devices")
    name = next(n for n in known if n in names_of("gpu")) if options.backend == "auto" else options.backend
    if name not in known:
        raise RequestError(
            f"{option} is {getattr(options, option)}, but backend {name!r} runs on one device; only "
            f"{', '.join(known)} can run on several",
            field=option,
        )
    return name


def numbers_for(name: str, adapter: str, n: int) -> list[str]:
    """The adapters of n devices: the numbers that `adapter` lists, by default the first ones.

    A backend without adapters has none. Raises RequestError for another count of numbers, or one twice.
    """
    if "adapter" not in row_of(name).options:
        return [adapter] * n
    numbers = adapter.split(",") if adapter else [str(i) for i in range(n)]
    if len(numbers) != n or len(set(numbers)) != n:
        known = ",".join(map(str, range(n)))
        raise RequestError(
            f"adapter is {adapter!r}, expected the numbers of {n} GPUs, such as {known}, each once",
            field="adapter",
        )
    return numbers
