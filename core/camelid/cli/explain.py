"""`camelid explain`: a model's plan as text, and the bytes and FLOPs of one step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import click

from camelid.backends.registry import oracle_name
from camelid.cli.command import BACKEND_NAMES, model_argument, subcommand
from camelid.cli.gpu_flag import gpu_layers_option
from camelid.cli.hub_download import local_path
from camelid.engine.programs import DECODE, MIXED
from camelid.loading.choose import choose_backend
from camelid.loading.deployment import Deployment
from camelid.loading.devices import Device, devices_of
from camelid.loading.model_file import open_model
from camelid.loading.options import LoadOptions
from camelid.model.arch import Model
from camelid.plan.cost import predict_step
from camelid.plan.memory import plan_arena
from camelid.plan.plan import Plan
from camelid.plan.stages import split

Report = dict[str, Any]
DEFAULT = oracle_name()
HELD = ("weight_bytes", "arena_bytes")  # summed over devices


@subcommand
@model_argument
@click.option("--entry", type=click.Choice([DECODE, MIXED]), default=DECODE, show_default=True,
              help="Plan of a decode step, or of a step with prefill.")  # fmt: skip
@click.option("--backend", type=click.Choice(BACKEND_NAMES), metavar="NAME",
              help=f"Backend of the rewrites. Default: {DEFAULT}; with -ngl the GPU's.")  # fmt: skip
@click.option(
    "--adapter",
    default="",
    metavar="NAME",
    help="Select a device by part of its name; on cuda by its number.",
)
@gpu_layers_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: costs, and the plan's text.")
def command(
    model: str, entry: str, backend: str | None, adapter: str, gpu_layers: int | None, as_json: bool,
    verbose: bool,  # noqa: ARG001 - `subcommand` reads it
) -> None:  # fmt: skip
    """Print a model's plan: its ops, and the cost of one step. Reads no weights.

    With -ngl the plan has one stage per device, and costs are also listed by device.
    """
    default = DEFAULT if gpu_layers is None else "auto"
    options = LoadOptions(backend=backend or default, adapter=adapter, gpu_layers=gpu_layers)
    deployment, devices = asyncio.run(read(local_path(model), options))
    plan, own = deployment.plan(entry), deployment.model
    n_rows = 1 if entry == DECODE else deployment.limits.chunk
    facts = figures(plan, own, n_rows)
    if gpu_layers is not None:
        facts |= device_figures(plan, own, n_rows, devices)
    if as_json:
        click.echo(json.dumps({**facts, "backend": deployment.capabilities.name, "plan": plan.text()}))
        return
    click.echo(plan.text())
    for text in lines(facts):
        click.echo(text)


async def read(model: str, options: LoadOptions) -> tuple[Deployment, list[Device]]:
    """The deployment of a model at its full context length, and the devices of its backend, closed again."""
    file = await open_model(model)
    options = replace(options, context=file.spec.context_length)
    chosen = await choose_backend(options, file.model)
    try:
        return chosen.deployment, devices_of(chosen.backend, len(file.spec.layers))
    finally:
        await chosen.backend.close()


def figures(plan: Plan, model: Model, n_rows: int) -> Report:
    """Sizes, and bytes and FLOPs of a step of `n_rows` rows at the start and the end of the context."""
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


def device_figures(plan: Plan, model: Model, n_rows: int, devices: Sequence[Device]) -> Report:
    """The costs of each device's stage, and the sums of weight and arena bytes."""
    stages = split(plan, [device.layers for device in devices])
    each: list[Report] = [
        {"backend": device.name, "part": device.part, **figures(stage, model, n_rows)}
        for device, stage in zip(devices, stages, strict=True)
    ]
    return {**{name: sum(facts[name] for facts in each) for name in HELD}, "devices": each}


def lines(facts: Report) -> Iterator[str]:
    """The costs as text; for several devices also those of each."""
    for name, value in facts.items():
        if name != "devices":
            label = name.replace("_", " ")
            yield f"{label:<24}{value:,}" if isinstance(value, int) else f"{label:<24}{value}"
    devices: list[Report] = facts.get("devices", [])
    for device in devices if len(devices) > 1 else []:
        yield ""
        yield from lines(device)
