"""The Python API: `load`, `aload` and `load_tokenizer`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from os import PathLike
from typing import Any, Never, ParamSpec, TypeAlias, TypeVar

from camelid.api.learn_checks import checks_of
from camelid.api.llm import LLM
from camelid.api.runner import Runner
from camelid.formats.progress import Progress
from camelid.loading.lora import LoraName
from camelid.loading.model_file import ModelName, open_tokenizer
from camelid.loading.options import LoadOptions
from camelid.loading.start import start
from camelid.text.tokenizers.tokenizer import Tokenizer

P = ParamSpec("P")
T = TypeVar("T")
Work: TypeAlias = Coroutine[Any, Any, T]


def load(
    model: ModelName,
    *,
    backend: str = "auto",
    adapter: str = "",
    threads: int | None = None,
    gpu_layers: int | None = None,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    collective: str | None = None,
    activations: str | None = None,
    context: int | None = None,
    parallel: int = 4,
    chunk: int | None = None,
    step_ms: int = 100,
    kv_type: str = "f32",
    kv_rows: int | None = None,
    max_in_flight: int | None = None,
    record_tape: bool = False,
    pooling: str | None = None,
    mmproj: ModelName | None = None,
    mmproj_auto: bool = True,
    adapter_rank: int = 0,
    adapter_slots: int = 0,
    learn: str = "off",
    learn_user: str = "local",
    learn_folder: str | PathLike[str] | None = None,
    learn_checks: str | PathLike[str] | None = None,
    lora: Sequence[LoraName] = (),
    progress: Progress | None = None,
    **unknown: Never,
) -> LLM:
    """A model, ready to answer: a path, a hub id such as "owner/repo:Q4_K_M", "cria", or a `ModelSource`.

    `LoadOptions` explains the options; `llm.backend_note` states the chosen backend and the reasons.
    `progress` receives (stage, number, of), and (file, bytes, of) while files of a hub id are fetched. Raises
    RequestError for an option that does not exist or does not fit, ModelFormatError, UnsupportedModelError,
    FetchError, BackendError, OutOfMemoryError.
    """
    options = LoadOptions.of(
        backend=backend, adapter=adapter, threads=threads, gpu_layers=gpu_layers,
        tensor_parallel=tensor_parallel, pipeline_parallel=pipeline_parallel, collective=collective,
        activations=activations, context=context, parallel=parallel, chunk=chunk, step_ms=step_ms,
        kv_type=kv_type, kv_rows=kv_rows, max_in_flight=max_in_flight, record_tape=record_tape,
        pooling=pooling, mmproj=mmproj, mmproj_auto=mmproj_auto, adapter_rank=adapter_rank,
        adapter_slots=adapter_slots, lora=lora, learn=learn, learn_user=learn_user,
        learn_folder=learn_folder, learn_checks=learn_checks, **unknown,
    )  # fmt: skip
    return load_with(model, options, progress=progress)


def load_with(model: ModelName, options: LoadOptions, *, progress: Progress | None = None) -> LLM:
    """As `load`, with the options as one object."""
    runner = Runner()
    try:
        return runner.run(aload_with(model, options, progress=progress, runner=runner))
    except BaseException:
        runner.close()
        raise


def twin_of(call: Callable[P, T]) -> Callable[[Callable[..., Work[T]]], Callable[P, Work[T]]]:  # noqa: ARG001 - read by type checkers
    """A decorator that types an asynchronous function with the parameters of its synchronous twin."""
    return lambda twin: twin


@twin_of(load)
async def aload(model: ModelName, *, progress: Progress | None = None, **options: Any) -> LLM:
    """As `load`, for asynchronous code and for the browser."""
    return await aload_with(model, LoadOptions.of(**options), progress=progress)


async def aload_with(
    model: ModelName, options: LoadOptions, *, progress: Progress | None = None, runner: Runner | None = None
) -> LLM:
    """As `aload`, with the options as one object."""
    checks = await checks_of(options)  # faulty ones fail before the file is read
    running = await start(model, options, progress)
    llm: LLM | None = None
    try:
        llm = LLM(running, runner or Runner())
        if options.learn != "off":
            await llm.start_learning()
        if options.learn == "on":
            from camelid.api.learnt.runs import open_background  # a page trains nothing

            begin = partial(open_background, partial(aload_with, model), options, checks=checks)
            llm.train_when_idle(begin)
        return llm
    except BaseException:
        await (llm.aclose() if llm else running.close())
        raise


def load_tokenizer(model: ModelName) -> Tokenizer:
    """Loads a tokenizer alone, without weights: `.encode(text, special=False)`, `.decode(token_ids)`."""
    runner = Runner()
    try:
        return runner.run(open_tokenizer(model))
    finally:
        runner.close()
