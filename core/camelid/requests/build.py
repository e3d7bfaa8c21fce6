"""The engine's request from a prompt and its options: checks of options, sampling defaults of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, runtime_checkable

from camelid.engine.adapters import RequestAdapter
from camelid.engine.media import Media
from camelid.engine.request import Request
from camelid.engine.speculative import Proposer, proposer_of
from camelid.errors import RequestError, UnsupportedModelError, shown
from camelid.formats.gguf import Gguf
from camelid.model.adapter import Selection
from camelid.model.spec import ModelSpec
from camelid.model.vision.projectors import PROJECTORS
from camelid.model.vision.spec import Tower
from camelid.requests.file_defaults import file_defaults
from camelid.requests.images import with_image_rows
from camelid.requests.options import ConstraintOptions, EngineOptions, Message, Options, Prompt
from camelid.requests.output_text import ChatPrompt, NoText, OutputText, SourceFactory, TextReader
from camelid.sampling.drawing import ConstraintFactory
from camelid.sampling.params import SamplingParams
from camelid.text.tokenizers.source import TokenizerSource
from camelid.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from camelid.requests.chat import ChatTemplate
    from camelid.requests.constraints import Constraints
    from camelid.requests.far_tokenizer import FarTokenizer

# Finds the adapters of a selection for a prompt.
AdapterChoice: TypeAlias = Callable[[Selection | None, Sequence[int]], RequestAdapter | None]
LATER = frozenset(("n",))  # options of other runtimes that this version lacks, refused by name
CHAT_OPTIONS = ("tools", "tool_choice", "parallel_tool_calls", "variables")
ENDING_OPTIONS = (
    "continue_final_message",
    "add_generation_prompt",
    "reasoning_format",
)  # of messages, but of no session
CONSTRAINT_OPTIONS = tuple(ConstraintOptions.__annotations__)
ENGINE_NAMES = frozenset(EngineOptions.__annotations__)
# Option -> field of `Request`, where the two names differ.
ENGINE_FIELDS = {"cache_prompt": "reuses", "cache_salt": "salt", "speculate": "proposer"}
ENGINE_TYPES: dict[str, tuple[type, ...]] = {
    "priority": (int,),
    "n_keep": (int,),
    "cache_prompt": (bool,),
    "cache_salt": (str,),
    "is_atomic": (bool,),
}


class ModelHeader(Protocol):
    """The parts of a model file that requests read."""

    @property
    def gguf(self) -> Gguf: ...
    @property
    def spec(self) -> ModelSpec: ...
    @property
    def tower(self) -> Tower | None: ...
    def tokenizer(self) -> Tokenizer | None: ...
    def tokenizer_source(self) -> TokenizerSource | None: ...


@runtime_checkable
class DraftModel(Proposer, Protocol):
    """A loaded model as a proposer."""

    @property
    def spec(self) -> object: ...  # a proposer of another kind may give the name another meaning


class RequestBuilder:
    """Builds the requests of one model.

    `template` is the source of a chat template instead of the file's; `adapters` finds a request's adapters.
    """

    def __init__(
        self, file: ModelHeader, template: str | None = None, adapters: AdapterChoice | None = None
    ) -> None:
        self._file = file
        self._adapters = adapters or _no_adapters
        self._template = template
        self._tokenizer = _tokenizer(file)
        self._defaults = file_defaults(file.gguf)
        self._far: FarTokenizer | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises RequestError if the file has no tokenizer, UnsupportedModelError for a kind not supported.
        """
        if self._tokenizer is None:
            self._file.tokenizer()  # raises UnsupportedModelError if the file has a tokenizer
            raise RequestError(
                "this model's file has no tokenizer; give the prompt as token ids (Python API)",
                field="prompt",
            )
        return self._tokenizer

    @cached_property
    def chat(self) -> ChatTemplate:
        """The model's chat templates. Raises UnsupportedModelError for a file without chat templates."""
        # An eighth of all imports, which a text prompt does not need.
        from camelid.requests.chat import ChatTemplate

        words = PROJECTORS[self._file.tower.spec.projector].prompt if self._file.tower else None
        return ChatTemplate.of(self._file.gguf, self.tokenizer, self._template, words)

    @cached_property
    def constraints(self) -> Constraints:
        """The compiled grammars of this model's requests."""
        from camelid.requests.constraints import Constraints  # half of the text layer's code

        return Constraints(self.tokenizer)

    def encode_far(self) -> None:
        """Encodes long texts in worker processes from now on. Needs subprocesses, which a web page lacks."""
        source = self._file.tokenizer_source()
        if self._tokenizer and source and not self._far:
            from camelid.requests.far_tokenizer import FarTokenizer  # servers alone

            self._tokenizer = self._far = FarTokenizer(self._tokenizer, source)

    async def start_grammar_workers(self) -> None:
        """Compiles grammars and computes masks in worker processes from now on.

        Then `prepare` comes before `request`, and no stream waits for another request's grammar. Needs
        subprocesses, which a web page lacks.
        """
        await self.constraints.start_workers().warm()

    async def prepare(self, options: Mapping[str, object], calls: Mapping[str, object] | None = None) -> None:
        """Compiles the grammar of a request in a worker process, if workers were started.

        `calls` describes the tool calls of a rendered conversation. Raises RequestError as `request`.
        """
        named = {name: options[name] for name in CONSTRAINT_OPTIONS if options.get(name) is not None}
        if calls and not named:
            named = {"tool_calls": calls}
        if named and "constraints" in self.__dict__:
            await self.constraints.prepare(named)

    def close(self) -> None:
        """Ends the worker processes, if any."""
        if "constraints" in self.__dict__ and self.constraints.workers:
            self.constraints.workers.close()
        if self._far:
            self._far.close()

    def rendered(
        self, prompt: Prompt | ChatPrompt, options: Mapping[str, object]
    ) -> tuple[ChatPrompt, Mapping[str, object]]:
        """The prompt as token ids, and the options that are left for `request`. Raises as `request`."""
        check_names(options)
        rest: dict[str, Any] = {**options}
        chat = {name: rest.pop(name, None) for name in CHAT_OPTIONS}
        ending = {name: rest.pop(name, None) for name in ENDING_OPTIONS}
        return self._prompt(prompt, chat, ending, special=rest.pop("special", False)), rest

    def request(self, prompt: Prompt | ChatPrompt, options: Mapping[str, object]) -> Request:
        """Builds the request of a prompt; a `ChatPrompt` is a conversation already rendered.

        Raises RequestError, UnsupportedModelError, TemplateError.
        """
        check_generates(self._file.spec)
        rendered, found = self.rendered(prompt, options)
        rest: dict[str, Any] = {**found}
        max_tokens, stops = rest.pop("max_tokens", None), checked_stops(rest.pop("stop", ()))
        ignore_eos = rest.pop("ignore_eos", False)
        guides = {name: rest.pop(name, None) for name in CONSTRAINT_OPTIONS}
        self._check_draft(rest.get("speculate"))
        selection = rest.pop("adapter", None)
        engine = engine_options({name: rest.pop(name) for name in ENGINE_NAMES & rest.keys()})
        sampling = SamplingParams.from_options(rest, self._defaults).seeded()
        constraint = self._constraint(guides, rendered.calls, ignore_eos=ignore_eos)
        prompt_ids, media = self._with_rows(rendered)
        source_ids, prompt_ids = self._of_encoder(prompt_ids)
        adapter = self._adapters(selection, prompt_ids)
        return Request(
            sampling=sampling,
            prompt_ids=tuple(prompt_ids),
            source_ids=tuple(source_ids),
            media=media,
            max_tokens=max_tokens,
            eos_ids=self._tokenizer.eos_ids if self._tokenizer and not ignore_eos else frozenset(),
            reader=lambda: TextReader(rendered.answer(stops)),
            constraint=constraint,
            adapter=adapter,
            **(self._tokenizer_fields | engine),
        )

    def _of_encoder(self, prompt_ids: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """The tokens of the encoder, if there is one in front of the decoder, and of the decoder."""
        spec = self._file.spec
        return (prompt_ids, (spec.start_id,)) if spec.is_encoder_decoder and prompt_ids else ((), prompt_ids)

    def _with_rows(self, prompt: ChatPrompt) -> tuple[Sequence[int], tuple[Media, ...]]:
        """The token ids with a placeholder for each row of an image, and the images to encode."""
        if not prompt.images:
            return prompt.token_ids, ()
        tower = self._file.tower
        assert tower is not None, "a conversation with images was rendered for a tower"
        return with_image_rows(prompt.token_ids, prompt.images, tower.spec, self.tokenizer)

    def _check_draft(self, speculate: object) -> None:
        """Raises RequestError for a draft model that is this model or has another vocabulary."""
        if not isinstance(speculate, DraftModel) or not isinstance(speculate.spec, ModelSpec):
            return  # a proposer without a vocabulary of its own
        if speculate.spec.is_encoder_decoder or self._file.spec.is_encoder_decoder:
            raise RequestError(
                "a draft model reads the tokens of a decoder alone, and a model with an encoder needs the "
                "encoder's too; leave speculate out, or set it to 'ngram'",
                field="speculate",
            )
        if speculate.spec is self._file.spec:  # a deadlock: the draft waits for the step that waits for it
            raise RequestError("a model cannot be its own draft; load a smaller one", field="speculate")
        n, want = speculate.spec.vocab_size, self._file.spec.vocab_size
        if n != want:
            raise RequestError(
                f"the draft model has a vocabulary of {n} tokens, expected {want} as in this model; "
                "load a draft model with the same vocabulary",
                field="speculate",
            )

    @cached_property
    def _tokenizer_fields(self) -> dict[str, Any]:
        """Fields of a `Request` from the tokenizer: `token_bytes` for samplers, and the default of `n_keep`.

        By default a context shift keeps the tokens that open every prompt, such as BOS.
        """
        if self._tokenizer is None:
            return {}
        return {"token_bytes": self._tokenizer.token_bytes, "n_keep": len(self._tokenizer.frame.before)}

    def _constraint(
        self, options: Mapping[str, object], calls: Mapping[str, object] | None, *, ignore_eos: bool
    ) -> ConstraintFactory | None:
        options = {name: value for name, value in options.items() if value is not None}
        factory = self.constraints.factory(options) if options else None
        if calls and factory:
            name = next(iter(options))
            raise RequestError(
                f"{name} and a tool_choice or parallel_tool_calls are set, expected one of them; without "
                f"tool_choice, {name} constrains the whole answer",
                field=name,
            )
        factory = self.constraints.factory({"tool_calls": calls}) if calls else factory
        if factory and ignore_eos:
            raise RequestError(
                "ignore_eos continues past the end of a grammar; leave ignore_eos out", field="ignore_eos"
            )
        return factory

    def _prompt(
        self,
        prompt: Prompt | ChatPrompt,
        chat: Mapping[str, Any],
        ending: Mapping[str, Any],
        *,
        special: bool,
    ) -> ChatPrompt:
        """Token ids of a prompt, the factory of the text source for its answer, and its calls' grammar."""
        if special and not isinstance(prompt, str):
            raise RequestError(
                "special applies to a text prompt; leave it out for token ids and messages", field="special"
            )
        if isinstance(prompt, ChatPrompt):
            _check_unset(ending, "give messages as the prompt; a session renders its own")
            return prompt
        if not isinstance(prompt, str):
            items = _items(prompt)
            if not _are_ids(items):
                return self.chat.prompt(cast("list[Message]", items), **chat, **ending)
        _check_unset({**chat, **ending}, "give messages as the prompt")
        prompt_ids = self._text_ids(prompt, special) if isinstance(prompt, str) else list(prompt)
        return ChatPrompt(cast("list[int]", prompt_ids), self._plain_text(prompt_ids))

    def _text_ids(self, text: str, special: bool) -> list[int]:
        tokenizer = self.tokenizer
        return list(tokenizer.frame.around(tokenizer.encode(text, special)))

    def _plain_text(self, prompt_ids: Sequence[Any]) -> SourceFactory:
        tokenizer, last = self._tokenizer, prompt_ids[-1] if prompt_ids else None
        if tokenizer is None:
            return lambda stops: NoText()
        return lambda stops: OutputText(tokenizer, stops, after=last)


def _no_adapters(selection: Selection | None, prompt_ids: Sequence[int]) -> None:  # noqa: ARG001
    if selection:
        raise RequestError(f"adapter {shown(selection)} is unknown; none can be loaded here", field="adapter")


def check_generates(spec: ModelSpec) -> None:
    """Raises RequestError for a model that encodes texts and generates none."""
    if spec.embeds:
        raise RequestError(
            f"{spec.name!r:.200} generates no text: it makes {'rankings' if ranks(spec) else 'embeddings'}; "
            f"call {'rerank' if ranks(spec) else 'embed'}, or load a model that generates",
            field="model",
        )


def check_continues(spec: ModelSpec) -> None:
    """Raises RequestError for a model whose answers do not continue the text that it reads."""
    if spec.is_encoder_decoder:
        raise RequestError(
            f"{spec.name!r:.200} has an encoder, so its answers do not continue a session's text; call "
            "generate with the whole text",
            field="model",
        )


def ranks(spec: ModelSpec) -> bool:
    """True for a model with a ranking head."""
    return spec.encoder is not None and spec.encoder.n_labels > 0


def _check_unset(options: Mapping[str, object], remedy: str) -> None:
    """Raises RequestError for an option of chat templates that is set."""
    name = next((name for name, value in options.items() if value is not None), None)
    if name:
        raise RequestError(f"{name} applies to a chat template; {remedy}", field=name)


def checked_stops(stop: object) -> tuple[str, ...]:
    """Stop sequences, from one string or several. Raises RequestError for any other value."""
    stops = (stop,) if isinstance(stop, str) else stop
    if isinstance(stops, list | tuple):
        items = cast("Sequence[object]", stops)
        if all(isinstance(item, str) and item for item in items):
            return tuple(cast("Sequence[str]", items))
    raise RequestError(
        f"stop is {shown(stop)}, expected a string or a list of strings, none of them empty", field="stop"
    )


def check_names(options: Mapping[str, object]) -> None:
    """Raises RequestError, with the known names, for an unknown option."""
    unknown = sorted(options.keys() - Options.__annotations__.keys())
    if unknown:
        what = "is not available in this version" if unknown[0] in LATER else "is unknown"
        known = ", ".join(Options.__annotations__)
        raise RequestError(f"option {unknown[0]!r} {what}; known: {known}", field=unknown[0])


def engine_options(options: Mapping[str, object]) -> dict[str, Any]:
    """Fields of a `Request` from engine options.

    Raises RequestError for a value of another type; the engine checks ranges.
    """
    for name, value in options.items():
        kinds = ENGINE_TYPES.get(name)
        if kinds and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            want = " or ".join(kind.__name__ for kind in kinds)
            raise RequestError(f"{name} is {shown(value)}, expected {want}", field=name)
    fields = {ENGINE_FIELDS.get(name, name): value for name, value in options.items()}
    return fields | ({"proposer": proposer_of(fields["proposer"])} if "proposer" in fields else {})


def _items(prompt: object) -> list[object]:
    kind = type(prompt)
    if kind in (bytes, bytearray, memoryview) or not isinstance(prompt, Iterable):
        raise RequestError(
            f"the prompt is {kind.__name__}, expected text, token ids or messages", field="prompt"
        )
    return list(cast("Any", prompt))


def _are_ids(items: list[object]) -> bool:
    return all(isinstance(item, int) and not isinstance(item, bool) for item in items)


def _tokenizer(file: ModelHeader) -> Tokenizer | None:
    """The tokenizer; None also for a kind not supported, since a prompt of token ids needs no tokenizer."""
    try:
        return file.tokenizer()
    except UnsupportedModelError:
        return None
