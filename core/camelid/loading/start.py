"""From a model name to a running engine: open the file, choose a backend, load weights, compile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from camelid.backends.base import Backend
from camelid.backends.registry import oracle_name, processor_name, user_names
from camelid.engine.adapters import base_program, with_adapters
from camelid.engine.engine import StepEngine
from camelid.engine.programs import PROBED, ProgramTable
from camelid.engine.request import Request, max_answer_tokens
from camelid.engine.scheduler import check_depth
from camelid.errors import DeviceLostError
from camelid.formats.progress import Progress
from camelid.loading.adapter_pool import AdapterPool
from camelid.loading.choose import OpenStages, choose_backend
from camelid.loading.deployment import Deployment, check_context
from camelid.loading.fit import check_fit
from camelid.loading.lora import LoraName, lora_files
from camelid.loading.lora_files import fetched_file, opened_file
from camelid.loading.model_file import MMPROJ, ModelFile, ModelName, open_model
from camelid.loading.options import LoadOptions
from camelid.loading.tower import RunningTower, start_tower
from camelid.model.adapter import Adapter
from camelid.model.decoder import declare_states
from camelid.model.encoder_specs import with_pooling
from camelid.plan.plan import Plan

STAGES = ("reading the header", "opening a backend", "loading weights", "compiling")


@dataclass(frozen=True, slots=True)
class RunningModel:
    """A model on a backend, ready for requests. `note`: the chosen backend, the reasons against others."""

    file: ModelFile
    backend: Backend
    note: str
    deployment: Deployment
    engine: StepEngine
    options: LoadOptions = field(default_factory=LoadOptions)
    tower: RunningTower | None = None
    adapters: AdapterPool = field(init=False)
    _compiling: asyncio.Lock = field(default_factory=asyncio.Lock)
    _adding: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        rank, n_slots = self.options.adapter_rank, self.options.adapter_slots
        pool = AdapterPool(self.backend, self.deployment, self.engine, rank=rank, n_slots=n_slots)
        object.__setattr__(self, "adapters", pool)

    def plan(self, program: str) -> Plan:
        """The plan of a program on this backend, at its largest row bucket."""
        return self.deployment.plan(program)

    async def compile(self, program: str) -> None:
        """Compiles a program, unless it is compiled already.

        The end of a prompt with a probe may share a step with another request's adapter.
        """
        async with self._compiling:  # concurrent requests compile a program once
            is_beside = program == PROBED and self.adapters.is_open
            # the variant first: a request may use its program as soon as it is compiled
            for name in (with_adapters(program), program) if is_beside else (program,):
                if name not in self.engine.programs:
                    await self._compile(name)

    async def _compile(self, program: str) -> None:
        programs = self.engine.programs
        since = self.engine.counters.recoveries
        base = base_program(program)
        plans = self.deployment.plans(base) if base == program else self.adapters.plans(base)
        try:
            await compile_plans(programs, program, self.backend, plans)
        except DeviceLostError as error:
            await self.engine.recovery.recover(error, since)
            await compile_plans(programs, program, self.backend, plans)

    async def add_adapter(
        self,
        adapter: Adapter,
        *,
        scale: float = 1.0,
        applied: float = 0.0,
        path: str = "",
        is_private: bool = False,
    ) -> None:
        """Loads an adapter under its name; with a scale `applied` it acts on requests that name none. No
        request can name a private one.

        Raises RequestError, BackendError, OutOfMemoryError.
        """
        async with self._adding:
            await self.adapters.add(
                adapter, self._compile_all, scale=scale, applied=applied, path=path, is_private=is_private
            )

    async def add_files(self, files: Sequence[LoraName]) -> None:
        """Loads the adapters that a model has from its start; its slots are wide enough for those that apply.

        Raises as `open_adapter`, RequestError, BackendError and OutOfMemoryError.
        """
        if not files:
            return
        opened = [(file, opened_file(self.file, file)) for file in lora_files(files)]
        applied = sum(adapter.rank for file, adapter in opened if file.applied)
        self.adapters.reserve(max(applied, *(adapter.rank for _, adapter in opened)))
        for file, adapter in opened:
            await self.add_adapter(adapter, scale=file.scale, applied=file.applied, path=file.path)

    async def _compile_all(self, programs: Sequence[str]) -> None:
        for program in programs:
            await self.compile(program)

    async def with_images(self, request: Request) -> Request:
        """The request with its images encoded.

        Raises RequestError for an image that cannot be read, ContextOverflowError before an image is encoded.
        """
        if not request.media or self.tower is None:
            return request
        max_answer_tokens(request, self.engine.context)
        rows = [each.rows or await self.tower.encode(each.image) for each in request.media]
        media = (replace(each, rows=own) for each, own in zip(request.media, rows, strict=True))
        return replace(request, media=tuple(media))

    async def close(self) -> None:
        """Closes the backends, and drops the programs, which hold memory of their own."""
        if self.tower:
            await self.tower.close()
        await self.backend.close()
        self.engine.programs = ProgramTable()


async def start(
    model: ModelName,
    options: LoadOptions,
    progress: Progress | None = None,
    stages: OpenStages | None = None,
) -> RunningModel:
    """Loads a model, perhaps cut into stages, and compiles its programs. A failure closes the backend."""
    report = progress or _silent
    report(STAGES[0], 0, len(STAGES))
    options.check()  # invalid options fail before the file is read
    file = await open_model(model, mmproj=options.mmproj, mmproj_auto=options.mmproj_auto, progress=progress)
    if MMPROJ in file.origins:  # a hub id's own is recorded by its path
        options = replace(options, mmproj=file.origins[MMPROJ].name)
    if options.pooling is not None:
        spec = with_pooling(file.model.spec, options.pooling)
        file = replace(file, model=replace(file.model, spec=spec))
    local = [await fetched_file(each, progress) for each in lora_files(options.lora)]
    options = replace(options, lora=tuple(local))
    check_context(options.context, file.model)
    declare_states(file.model.spec, options.kv_type)  # refuses a kv_type before a backend is opened
    report(STAGES[1], 1, len(STAGES))
    chosen = await choose_backend(options, file.model, stages)
    backend, deployment = chosen.backend, chosen.deployment
    file = replace(file, model=deployment.model)
    try:
        engine = await start_engine(file, backend, deployment, options, report)
        tower = await _start_tower(file, options, backend) if file.tower else None
    except BaseException:
        await backend.close()
        raise
    note = "; ".join(filter(None, [chosen.note, tower.note if tower else "", file.note]))
    running = RunningModel(file, backend, note, deployment, engine, options, tower)
    try:
        await running.add_files(options.lora)
    except BaseException:
        await running.close()
        raise
    report("ready", len(STAGES), len(STAGES))
    return running


async def _start_tower(file: ModelFile, options: LoadOptions, backend: Backend) -> RunningTower:
    """The vision tower on a backend of the model's kind, or on the processor if that has not all its ops."""
    assert file.tower is not None, "the model has a tower"
    own = backend.capabilities().name
    names = [name for name in (own, processor_name(), oracle_name()) if name in user_names()]
    adapters = {own: options.adapter}
    return await start_tower(file.tower, file.sources, list(dict.fromkeys(names)), options.threads, adapters)


