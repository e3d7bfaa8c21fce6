"""The compute pipelines of a plan, lowered without a device."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from typing import Any

from camelid.backends.base import PoolSize
from camelid.backends.registry import open_backend
from camelid.backends.webgpu import shaders
from camelid.backends.webgpu.kernel import GPU_LANES
from camelid.backends.webgpu.limits import DEFAULTS
from camelid.backends.webgpu.lower import program_section
from camelid.loading.deployment import Deployment
from camelid.loading.options import LoadOptions
from camelid.model.arch import Model
from camelid.plan.adapters import adapter_layout, with_adapters

CHUNK = 32  # weights of a row that a lane takes at once
ROWS = 4  # weight rows of a lane in matvec.wgsl
LOOP, NO_LOOP = "c < n_chunks(); c += LANES", "c < 0u; c += LANES"  # in matvec.wgsl
LIMITS = {**DEFAULTS, "maxStorageBuffersPerShaderStage": 10}  # of most GPUs


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline: shader files, WGSL, access of its bindings, override constants, and its use in a step.

    `weight_type` is the type of the weights that it reads, "" for none, two with + for two halves;
    `weight_bytes` are their bytes in a step.
    """

    files: tuple[str, ...]
    wgsl: str
    access: tuple[str, ...]
    constants: Mapping[str, float]
    weight_type: str = ""
    dispatches: int = 0
    weight_bytes: int = 0

    @property
    def is_tiled(self) -> bool:
        return "matmul_tile" in self.files

    @property
    def name(self) -> str:
        """The op's file, and the sizes that tell pipelines of one op apart."""
        sizes = [f"{key}={self.constants[key]:g}" for key in ("K", "N", "TOKENS") if key in self.constants]
        op = [*takewhile("deferred".__ne__, self.files)][-1]  # a product's sums follow its own file
        op = f"norm_{op}" if self.constants.get("IS_DEFERRED") else op
        op = f"{op}_matmul" if self.is_tiled else op
        return " ".join(filter(None, [op, self.weight_type, "x q8" if self.is_rounded else "", *sizes]))

    @property
    def has_halves(self) -> bool:
        """True for two kernels in one."""
        return "halves" in self.files

    @property
    def has_loop(self) -> bool:
        """True for a matvec with its loop over chunks."""
        return LOOP in self.wgsl and not self.is_tiled

    @property
    def is_bare(self) -> bool:
        """True for a matvec without its loop."""
        return NO_LOOP in self.wgsl

    def without_loop(self) -> Pipeline:
        return replace(self, wgsl=self.wgsl.replace(LOOP, NO_LOOP))

    @property
    def sizes(self) -> tuple[float, ...]:
        """Columns and rows of the weight, and token rows of a workgroup."""
        return tuple(self.constants.get(name, 0) for name in ("K", "N", "TOKENS"))

    @property
    def is_rounded(self) -> bool:
        """True for a product of 8-bit activations."""
        return "rounded" in self.files

    @property
    def products(self) -> int:
        """Products of a weight and a value per lane in an iteration of the hot loop, 0 if it is unknown.

        A tile has loops in its loop, which compilers unroll or not; two halves have a hot loop each.
        """
        is_known = "matvec_quads" in self.files and not self.has_halves
        return ROWS * CHUNK * int(self.constants.get("TOKENS", 1)) if is_known else 0

    @property
    def key(self) -> Hashable:
        """The compilers' input: equal pipelines have equal machine code."""
        return self.wgsl, self.access, tuple(sorted(self.constants.items()))

    def json(self) -> dict[str, Any]:
        """The entry of a worker."""
        return {key: asdict(self)[key] for key in ("wgsl", "access", "constants")}


def with_values(model: Model, type_name: str) -> Model:
    """The model with values of another type, as files of several types have them in half of their layers."""
    own = {n: replace(w, type=type_name) for n, w in model.weights.items() if n.endswith(".attn_v")}
    return replace(model, weights={**model.weights, **own})


def pipelines_of(model: Model, options: LoadOptions, program: str) -> list[Pipeline]:
    """The pipelines of a model's program at its largest row bucket, as a GPU gets them. With `adapter_rank`,
    of its variant with adapters.
    """
    can = open_backend("webgpu").capabilities()
    deployment = Deployment.of(model, options, can)
    plan, sizes = deployment.plan(program), deployment.kv_cache().sizes()
    if options.adapter_rank:
        layout = adapter_layout([deployment.lowered(program)], options.adapter_rank, can.slot_type)
        plan = with_adapters(plan, layout)
        sizes = {**sizes, **{state.name: PoolSize(1 + options.parallel) for state in layout.states}}
    section = program_section(plan, sizes, shaders.join, GPU_LANES, LIMITS, options.activations or "f32")
    return list(_pipelines(section.json()))


def _pipelines(section: Mapping[str, Any]) -> Iterator[Pipeline]:
    for number, entry in enumerate(section["pipelines"]):
        groups = [c[2] for c in section["commands"] if c[0] == "dispatch" and c[1] == number]
        files = tuple(entry["module"].split("+"))
        yield Pipeline(
            files,
            section["modules"][entry["module"]],
            tuple(section["layouts"][entry["layout"]]),
            entry["constants"],
            "+".join(file.removeprefix("codec_") for file in files if file.startswith("codec_")),
            len(groups),
            sum(_weight_bytes(section["groups"][group]) for group in groups),
        )


def _weight_bytes(group: Mapping[str, Any]) -> int:
    """Bytes of the weights of a dispatch, each counted once though bound twice."""
    bindings = {
        (name, offset): size for name, offset, size in group["bindings"] if name.startswith("weight/")
    }
    return sum(bindings.values())
