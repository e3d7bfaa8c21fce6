"""A loaded model as a service: jobs to answers, without HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from camelid.engine.adapters import RequestAdapter
from camelid.engine.programs import ALL_LOGITS
from camelid.engine.request import Request, check_request, max_answer_tokens
from camelid.learning.learner import Asked
from camelid.requests.build import CONSTRAINT_OPTIONS, RequestBuilder
from camelid.requests.output_text import ChatPrompt, Completion, Event
from camelid.server.http.errors import ApiError
from camelid.server.service.admission import Admission, Place
from camelid.server.service.answer_time import AnswerTime, check_end
from camelid.server.service.choice import chosen
from camelid.server.service.fingerprint import adapter_mark, model_mark, named_fingerprint
from camelid.server.service.host import Answer, Batch, EngineHost, unloaded
from camelid.server.service.job import Job
from camelid.server.service.learning import Learners
from camelid.server.service.limits import Limits
from camelid.server.service.scoring import scoring_request
from camelid.server.service.selection import with_selection
from camelid.server.service.slots import Slots
from camelid.server.service.template_defaults import TemplateDefaults
from camelid.server.service.text_size import INLINE_CHARS, size_of

POOL_THREADS = 2
MAX_TEXTS = 64  # requests that wait for a thread of text work without an answer, such as counts of tokens


class Observer(Protocol):
    """Receives the facts of jobs, for metrics, budgets and the witness log; it must return quickly."""

    def submitted(self, started: Started) -> None:
        """A job was queued."""
        ...

    def advanced(self, started: Started, batch: Batch) -> None:
        """Events of one choice arrived; its last batch has the completion or the error."""
        ...

    def closed(self, started: Started) -> None:
        """The job's places are free; choices without a last batch were cancelled."""
        ...


@dataclass(slots=True, eq=False)
class Started:
    """A job under way: its engine request, and the answer to read."""

    job: Job
    service: Service
    request: Request
    answer: Answer
    place: Place
    slot_ids: dict[int, int] = field(default_factory=dict[int, int])  # by choice, see `Slots`
    is_cut: bool = False
    _time: AnswerTime | None = None

    def __post_init__(self) -> None:
        limit_s = self.job.max_answer_s
        self._time = AnswerTime(limit_s) if limit_s else None

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the service with the adapters that answer."""
        return self.service.fingerprint_of(self.request.adapter)

    def cut(self) -> None:
        """Ends the choices early: their completions hold the answer so far, as at the bound of tokens."""
        self.is_cut = True
        self.answer.cut()

    def close(self) -> None:
        """Cancels the choices that still run, and frees the places."""
        if self.place.n:
            self.answer.close()
            self.place.leave()
            for observer in self.service.observers:
                observer.closed(self)

    async def _decide(self) -> None:
        """Lets the request's probe choose, after the first token, whether another request answers."""
        if (other := await chosen(self.answer, self.request)) and self.place.n and not self.is_cut:
            self.answer.close()
            self.request, self.answer = other, self.service.host.submit(other, self.job.n)

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """The batches of all choices; closing the generator cancels the job. Raises a choice's error."""
        try:
            await self._decide()
            async for batch in self.answer:
                for observer in self.service.observers:
                    observer.advanced(self, batch)
                if batch.error:
                    raise batch.error
                if self._time and self._time.is_over(batch):
                    self.cut()
                if batch.completion and self.is_cut:
                    batch = batch._replace(completion=replace(batch.completion, finish_reason="length"))
                elif batch.completion:
                    check_end(batch.completion)
                yield batch
        finally:
            self.close()

    async def collected(self) -> tuple[list[Event], Completion]:
        """The events and the completion of the only choice. Raises its error."""
        events: list[Event] = []
        done: Completion | None = None
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                events += batch.events
                done = batch.completion
        assert done, "the last batch has the completion"
        return events, done

    async def completions(self) -> list[Completion]:
        """The completions of all choices, in order. Raises the first error."""
        done: dict[int, Completion] = {}
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                if batch.completion:
                    done[batch.choice] = batch.completion
        return [done[choice] for choice in sorted(done)]


