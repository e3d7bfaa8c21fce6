"""Several devices of one backend: which backend, the devices' numbers, and what each has of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from camelid.backends.base import Shares
from camelid.backends.registry import names_of, names_with, row_of
from camelid.errors import RequestError
from camelid.loading.deployment import check_context
from camelid.loading.options import LoadOptions
from camelid.model.arch import Model
from camelid.model.decoder import lower
from camelid.model.parallel import share_states, shares
from camelid.model.spec_reader import at_context
from camelid.plan.adapter_shares import SlotShares, slot_shares, slot_states
from camelid.plan.adapters import Shape
from camelid.plan.op_rows_adapters import FEATURE, KIND
from camelid.plan.plan import Plan, StateSpec


def shares_of(model: Model, options: LoadOptions) -> Shares:
    """The shares of `tensor_parallel` devices. Raises RequestError for a model that cannot be divided so."""
    n = options.tensor_parallel
    whole = at_context(model, check_context(options.context, model))
    models = shares(whole, n)
    shapes, own_shapes = _shapes(whole), _shapes(models[0])

    def plans(plan: Plan) -> list[Plan]:
        key = replace(plan.key, features=plan.key.features - {FEATURE})
        own_states = share_states(_without_slots(plan.states), n)
        return [lower(own, key, own_states) for own in models]

    def slots(states: Sequence[StateSpec]) -> SlotShares:
        return slot_shares(states, shapes, own_shapes, n)

    def states(all_states: Sequence[StateSpec]) -> tuple[StateSpec, ...]:
        of_slots = slot_states(all_states)
        own = slots(of_slots).own.states if of_slots else ()
        return (*share_states(_without_slots(all_states), n), *own)

    return Shares(plans, states, slots)


def _without_slots(states: Sequence[StateSpec]) -> list[StateSpec]:
    return [state for state in states if state.kind != KIND]


def _shapes(model: Model) -> dict[str, Shape]:
    """(columns in, columns out, experts) of the model's matrices by name."""
    return {
        name: (weight.cols, weight.shape[-2], weight.shape[0] if len(weight.shape) == 3 else 0)
        for name, weight in model.weights.items()
        if len(weight.shape) > 1
    }


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
