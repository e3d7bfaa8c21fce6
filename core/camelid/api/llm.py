"""The Python API: `LLM`, a loaded model.

The synchronous methods drive the asynchronous methods on the calling thread.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from camelid.api.adapters import AdapterMethods
from camelid.api.llm_embedding import EmbeddingMethods
from camelid.api.llm_learning import LearningMethods
from camelid.api.logits import logits_on_device, read_logits
from camelid.api.runner import Runner
from camelid.api.streams import read, redirected
from camelid.backends.base import Capabilities, DeviceArray, MemoryReport
from camelid.engine.adapters import RowKeys
from camelid.engine.metrics import Counters, EngineStats, StepHook
from camelid.engine.recovery import Notice
from camelid.engine.request import Request
from camelid.errors import RequestError, shown
from camelid.loading.model_file import ModelSource, find_source
from camelid.loading.start import RunningModel
from camelid.model.adapter import Selection
from camelid.model.spec import ModelSpec
from camelid.plan.plan import Plan
from camelid.requests.build import RequestBuilder, check_continues
from camelid.requests.options import Message, Options, Prompt
from camelid.requests.output_text import ChatPrompt, Completion, Event, TextStream
from camelid.sampling.params import SamplingParams
from camelid.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from camelid.api.sessions.session import Session, SessionHost
    from camelid.loading.identity import Identity

Ids: TypeAlias = Sequence[int]
Floats: TypeAlias = "memoryview[float]"
__all__ = ["LLM", "Completion", "Event", "ModelSource"]


class LLM(AdapterMethods, EmbeddingMethods, LearningMethods):
    """One model on one backend.

    A prompt is text, token ids, or a list of messages ({"role", "content"}) for the chat template.
    """

    def __init__(self, running: RunningModel, runner: Runner) -> None:
        self.backend_note = running.note  # the backend that was chosen, and the reason
        self._running = running
        self._engine = running.engine
        self._runner = runner
        self._is_closed = False
        self._identity: Identity | None = None
        self._builder = RequestBuilder(running.file, adapters=running.adapters.select)

    @property
    def spec(self) -> ModelSpec:
        """The model's architecture facts."""
        return self._running.file.model.spec

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises RequestError if the file has no tokenizer, UnsupportedModelError for a kind not supported.
        """
        return self._builder.tokenizer

    @property
    def context(self) -> int:
        """The context length: the maximum number of tokens of prompt and answer together."""
        return self._engine.context

    @property
    def capabilities(self) -> Capabilities:
        """The backend's name, device, guarantees and limits."""
        return self._running.backend.capabilities()

    @property
    def counters(self) -> Counters:
        """The engine's counters since loading."""
        return self._engine.counters

    @property
    def weight_bytes(self) -> int:
        """Bytes of the model's weights, as stored in its file."""
        return self._running.file.model.weight_bytes

    @property
    def has_template(self) -> bool:
        """True if the model's file has a chat template."""
        return self._running.file.template is not None

    @property
    def takes_images(self) -> bool:
        """True if the model has a vision tower."""
        return self._running.tower is not None

    @property
    def is_idle(self) -> bool:
        """True if no request runs and all state is free."""
        return self._engine.is_idle

    def memory(self) -> MemoryReport:
        """The backend's memory by use, in bytes, and its counters."""
        return self._running.backend.memory()

    def stats(self) -> EngineStats:
        """Numbers of running and waiting requests, and bytes of their state."""
        return self._engine.stats()

    def on_step(self, hook: StepHook) -> None:
        """Registers a function that is called with the facts of every retired step; it must return quickly.

        An exception in the hook goes to the event loop's exception handler and affects no request.
        """
        if not callable(hook):
            raise RequestError(f"the hook is {shown(hook)}, expected a function", field="hook")
        self._engine.hooks.append(hook)

    def on_recovery(self, notice: Notice) -> None:
        """Registers a function that is called with a sentence after a lost device was opened again."""
        self._engine.recovery.notices.append(notice)

    @property
    def running(self) -> RunningModel:
        """The backend, the deployment and the engine, for examinations."""
        return self._running

    @property
    def builder(self) -> RequestBuilder:
        """The builder of the model's requests, for examinations."""
        return self._builder

    def plan(self, entry: str) -> Plan:
        """The plan of `decode` or `mixed`, as the backend runs it."""
        return self._running.plan(entry)

    def tokenize(self, text: str, special: bool = False) -> list[int]:
        """Encodes a text without BOS. Control tokens written in the text count only with `special`."""
        return self.tokenizer.encode(text, special)

    def detokenize(self, token_ids: Iterable[int]) -> str:
        """Decodes token ids, without control tokens."""
        return self.tokenizer.decode(token_ids)

    def render(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the rendered messages. Text of a message never becomes a control token."""
        return self._builder.chat.prompt(messages).token_ids

    async def astart_grammar_workers(self) -> None:
        """Compiles grammars and computes masks in worker processes at idle priority from now on.

        Then no stream waits for another request's grammar. A grammar or mask may take 5 s of processor time,
        else its request ends with a RequestError. `agenerate`, `astream` and `achat` use the workers,
        `submit` only their masks. Needs subprocesses, which a web page lacks.
        """
        self._check_open()
        await self._builder.start_grammar_workers()

    async def agenerate(self, prompt: Prompt, **options: Unpack[Options]) -> Completion:
        """Generates a complete answer. Raises RequestError, ContextOverflowError, or the backend's error."""
        return await read(await self._start(prompt, options))

    async def astream(self, prompt: Prompt, **options: Unpack[Options]) -> AsyncGenerator[Event, None]:
        """Generates an answer token by token. Leaving the loop cancels the request."""
        stream = await self._start(prompt, options)
        try:
            async for event in stream:
                yield event
        finally:
            await stream.aclose()

    async def achat(self, messages: Sequence[Message], **options: Unpack[Options]) -> Completion:
        """Generates the answer to a conversation, through the model's chat template."""
        return await self.agenerate(list(messages), **options)

    async def propose(self, token_ids: Sequence[int], most: int, sampling: SamplingParams) -> Sequence[int]:
        """Draft tokens after `token_ids`, for `speculate=draft_llm` in requests to a larger model.

        Two models with the same seed share the noise of their draws, so drafts agree with the target more
        often than by chance at any temperature.
        """
        self._check_open()
        most = min(most, self.context - len(token_ids))
        if most < 1:
            return ()
        request = Request(prompt_ids=tuple(token_ids), sampling=sampling, max_tokens=most)
        return (await read(self._engine.submit(request))).token_ids

    async def alogits(self, token_ids: Ids, source_ids: Ids = (), adapter: Selection | None = None) -> Floats:
        """The logits after each token: float32, [T, V]. In a model with an encoder and a decoder, `token_ids`
        are the decoder's and `source_ids` the encoder's.
        """
        self._check_open()
        rows = await read_logits(self._running, token_ids, source_ids=source_ids, adapter=adapter)
        joined = b"".join(bytes(row) for row in rows)
        return memoryview(joined).cast("f", shape=[len(token_ids), self.spec.vocab_size])

    async def alogits_on_device(self, token_ids: Sequence[int]) -> DeviceArray:
        """The logits after each token in the GPU's memory, as an array [T, V] of float32 that
        `torch.from_dlpack` and `cupy.from_dlpack` use in place. It outlives the model. NumPy cannot read it.

        Raises RequestError on a backend other than cuda on one GPU; OutOfMemoryError.
        """
        self._check_open()
        return await logits_on_device(self._running, token_ids)

    async def aclose(self) -> None:
        """Cancels running requests and closes the backend."""
        if not self._is_closed:
            self._is_closed = True
            self._engine.cancel_all()
            self._builder.close()
            await self._end_learning()
            await self._running.close()

    def generate(self, prompt: Prompt, **options: Unpack[Options]) -> Completion:
        """As `agenerate`, without an event loop."""
        return self._runner.run(self.agenerate(prompt, **options))

    def stream(self, prompt: Prompt, **options: Unpack[Options]) -> Generator[Event, None, Completion]:
        """As `astream`, without an event loop; the generator returns the completion.

        Closing it cancels the request.
        """
        loop = self._runner.loop()
        stream, _ = self._runner.run(self._submitted(self._request(prompt, options)))
        try:
            while event := loop.run_until_complete(_next(stream)):
                yield event
            return stream.completion
        finally:
            self._runner.run(stream.aclose())

    def chat(self, messages: Sequence[Message], **options: Unpack[Options]) -> Completion:
        """As `achat`, without an event loop."""
        return self._runner.run(self.achat(messages, **options))

    def logits(self, token_ids: Ids, source_ids: Ids = (), adapter: Selection | None = None) -> Floats:
        """As `alogits`, without an event loop."""
        return self._runner.run(self.alogits(token_ids, source_ids, adapter))

    def logits_on_device(self, token_ids: Sequence[int]) -> DeviceArray:
        """As `alogits_on_device`, without an event loop."""
        return self._runner.run(self.alogits_on_device(token_ids))

    def close(self) -> None:
        """As `aclose`, without an event loop."""
        self._runner.run(self.aclose())
        self._runner.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> LLM:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def submit(self, prompt: Prompt, **options: Unpack[Options]) -> TextStream:
        """Queues a request. The stream yields events and then has a `completion`; closing it cancels.

        Constraints, logprobs, speculation, and samplers outside the device's chain need a program of their
        own, which `agenerate` and `astream` compile. Raises PlanError if it has not been compiled.
        """
        return self._engine.submit(self._request(prompt, options))

    def request(self, prompt: Prompt | ChatPrompt, **options: Unpack[Options]) -> Request:
        """The engine's request of a prompt or a rendered conversation, with all defaults and a seed."""
        return self._request(prompt, options)

    async def asubmit(self, request: Request) -> TextStream:
        """Queues a request of `request`, changed or not; compiles the programs that it needs and encodes its
        images first.
        """
        self._check_open()
        return (await self._submitted(request))[0]

    async def aidentity(self) -> Identity:
        """The hash of the model's files, read on the first call, and the facts of the build."""
        from camelid.loading.identity import identify  # only a witness log needs it

        self._identity = self._identity or await identify(self._running)
        return self._identity

    def session(self, id: str | None = None, *, adapter: Selection | None = None) -> Session:
        """A new session; its `id` is random by default. `adapter` names the adapters of all its turns."""
        from camelid.api.sessions.session import Session  # a plain prompt needs no session

        session = Session(self._host, id)
        if adapter is not None:
            self._running.adapters.select(adapter)
            session.options["adapter"] = adapter
        return session

    async def arestore(self, path: str | PathLike[str] | ModelSource) -> Session:
        """Restores a session from a file; its `note` gives the reason if rows could not be used.

        Raises RequestError if another model saved the file, ModelFormatError if the file is damaged.
        """
        from camelid.api.sessions.session import Session

        self._check_open()
        return await Session.restored(self._host, find_source(path))

    @cached_property
    def _host(self) -> SessionHost:
        from camelid.api.sessions.session import SessionHost

        check_continues(self.spec)
        return SessionHost(self._running, self._builder, self._runner, self._start_turn)

    def restore(self, path: str | PathLike[str]) -> Session:
        """As `arestore`, without an event loop."""
        return self._runner.run(self.arestore(path))

    def save_tape(self, path: str) -> None:
        """Writes what the backend recorded, if the model was loaded with `record_tape=True`."""
        if not self._running.options.record_tape:
            raise RequestError(
                "nothing was recorded; load the model with record_tape=True to save a tape", field="save_tape"
            )
        self._running.backend.save_tape(path)

    async def _start(self, prompt: Prompt | ChatPrompt, options: Mapping[str, Any]) -> TextStream:
        """As `submit`; compiles the grammar and the programs that the request needs first."""
        return (await self._start_turn(prompt, options))[0]

    async def _start_turn(
        self, prompt: Prompt | ChatPrompt, options: Mapping[str, Any]
    ) -> tuple[TextStream, RowKeys]:
        """As `_start`, with the keys of the request's rows."""
        self._check_open()
        await self._builder.prepare(options)
        stream, request = await self._submitted(self._request(prompt, options))
        return stream, request.row_keys

    async def _submitted(self, request: Request) -> tuple[TextStream, Request]:
        """A request's stream, or that of the request which its probe chooses, with the request."""
        request = await self._ready(request)
        stream = self._engine.submit(request)
        other = await redirected(stream, request)
        if other is None:
            return stream, request
        request = await self._ready(other)
        return self._engine.submit(request), request

    def _request(self, prompt: Prompt | ChatPrompt, options: Mapping[str, Any]) -> Request:
        """The engine's request. Raises RequestError for a closed model, and as `RequestBuilder`."""
        self._check_open()
        if self._learner:
            from camelid.api.learning import learning_request

            return learning_request(self._learner, self._builder, prompt, options)
        return self._builder.request(prompt, options)

    async def _ready(self, request: Request) -> Request:
        """The request that its route chooses, its images encoded and its programs compiled."""
        request = await request.routed()
        for program in request.programs:
            await self._running.compile(program)
        return await self._running.with_images(request)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RequestError("this model was closed; load the model again", field="llm")


async def _next(stream: TextStream) -> Event | None:
    return await anext(stream, None)
