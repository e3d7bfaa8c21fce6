"""Collects the tape sections of every op case without a device, for shader lint."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.model.runs import make_plan, make_state
from tests.support.parity.cases import OP_CASES
from tests.support.parity.cases_wide import wide_cases

from camelid.backends.base import OpenSpec, PoolSize
from camelid.backends.common.op_runner import OpCase, run_case
from camelid.backends.webgpu.backend import DOT_PRODUCTS, WebGpuBackend
from camelid.backends.webgpu.limits import DEFAULTS
from camelid.model.presets import PRESETS
from camelid.model.sizes import bare_model
from camelid.plan.adapters import adapter_layout, with_adapters
from camelid.plan.fuse import fuse

LIMITS = {  # of GPUs; the forms of qkv bind at most 13 buffers, and Chromium has ten
    **DEFAULTS,
    "maxStorageBuffersPerShaderStage": 16,
    "maxStorageBufferBindingSize": 1 << 30,
    "maxBufferSize": 1 << 30,
}


class PaperHost:
    """A host that records sections and computes nothing: every byte that it returns is zero."""

    def __init__(self, adapter: str = "paper") -> None:
        self.adapter = adapter
        self.sections: list[dict[str, Any]] = []
        self.writes: list[tuple[str, int, bytes]] = []

    async def open(self, spec: dict[str, Any]) -> dict[str, Any]:
        return {"adapter": {"device": self.adapter}, "limits": LIMITS, "language": [DOT_PRODUCTS]}

    async def load(self, section: dict[str, Any], sources: Mapping[str, Any]) -> None:
        self.sections.append(section)

    async def allocate(self, section: dict[str, Any]) -> None:
        self.sections.append(section)

    def prepare(self, section: dict[str, Any]) -> None:
        pass

    async def compile(self, section: dict[str, Any]) -> int:
        self.sections.append(section)
        return len(self.sections)

    def run(self, program: int, step: bytes) -> int:
        return 0

    async def read(self, ticket: int) -> bytes:
        return b""

    async def read_state(self, buffer: str, offset: int, n_bytes: int) -> bytes:
        return bytes(n_bytes)

    def write(self, buffer: str, offset: int, data: bytes) -> None:
        self.writes.append((buffer, offset, data))

    async def write_state(self, buffer: str, offset: int, data: bytes) -> None:
        self.writes.append((buffer, offset, data))

    def memory(self) -> dict[str, int]:
        return {}

    async def close(self) -> None:
        pass


def all_pipelines() -> list[dict[str, Any]]:
    """Every distinct pipeline of all op cases: its WGSL, the access of its bindings, its constants."""
    found: list[dict[str, Any]] = []
    every = [*asyncio.run(_collect(OP_CASES)), *asyncio.run(_collect(OP_CASES, "q8"))]
    every += asyncio.run(_collect(wide_cases(), adapter="llvmpipe"))
    every += [asyncio.run(adapted_sections(adapter)) for adapter in ("paper", "llvmpipe")]
    for section in (section for sections in every for section in sections):
        for entry in section["pipelines"]:
            access = section["layouts"][entry["layout"]]
            one = {"name": entry["module"], "wgsl": section["modules"][entry["module"]], "access": access}
            found.append(one | {"constants": entry["constants"]})
    return [one for i, one in enumerate(found) if one not in found[:i]]


async def adapted_sections(adapter: str) -> list[dict[str, Any]]:
    """The sections of a model with adapters, whose ops consist of several."""
    host = PaperHost(adapter)
    backend = WebGpuBackend(host)
    await backend.open(OpenSpec())
    whole = make_plan(bare_model(PRESETS["8b"], "f16"), 3, 3, context=64)
    layout, plan = adapter_layout([whole], 16), fuse(whole, backend.capabilities().fused)
    sizes = make_state(plan.states, context=64, n_sequences=3).sizes()
    await backend.allocate(plan.states, sizes)
    await backend.allocate(layout.states, {state.name: PoolSize(2) for state in layout.states})
    await backend.compile(with_adapters(plan, layout))
    return host.sections


def module_names(cases: Sequence[OpCase], activations: str = "f32") -> list[list[str]]:
    """For each case the names of its modules: file names joined by +."""
    every = asyncio.run(_collect(cases, activations))
    return [[n for s in sections for n in s["modules"]] for sections in every]


async def _collect(
    cases: Sequence[OpCase], activations: str = "f32", adapter: str = "paper"
) -> list[list[dict[str, Any]]]:
    """The sections of each case."""
    host = PaperHost(adapter)
    backend = WebGpuBackend(host)
    await backend.open(OpenSpec(activations=activations))
    sections: list[list[dict[str, Any]]] = []
    for case in cases:
        host.sections = []
        await run_case(backend, case)
        sections.append(host.sections)
    return sections