async def start_engine(
    file: ModelFile, backend: Backend, deployment: Deployment, options: LoadOptions, report: Progress
) -> StepEngine:
    """Loads weights, allocates state, compiles `decode` and `mixed`, and returns the engine."""
    depth = check_depth(options.max_in_flight, deployment.capabilities)
    deployment.check_plans()
    check_fit(backend, deployment, options)
    state = deployment.kv_cache()
    if options.record_tape:
        backend.record()
    for program in deployment.loaded:
        for plan in deployment.plans(program):
            backend.prepare(plan, state.sizes())
    report(STAGES[2], 2, len(STAGES))
    weights = deployment.weights()
    # A directory may contain files without weights of these plans.
    named = {part.source for w in weights for part in w.parts}
    await backend.load(weights, {name: file.sources[name] for name in named & file.sources.keys()})
    await backend.allocate(state.states, state.sizes())
    report(STAGES[3], 3, len(STAGES))
    programs = ProgramTable()
    for program in deployment.loaded:
        await compile_plans(programs, program, backend, deployment.plans(program))
    limits, vocab_size = deployment.limits, deployment.model.spec.vocab_size
    return StepEngine(backend, programs, state, limits=limits, vocab_size=vocab_size, max_in_flight=depth)


async def compile_plans(
    programs: ProgramTable, program: str, backend: Backend, plans: Sequence[Plan]
) -> None:
    """Compiles a program's plans, one per row bucket, and adds it to the table."""
    programs.add(program, [await backend.compile(plan) for plan in plans])


def _silent(activity: str, stage: int, n_stages: int) -> None:
    """Reports no progress."""
