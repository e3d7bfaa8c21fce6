"""What each device of a tensor-parallel model has of its plans and state."""

from __future__ import annotations

from collections.abc import Sequence

from camelid.backends.base import Shares
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
