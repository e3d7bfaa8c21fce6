"""llama.cpp as the rival, through its C API: the same file, threads, depth and KV cache type.

As in llama-bench: random tokens, no sampling, one decoded token per stream and step.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from camelid.cli.bench_cases import Case
from camelid.cli.bench_runs import Clock, Run
from camelid.errors import BackendError

NAME = "llama.cpp"
BATCH = 512  # rows per call: llama.cpp's default n_ubatch
GGML_TYPES: Mapping[str, int] = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}
FLASH_ATTENTION: Mapping[str, int] = {"auto": -1, "off": 0, "on": 1}  # llama_flash_attn_type


class LlamaCpp:
    """A model loaded in llama.cpp; a context manager."""

    def __init__(
        self, path: Path, *, context: int, batch: int, threads: int, kv_type: str, clock: Clock,
        flash_attention: str = "auto",
    ) -> None:  # fmt: skip
        if kv_type not in GGML_TYPES:
            raise BackendError(
                f"llama.cpp has no KV cache of type {kv_type!r}; expected {', '.join(GGML_TYPES)}",
                backend=NAME,
            )
        self._lib = lib = load_library()
        self._clock = clock
        self._model = self._load(path)
        self._context = lib.llama_init_from_model(
            self._model, self._context_params(context, batch, threads, kv_type, flash_attention)
        )
        if not self._context:
            lib.llama_model_free(self._model)
            raise BackendError(
                f"llama.cpp cannot allocate {batch} streams of {context} rows of type {kv_type} with flash "
                f"attention {flash_attention}; give smaller -p, -n, -d or -b, or another --kv-type",
                backend=NAME,
            )
        self._held: list[list[int]] = []  # token ids of each stream before the timed ones, from the last run
        self._batch = lib.llama_batch_init(BATCH, 0, 1)
        self._n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))

    def _load(self, path: Path) -> Any:
        params = self._lib.llama_model_default_params()
        params.n_gpu_layers = 0
        self._lib.llama_backend_init()
        model = self._lib.llama_model_load_from_file(str(path).encode(), params)
        if not model:
            raise BackendError(
                f"llama.cpp cannot load {path}; is it a GGUF file of a supported architecture?", backend=NAME
            )
        return model

    def _context_params(
        self, context: int, batch: int, threads: int, kv_type: str, flash_attention: str
    ) -> Any:
        params = self._lib.llama_context_default_params()
        params.n_ctx, params.n_seq_max = context * batch, batch
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = GGML_TYPES[kv_type]
        params.flash_attn_type = FLASH_ATTENTION[flash_attention]
        return params

    @property
    def build(self) -> str:
        """llama-cpp-python's version, and llama.cpp's instruction sets."""
        system = self._lib.llama_print_system_info().decode("utf-8", "replace").strip(" |")
        return f"llama-cpp-python {self._lib.__version__}, {system}"

    def run(self, case: Case, repetition: int) -> Run:
        """One timed run of the case; the rows before it are computed first, untimed."""
        lib = self._lib
        prompts = [case.prompt(i, repetition, self._n_vocab) for i in range(case.batch)]
        rows = [(s, i, token) for s, prompt in enumerate(prompts) for i, token in enumerate(prompt)]
        held = [prompt[: case.held] for prompt in prompts]
        if not self._truncate(held):
            lib.llama_memory_clear(lib.llama_get_memory(self._context), True)
            self._decode_all([row for row in rows if row[1] < case.held])
            self._held = held
        start = self._clock()
        if case.kind == "pp":
            self._decode_all([row for row in rows if row[1] >= case.held])
        else:
            for i in range(case.held, case.held + case.n):
                self._decode([(s, i, prompt[0]) for s, prompt in enumerate(prompts)])
        lib.llama_synchronize(self._context)
        seconds = self._clock() - start
        return Run(
            seconds=seconds, n_tokens=case.n * case.batch, ttft_s=seconds if case.kind == "pp" else 0.0
        )

    def _truncate(self, held: list[list[int]]) -> bool:
        """Truncates the KV cache to these rows; False if the last run started with others."""
        memory = self._lib.llama_get_memory(self._context)
        return held == self._held and all(
            self._lib.llama_memory_seq_rm(memory, stream, len(rows), -1) for stream, rows in enumerate(held)
        )

    def _decode_all(self, rows: Sequence[tuple[int, int, int]]) -> None:
        remaining = iter(rows)
        while part := list(islice(remaining, BATCH)):
            self._decode(part)
        self._lib.llama_synchronize(self._context)

    def _decode(self, rows: Sequence[tuple[int, int, int]]) -> None:
        """Calls llama_decode with rows (stream, position, token); logits for the last row of each stream."""
        batch, last = self._batch, {stream: i for i, (stream, _, _) in enumerate(rows)}
        batch.n_tokens = len(rows)
        for i, (stream, position, token) in enumerate(rows):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, stream
            batch.logits[i] = i == last[stream]
        if status := self._lib.llama_decode(self._context, batch):
            raise BackendError(f"llama.cpp: llama_decode returned {status}, expected 0", backend=NAME)

    def __enter__(self) -> LlamaCpp:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._lib.llama_batch_free(self._batch)
        self._lib.llama_free(self._context)
        self._lib.llama_model_free(self._model)


def load_library() -> Any:
    """The package llama_cpp, with its log off. Raises BackendError with the pip command if it is missing."""
    try:
        library = import_module("llama_cpp")
    except ModuleNotFoundError as error:
        raise BackendError(
            "--compare llama.cpp needs the package llama_cpp: pip install llama-cpp-python", backend=NAME
        ) from error
    logging.getLogger("llama-cpp-python").setLevel(logging.CRITICAL)
    return library
