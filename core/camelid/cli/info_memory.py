"""The forecast of `camelid info --memory`: memory after loading, by device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from camelid.cli.format import human, line
from camelid.loading.choose import unopened
from camelid.loading.devices import Device, devices_of
from camelid.loading.estimate import MemoryEstimate
from camelid.loading.forecast import predict
from camelid.loading.options import LoadOptions
from camelid.model.arch import Model

Report = dict[str, Any]


def memory_facts(ways: Mapping[str, Model], options: LoadOptions) -> Report:
    """The memory forecast for each weight type, and the types without a kernel. Opens no device.

    With `gpu_layers` also the forecast of each device; the others are their sums. RequestError as in
    `load`.
    """
    spec = next(iter(ways.values())).spec
    backend, gpu_layers = options.backend, options.gpu_layers
    whole = unopened(spec, backend, gpu_layers)
    devices = devices_of(whole, len(spec.layers))
    sums = {name: predict(model, whole, devices, options) for name, model in ways.items()}
    uses = [{name: sums[name][i] for name in ways} for i in range(len(devices))]
    each = [device_facts(device, use) for device, use in zip(devices, uses, strict=True)]
    first = next(iter(sums.values()))[0]
    return {
        "context": first.context,
        "parallel": first.parallel,
        "no_kernel": sorted({name for facts in each for name in facts["no_kernel"]}),
        "at": {name: summed([facts["at"][name] for facts in each]) for name in ways},
        "backend": backend if gpu_layers is None else whole.capabilities().name,
        **({} if gpu_layers is None else {"devices": each}),
    }


def device_facts(device: Device, footprints: Mapping[str, MemoryEstimate]) -> Report:
    """Report of one device: its part of the model, and its memory."""
    types = frozenset[str]().union(*(f.weight_types for f in footprints.values()))
    return {
        "backend": device.name,
        "part": device.part,
        "layers": len(device.layers),
        "no_kernel": sorted(types - device.backend.capabilities().weight_types),
        "at": {name: footprint_facts(footprint) for name, footprint in footprints.items()},
    }


def footprint_facts(f: MemoryEstimate) -> Report:
    """Bytes by use, and their sum."""
    return {
        "weights": f.weights,
        **{f"state_{name}": n for name, n in f.states.items()},
        "page_tables": f.page_tables,
        **{f"scratch_{name}": n for name, n in f.scratch.items()},
        "steps": f.steps,
        "process": f.process,
        "total": f.total,
    }


def summed(each: Sequence[Report]) -> Report:
    """Bytes by use, summed over all devices."""
    return {use: sum(facts[use] for facts in each) for use in each[0]}


def memory_lines(facts: Report) -> Iterator[str]:
    """A heading and a table with one column per weight type; several devices each add a table."""
    how = f"{facts['backend']}, context {facts['context']:,}, parallel {facts['parallel']}"
    yield line("memory", f"{how}; weights {' and '.join(facts['at'])}")
    devices: list[Report] = facts.get("devices", [])
    if len(devices) > 1:
        for device in devices:
            yield line(f"on_{device['backend']}", device["part"])
            yield from _table(device["at"])
        yield "in all"
    yield from _table(facts["at"])


def _table(at: Mapping[str, Report]) -> Iterator[str]:
    for name in next(iter(at.values())):
        texts = (f"{human(use[name]):>10}{use[name]:>18,} bytes" for use in at.values())
        yield f"  {line(name, '')}" + "  ".join(texts)


def notes(facts: Report) -> Iterator[str]:
    """The weight types without a kernel, by backend."""
    for device in facts.get("devices", [facts]):
        if device["no_kernel"]:
            yield f"note: {device['backend']} has no kernel for {', '.join(device['no_kernel'])}"
