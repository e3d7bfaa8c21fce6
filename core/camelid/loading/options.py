"""The load options: one class, from the public `load` to the deployment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from os import PathLike
from typing import Any

from camelid.backends.registry import user_names
from camelid.engine.programs import Limits
from camelid.engine.request import check_integer
from camelid.errors import RequestError, shown
from camelid.loading.lora import LoraName, lora_files
from camelid.loading.model_file import ModelName
from camelid.model.adapter import MOST_RANK
from camelid.model.kv_types import KV_TYPES

ACTIVATIONS = ("f32", "q8")
BACKENDS = ("auto", *user_names())
KV_TYPE_NAMES = tuple(KV_TYPES)
POOLINGS = ("none", "mean", "cls", "last")
COLLECTIVES = ("peer", "nccl")
MOST_SLOTS = 1024
LEARN = ("off", "memory", "on")
INTEGERS = ("context", "chunk", "step_ms", "kv_rows", "threads", "gpu_layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """Backend, memory bounds and parallelism of a loaded model.

    `backend` "auto" chooses the first backend with a hardware device, kernels for the whole model and a
    passed parity gate, else the reference. `adapter` is a part of a GPU device's name (on cuda its number),
    or a variant of the CPU kernels, such as avx2. `threads` is the number of CPU threads (None: all that the
    process may use). `gpu_layers` puts the last layers on a GPU and the others on the CPU; the head counts as
    one layer, 0 is the CPU alone, -1 the GPU alone (None: no split). `tensor_parallel` is the number of GPUs
    that compute each layer together, `pipeline_parallel` the number that each have a part of the layers;
    `adapter` may list the GPUs' numbers, such as "0,2" (by default the first).
    `collective` "nccl" lets NCCL sum over the GPUs of `tensor_parallel`, for long prompts on many GPUs, but
    then other requests may change a result (None: own sums, in one order).
    `activations` "q8" rounds the input of matrix products to 8 bits, as `cpu` always does: on webgpu faster
    where integer dot products are native (most GPUs but Apple's and Adreno), with an NMSE of about 3e-5 per
    product (None: the backend's own).

    `context` bounds prompt and answer of a sequence (None: the model's own length, up to 4096), `parallel`
    the sequences that run at once, `chunk` the prompt rows of a step (None: the backend's default). A step
    that also generates has prompt rows for about `step_ms` milliseconds. `kv_rows` bounds the KV cache of all
    sequences together (None: enough for `parallel` full contexts). `kv_type` is its storage type: f32, f16,
    q8_0, q4_0, or two-tier and two-tier-q4_0, which store all rows in q8_0 or q4_0 and read at least the
    latest 256 from a second copy in f16. `max_in_flight` lowers the number of steps in flight. `record_tape`
    records a tape for `save_tape`. `pooling` makes embeddings by mean, cls or last, or a row for each token
    with none, whatever the file states (None: as the file states). `mmproj` is the GGUF file of the model's
    vision tower; `mmproj_auto` fetches the one in the repository of a hub id, if `mmproj` names none.
    `adapter_rank` is the largest rank of a request's LoRA adapters together, up to 64 (0: that of the first
    adapter, at least 16), `adapter_slots` the number of different ones that run at once (0: `parallel`).

    `learn` "memory" stores feedback and past requests and lets feedback act as memory, "on" also trains
    adapters when idle. `learn_user` names the user's space, and `learn_folder` the folder of all spaces
    (None: in the user's data directory). `learn_checks` is a file of questions with right answers, which
    count as past requests when a trained adapter is judged.
    `lora` are adapters that are loaded with the model: paths, whose adapters act on requests that name none,
    or `LoraFile`s with a name and scales.
    """

    backend: str = "auto"
    adapter: str = ""
    threads: int | None = None
    gpu_layers: int | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    collective: str | None = None
    activations: str | None = None
    context: int | None = None
    parallel: int = 4
    chunk: int | None = None
    step_ms: int = 100
    kv_type: str = "f32"
    kv_rows: int | None = None
    max_in_flight: int | None = None
    record_tape: bool = False
    pooling: str | None = None
    mmproj: ModelName | None = None
    mmproj_auto: bool = True
    adapter_rank: int = 0
    adapter_slots: int = 0
    learn: str = "off"
    learn_user: str = "local"
    learn_folder: str | PathLike[str] | None = None
    learn_checks: str | PathLike[str] | None = None
    lora: Sequence[LoraName] = ()

    @classmethod
    def of(cls, **options: Any) -> LoadOptions:
        """Options by name. Raises RequestError for an unknown name, with the known names."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise RequestError(
                f"option {unknown[0]!r} is unknown; known: {', '.join(known)}", field=unknown[0]
            )
        return cls(**options)

    def _check_collective(self) -> None:
        if self.collective not in (None, *COLLECTIVES):
            known = " or ".join(COLLECTIVES)
            raise RequestError(
                f"collective is {shown(self.collective)}, expected {known}", field="collective"
            )
        if self.collective and self.tensor_parallel < 2:
            raise RequestError(
                f"collective is {self.collective!r}, but tensor_parallel is {self.tensor_parallel}; give "
                "2 or more GPUs, or omit collective",
                field="collective",
            )

    def _check_learning(self) -> None:
        if self.learn not in LEARN:
            known = ", ".join(LEARN)
            raise RequestError(f"learn is {shown(self.learn)}, expected {known}", field="learn")
        if self.learn_checks is not None and self.learn != "on":
            raise RequestError(
                f"learn_checks judge what is trained, but learn is {self.learn!r}; give learn 'on', or omit "
                "learn_checks",
                field="learn_checks",
            )

    def check(self) -> None:
        """Raises RequestError for a value out of range, and for `parallel` above `chunk`."""
        check_integer("parallel", self.parallel, 1)
        check_integer("adapter_rank", self.adapter_rank, 0, MOST_RANK)
        check_integer("adapter_slots", self.adapter_slots, 0, MOST_SLOTS)
        lora_files(self.lora)
        check_integer("tensor_parallel", self.tensor_parallel, 1)
        check_integer("pipeline_parallel", self.pipeline_parallel, 1)
        for name in INTEGERS:
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        self._check_collective()
        if self.pooling not in (None, *POOLINGS):
            known = ", ".join(POOLINGS)
            raise RequestError(f"pooling is {shown(self.pooling)}, expected {known}", field="pooling")
        if self.activations not in (None, *ACTIVATIONS):
            raise RequestError(
                f"activations are {self.activations!r}, expected {' or '.join(ACTIVATIONS)}",
                field="activations",
            )
        self._check_learning()
        if self.chunk is not None:
            Limits(self.chunk, self.parallel)
