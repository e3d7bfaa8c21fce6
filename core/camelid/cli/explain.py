"""`camelid explain`: the plan as text, and what one step of it moves and computes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import click

from camelid.backends.base import Capabilities
from camelid.cli.command import BACKEND_NAMES, model_argument, subcommand
from camelid.cli.devices import Device, devices_of
from camelid.cli.gpu_flag import gpu_layers_option
from camelid.cli.hub_download import local_path
from camelid.engine.programs import DECODE, MIXED, Limits
from camelid.loading.model_file import open_model
from camelid.loading.start import LoadOptions, backend_plan, choose_backend
from camelid.model.arch import Model
from camelid.plan.cost import predict_step
from camelid.plan.memory import plan_arena
from camelid.plan.plan import Plan
from camelid.plan.stages import split

Facts = dict[str, Any]
DEFAULT = "reference"
HELD = ("weight_bytes", "arena_bytes")  # by each device for itself


@subcommand
@model_argument
@click.option("--entry", type=click.Choice([DECODE, MIXED]), default=DECODE, show_default=True)
@click.option("--backend", type=click.Choice(BACKEND_NAMES), metavar="NAME",
              help=f"Whose rewrites to apply. Default: {DEFAULT}; with -ngl webgpu.")  # fmt: skip
@click.option("--adapter", default="", metavar="NAME", help="The device whose name contains this.")
@gpu_layers_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object: the figures, and the plan's text.")
def command(
    model: str, entry: str, backend: str | None, adapter: str, gpu_layers: int | None, as_json: bool,
    verbose: bool,  # noqa: ARG001 - `subcommand` reads it
) -> None:  # fmt: skip
    """Print the plan: the model as a list of ops, and what a step costs. Reads no weights.

    With -ngl it has a stage for each device, and the figures are also told by device.
    """
    default = DEFAULT if gpu_layers is None else "auto"
    options = LoadOptions(backend=backend or default, adapter=adapter, gpu_layers=gpu_layers)
    file, capabilities, devices = asyncio.run(read(local_path(model), options))
    limits = Limits()
    plan = backend_plan(file, entry, limits, capabilities, "f32")
    n_rows = 1 if entry == DECODE else limits.chunk
    facts = figures(plan, file, n_rows)
    if gpu_layers is not None:
        facts |= device_figures(plan, file, n_rows, devices)
    if as_json:
        click.echo(json.dumps({**facts, "backend": capabilities.name, "plan": plan.text()}))
        return
    click.echo(plan.text())
    for text in lines(facts):
        click.echo(text)


async def read(model: str, options: LoadOptions) -> tuple[Model, Capabilities, list[Device]]:
    """The model, and the capabilities and devices of a backend, opened for as long as that takes."""
    file = await open_model(model)
    opened, _ = await choose_backend(options, file.model, Limits())
    try:
        return file.model, opened.capabilities(), devices_of(opened, len(file.model.spec.layers))
    finally:
        await opened.close()


def figures(plan: Plan, model: Model, n_rows: int) -> Facts:
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


def device_figures(plan: Plan, model: Model, n_rows: int, devices: Sequence[Device]) -> Facts:
    """The figures of each device's stage, and sums of what each holds for itself."""
    stages = split(plan, [device.layers for device in devices])
    each: list[Facts] = [
        {"backend": device.name, "part": device.part, **figures(stage, model, n_rows)}
        for device, stage in zip(devices, stages, strict=True)
    ]
    return {**{name: sum(facts[name] for facts in each) for name in HELD}, "devices": each}


def lines(facts: Facts) -> Iterator[str]:
    """The figures as people read them; of two devices those of each, too."""
    for name, value in facts.items():
        if name != "devices":
            label = name.replace("_", " ")
            yield f"{label:<24}{value:,}" if isinstance(value, int) else f"{label:<24}{value}"
    devices: list[Facts] = facts.get("devices", [])
    for device in devices if len(devices) > 1 else []:
        yield ""
        yield from lines(device)
