"""`camelid explain`: the plan as text, and what one step of it moves and computes."""

from __future__ import annotations

import asyncio
import json

import click

from camelid.backends.base import Capabilities
from camelid.cli.fetching import local_model
from camelid.cli.verb import BACKEND_NAMES, model_argument, verb
from camelid.engine.metrics import predict_step
from camelid.engine.programs import DECODE, MIXED, Limits
from camelid.loading import make_plan, open_named
from camelid.model.arch import Model
from camelid.opening import open_model
from camelid.plan.memory import plan_arena
from camelid.plan.plan import Plan


@verb
@model_argument
@click.option("--entry", type=click.Choice([DECODE, MIXED]), default=DECODE, show_default=True)
@click.option("--backend", type=click.Choice(BACKEND_NAMES), default="reference", show_default=True,
              metavar="NAME", help="Whose rewrites to apply.")  # fmt: skip
@click.option("--adapter", default="", metavar="NAME", help="The device whose name contains this.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: the figures, and the plan's text.")
def command(model: str, entry: str, backend: str, adapter: str, as_json: bool, verbose: bool) -> None:  # noqa: ARG001
    """Print the plan: the model as a list of ops, and what a step costs. Reads no weights."""
    file, capabilities = asyncio.run(read(local_model(model), backend, adapter))
    limits = Limits()
    plan = make_plan(file, entry, limits, capabilities.fused, most_bytes=capabilities.most_bytes)
    facts = figures(plan, file, 1 if entry == DECODE else limits.chunk)
    if as_json:
        click.echo(json.dumps({**facts, "backend": capabilities.name, "plan": plan.text()}))
        return
    click.echo(plan.text())
    for name, value in facts.items():
        click.echo(
            f"{name.replace('_', ' '):<24}{value:,}" if isinstance(value, int) else f"{name:<24}{value}"
        )


async def read(model: str, backend: str, adapter: str) -> tuple[Model, Capabilities]:
    """The model, and the capabilities of a backend, opened for as long as that takes."""
    file = await open_model(model)
    opened = await open_named(backend, adapter)
    try:
        return file.model, opened.capabilities()
    finally:
        await opened.close()


def figures(plan: Plan, model: Model, n_rows: int) -> dict[str, int | str]:
    """Sizes and costs in bytes and operations: for a step of `n_rows` rows at the start and at the end."""
    last = model.spec.context_length - n_rows
    first_step, last_step = (predict_step(plan, n_rows=n_rows, held=held) for held in (0, last))
    return {
        "hash": plan.hash(),
        "ops": len(plan.ops),
        "weight_bytes": sum(w.n_bytes for w in plan.weights().values()),
        "arena_bytes": plan_arena(plan).n_bytes,
        "step_rows": n_rows,
        "first_step_bytes": first_step.n_bytes,
        "first_step_flops": first_step.flops,
        "full_step_bytes": last_step.n_bytes,
        "full_step_flops": last_step.flops,
    }