@dataclass(slots=True, eq=False)
class Service(TemplateDefaults):
    """One model under one name.

    `defaults` are options of requests that do not set them; `template` replaces the file's chat template, and
    `variables` are defaults of its variables. `adapter` is the name of an adapter whose name a request gave
    as its model: see `with_adapter`.
    """

    name: str
    host: EngineHost
    admission: Admission
    limits: Limits
    observers: tuple[Observer, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    builder: RequestBuilder = field(init=False)
    slots: Slots = field(init=False)
    learners: Learners | None = field(init=False, default=None)
    texts: Admission = field(default_factory=lambda: Admission(POOL_THREADS, MAX_TEXTS))
    _pool: ThreadPoolExecutor = field(init=False)
    _mark: Future[str] = field(init=False)
    _grammars: asyncio.Future[None] | None = None
    adapter: str = ""
    _base: Service | None = None

    def __post_init__(self) -> None:
        running = self.host.running
        self.builder = RequestBuilder(running.file, self.template, adapters=running.adapters.select)
        self.builder.encode_far()
        self._pool = ThreadPoolExecutor(POOL_THREADS, "camelid text")
        self._mark = self._pool.submit(model_mark, self.host.running.file)
        options = self.host.running.options
        if options.learn != "off" and not self.host.running.file.spec.embeds:
            folder = Path(options.learn_folder) if options.learn_folder is not None else None
            self.learners = Learners(self.host, self.builder, asyncio.wrap_future(self._mark), folder)
        self.slots = Slots(self.admission.parallel)
        self.observers = (*self.observers, self.slots)

    @property
    def context(self) -> int:
        """The context length of a sequence."""
        return self.host.running.engine.context

    @property
    def fingerprint(self) -> str:
        """Version, backend, model and promise by name, and a hash of all that decides an answer.

        Services of equal fingerprints answer equal prompts with equal seeds equally, bit for bit where the
        promise has B. Of the model's file, the hash covers the header, the size and 4 KiB of each of 256
        weights; a file that differs elsewhere alone is not told apart. The witness log hashes whole files.
        """
        return self.fingerprint_of(None)

    def fingerprint_of(self, adapter: RequestAdapter | None) -> str:
        """The fingerprint of answers with adapters: behind a +, names and a hash of terms and scales."""
        settings = {
            "template": self.template, "variables": self.variables, "defaults": self.defaults,
            "max_tokens": self.limits.max_tokens,
        }  # fmt: skip
        own = named_fingerprint(self.name, self.host.running, self._mark.result(), settings)
        return f"{own}+{adapter_mark(adapter)}" if adapter else own

    @property
    def shown_name(self) -> str:
        """The model's name in replies: the adapter's, if a request named it as its model."""
        return self.adapter or self.name

    def with_adapter(self, name: str) -> Service:
        """This service, whose requests have an adapter unless they name others; "" is the service itself."""
        if not name:
            return self
        twin = copy(self)
        twin.adapter, twin._base = name, self
        return twin

    async def start(self, job: Job) -> Started:
        """Takes places, renders, tokenizes and submits.

        Raises ApiError 503 for a full queue, RequestError or ContextOverflowError for a request that can
        never be served.
        """
        self.check_choices(job.n)
        place = self.admission.enter(job.n)
        try:
            request = await self.request(job)
            self.check(request)
            return self.launch(job, request, place)
        except BaseException:
            place.leave()
            raise

    def launch(self, job: Job, request: Request, place: Place) -> Started:
        """Submits a checked request."""
        answer = self.host.submit(request, job.n, reports=job.reports_progress)
        started = Started(job, self, request, answer, place)
        for observer in self.observers:
            observer.submitted(started)
        return started

    def check_choices(self, n: int) -> None:
        """Raises ApiError for more choices than one request may have, or than ever have places."""
        most = min(self.limits.max_choices, self.admission.capacity)
        if not 1 <= n <= most:
            raise ApiError(400, f"n is {n}, expected 1 to {most}", param="n")

    @property
    def n_places(self) -> int:
        """Requests under way, those without an answer too: the model stays loaded for them."""
        return self.admission.n_places + self.texts.n_places

    def watch_idle(self, callback: Callable[[], object]) -> None:
        """Calls back whenever the last answer, or the last text work, is done."""
        self.admission.on_idle = self.texts.on_idle = callback

    def drain(self) -> None:
        """Refuses new requests."""
        self.admission.is_draining = self.texts.is_draining = True

    @contextmanager
    def text_place(self) -> Generator[None]:
        """A place for text work outside an answer. Raises ApiError 503 if too many requests wait for one."""
        place = self.texts.enter(1)
        try:
            yield
        finally:
            place.leave()

    async def request(self, job: Job) -> Request:
        """The engine's request of a job.

        Raises ApiError for a size beyond the limits, RequestError or ContextOverflowError.
        """
        self.limits.check_sizes(job.options)
        given = self._bounded(job)
        began, limit = time.monotonic(), given.get("timeout_s")
        try:
            async with asyncio.timeout(limit):
                request = await self._prepared(job, given)
        except TimeoutError:
            raise ApiError(
                408, f"the time limit of {limit:g} s passed before the prompt and its grammar were ready; "
                "simplify them or raise the limit", code="timeout", headers={"x-should-retry": "false"},
            ) from None  # fmt: skip
        return replace(request, timeout_s=max(limit - time.monotonic() + began, 0.001)) if limit else request

    async def _prepared(self, job: Job, given: Mapping[str, Any]) -> Request:
        def render() -> tuple[Asked | None, ChatPrompt, Mapping[str, object]]:
            prompt = job.prepare(self.builder) if job.prepare else job.prompt
            asked = learner.asked(prompt, given) if learner else None
            if learner and asked and not isinstance(prompt, str | ChatPrompt):
                prompt = learner.prompt(asked, names_adapter=given.get("adapter") is not None)
            return asked, *self.builder.rendered(prompt, given)

        if not self._mark.done():  # else an answer would block for its fingerprint
            await asyncio.wrap_future(self._mark)
        learner = await self.learners.of(job.key) if self.learners else None
        asked, prompt, options = await self.in_pool(job.texts, render)
        if prompt.calls or any(options.get(name) is not None for name in CONSTRAINT_OPTIONS):
            await self._prepare_grammar(options, prompt.calls)
        request = self.builder.request(prompt, options)
        if learner and asked:
            names, at_once = options.get("adapter") is not None, job.is_decided_at_once
            request = learner.request(request, asked, job.reply_id, names_adapter=names, is_at_once=at_once)
            request = await request.routed()
        if (request.adapter or request.mixer) and not request.media:
            await self._compile(request)
        if request.media:
            request = await self.host.call(self._with_images(request))
        if job.prompt_logprobs is None:
            return request
        await self.host.call(self.host.running.compile(ALL_LOGITS))
        request = scoring_request(request, job.prompt_logprobs)
        await self._compile(request)
        return request

    @property
    def image_refusal(self) -> str:
        """The reason of an observer against images, "" if there is none."""
        return next(filter(None, (getattr(one, "image_refusal", "") for one in self.observers)), "")

    async def _with_images(self, request: Request) -> Request:
        """The request with its images encoded; on the engine's thread."""
        await self._compile_here(request)
        return await self.host.running.with_images(request)

    async def _compile(self, request: Request) -> None:
        """Compiles the programs that a request needs and no earlier one did."""
        if any(program not in self.host.running.engine.programs for program in request.programs):
            await self.host.call(self._compile_here(request))

    async def _compile_here(self, request: Request) -> None:
        for program in request.programs:
            await self.host.running.compile(program)

    async def _prepare_grammar(
        self, options: Mapping[str, object], calls: Mapping[str, object] | None
    ) -> None:
        """Compiles a grammar in a process, which starts with the first grammar: most servers need none."""
        await asyncio.shield(self._grammar_workers())
        await self.builder.prepare(options, calls)

    def _grammar_workers(self) -> asyncio.Future[None]:
        """The start of the workers, begun anew after one that failed."""
        owner = self._base or self
        begun = owner._grammars
        if begun is None or (begun.done() and failed(begun)):
            begun = owner._grammars = asyncio.ensure_future(self.builder.start_grammar_workers())
            begun.add_done_callback(failed)
        return begun

    def default_options(self) -> Mapping[str, Any]:
        """The options of a request that sets none."""
        return self._bounded(Job(prompt=""))

    def check(self, request: Request) -> None:
        """Raises RequestError or ContextOverflowError before the request is queued."""
        engine = self.host.running.engine
        most = self.limits.max_prompt_tokens
        if most is not None and request.n_read > most:
            raise ApiError(
                400, f"the prompt has {request.n_read} tokens, at most {most} are allowed; shorten it",
                code="context_length_exceeded", param="prompt", kind="exceed_context_size_error",
                n_prompt_tokens=request.n_read, n_ctx=self.context,
            )  # fmt: skip
        max_answer_tokens(request, engine.context)  # first: the other looks at every token
        check_request(request, engine.vocab_size, engine.limits, engine.programs)

    def _bounded(self, job: Job) -> Mapping[str, Any]:
        """The options within the server's limits, in the key's own prefix cache."""
        options = self.limits.bounded({**self.defaults, **job.options})
        salt = str(options.get("cache_salt") or "")
        options["cache_salt"] = f"{job.key.salt}/{salt}" if job.key.salt else salt
        pool = self.host.running.adapters
        return with_selection(options, pool, model=self.name, adapter=self.adapter)

    async def in_pool(self, texts: object, work: Any) -> Any:
        """Runs text work: at once for short texts, else in a thread, since it takes milliseconds.

        Raises ApiError 503 if the model is unloaded meanwhile.
        """
        if size_of(texts) <= INLINE_CHARS:
            return work()
        try:
            done = asyncio.get_running_loop().run_in_executor(self._pool, work)
        except RuntimeError as error:  # the pool is shut
            raise unloaded() from error
        return await done

    async def close(self) -> None:
        """Ends the engine."""
        self._pool.shutdown(wait=False)
        if self.learners:
            await self.learners.close()
        try:
            await asyncio.to_thread(self.builder.close)
        finally:
            await self.host.close()


def failed(begun: asyncio.Future[None]) -> bool:
    """True for a future that ended without a result; reads its error, else asyncio reports it as lost."""
    return begun.cancelled() or begun.exception() is not None
