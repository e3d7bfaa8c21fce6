"""mlx-lm as the rival, in this process: the same directory, depth and streams, as in `mlx_lm.benchmark`.

Random tokens, the largest logit in place of sampling, one decoded token per stream and step. The next step is
built while one runs, as in mlx-lm's own generation. Its KV cache has the model's own 16-bit type.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from camelid.cli.bench_cases import Case
from camelid.cli.bench_runs import Clock, Run
from camelid.errors import BackendError

NAME = "mlx-lm"
PREFILL_STEP = 2048  # prompt tokens of a call: mlx-lm's default prefill_step_size


class MlxLm:
    """A directory loaded in mlx-lm; a context manager."""

    def __init__(self, path: Path, *, kv_type: str, clock: Clock) -> None:
        if kv_type != "f16":
            raise BackendError(
                f"mlx-lm has no KV cache of type {kv_type!r}; give --kv-type f16, the width of its own",
                backend=NAME,
            )
        self._lib, self._mx = load_library(), import_module("mlx.core")
        self._cache = import_module("mlx_lm.models.cache")
        self._clock = clock
        try:
            self._model, config = import_module("mlx_lm.utils").load_model(path)
        except (ValueError, KeyError, TypeError) as error:
            raise BackendError(f"mlx-lm cannot load {path}: {error}", backend=NAME) from error
        self._n_vocab = int(config["vocab_size"])

    @property
    def build(self) -> str:
        """The versions, and the device."""
        return f"mlx-lm {self._lib.__version__}, mlx {self._mx.__version__}, {self._mx.default_device()}"

    def run(self, case: Case, repetition: int) -> Run:
        """One timed run of the case; the rows before it are computed first, untimed."""
        mx = self._mx
        prompts = mx.array([case.prompt(i, repetition, self._n_vocab) for i in range(case.batch)])  # [B, T]
        cache = self._cache.make_prompt_cache(self._model)
        if case.held:
            self._prefill(prompts[:, : case.held], cache)
        start = self._clock()
        if case.kind == "pp":
            self._prefill(prompts[:, case.held :], cache)
        else:
            self._decode(prompts[:, :1], case.n, cache)
        seconds = self._clock() - start
        ttft_s = seconds if case.kind == "pp" else 0.0
        return Run(seconds=seconds, n_tokens=case.n * case.batch, ttft_s=ttft_s)

    def _prefill(self, tokens: Any, cache: Any) -> None:
        for at in range(0, tokens.shape[1], PREFILL_STEP):
            logits = self._model(tokens[:, at : at + PREFILL_STEP], cache=cache)
            self._mx.eval(logits[:, -1], [each.state for each in cache])

    def _decode(self, tokens: Any, n: int, cache: Any) -> None:
        """n tokens per stream, each the largest logit of the last; one step ahead."""
        mx = self._mx
        for _ in range(n):
            ahead = mx.argmax(self._model(tokens, cache=cache)[:, -1], axis=-1)[:, None]
            mx.async_eval(ahead)
            mx.eval(tokens)
            tokens = ahead
        mx.eval(tokens)

    def __enter__(self) -> MlxLm:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._mx.clear_cache()


def load_library() -> Any:
    """The package mlx_lm. Raises BackendError with the pip command if it is missing."""
    try:
        return import_module("mlx_lm")
    except ModuleNotFoundError as error:
        raise BackendError(
            "--compare mlx-lm needs the package mlx_lm: pip install mlx-lm", backend=NAME
        ) from error
