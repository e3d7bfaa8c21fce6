"""The rivals of `camelid bench --compare`: engines that run the same model in alternating runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Protocol

import click

from camelid.cli import bench_llama_cpp, bench_mlx_lm
from camelid.cli.bench_cases import Case
from camelid.cli.bench_runs import Run
from camelid.loading.model_file import find_directory, find_source
from camelid.loading.options import LoadOptions


class Rival(Protocol):
    """A loaded model of another engine."""

    @property
    def build(self) -> str: ...
    def run(self, case: Case, repetition: int) -> Run: ...


@dataclass(frozen=True, slots=True)
class RivalOptions:
    """The model's path, load options, and threads of the processor."""

    path: str
    options: LoadOptions
    threads: int


def _llama_cpp(asked: RivalOptions) -> AbstractContextManager[Rival]:
    """llama.cpp with the same file. A usage error for a directory."""
    if find_directory(asked.path):
        raise click.UsageError(
            f"{asked.path} is a directory, but llama.cpp needs GGUF; write one: camelid convert DIR OUT.gguf"
        )
    return bench_llama_cpp.LlamaCpp(
        Path(find_source(asked.path).handle),
        context=asked.options.context or 0,
        batch=asked.options.parallel,
        threads=asked.threads,
        kv_type=asked.options.kv_type,
        clock=perf_counter,
    )


def _mlx_lm(asked: RivalOptions) -> AbstractContextManager[Rival]:
    """mlx-lm with the same directory. A usage error for a GGUF."""
    folder = find_directory(asked.path)
    if folder is None:
        raise click.UsageError(
            f"{asked.path} is no directory, but mlx-lm needs a Hugging Face directory of safetensors"
        )
    return bench_mlx_lm.MlxLm(folder, kv_type=asked.options.kv_type, clock=perf_counter)


RIVALS: Mapping[str, Callable[[RivalOptions], AbstractContextManager[Rival]]] = {
    bench_llama_cpp.NAME: _llama_cpp,
    bench_mlx_lm.NAME: _mlx_lm,
}
