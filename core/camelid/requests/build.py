"""From what a caller says, a prompt and its options, to the request that the engine runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

from camelid.engine.sequence import Request
from camelid.engine.speculative import proposer_of
from camelid.errors import RequestError, UnsupportedModelError, shown
from camelid.formats.gguf import Gguf
from camelid.model.spec import ModelSpec
from camelid.requests.completion import SourceFactory, TextReader
from camelid.requests.constraints import CONSTRAINT_OPTIONS, Constraints
from camelid.requests.file_defaults import file_defaults
from camelid.requests.options import EngineOptions, Message, Prompt, check_names, checked_stops
from camelid.requests.output_text import ChatPrompt, NoText, OutputText
from camelid.sampling.drawing import ConstraintFactory
from camelid.sampling.params import SamplingParams
from camelid.text.tokenizers.tokenizer import Tokenizer, framed

if TYPE_CHECKING:
    from camelid.requests.chat import ChatTemplate

CHAT_OPTIONS = ("tools", "variables")
ENGINE_NAMES = frozenset(EngineOptions.__annotations__)
# Options whose field of a Request has another name.
ENGINE_FIELDS = {"cache_prompt": "reuses", "cache_salt": "salt", "speculate": "proposer"}
ENGINE_TYPES: dict[str, tuple[type, ...]] = {
    "priority": (int,),
    "n_keep": (int,),
    "cache_prompt": (bool,),
    "cache_salt": (str,),
    "is_atomic": (bool,),
}


class ModelHeader(Protocol):
    """The facts of a model file that requests depend on."""

    @property
    def gguf(self) -> Gguf: ...
    @property
    def spec(self) -> ModelSpec: ...
    def tokenizer(self) -> Tokenizer | None: ...


class RequestBuilder:
    """Makes requests to one model."""

    def __init__(self, file: ModelHeader) -> None:
        self._file = file
        self._tokenizer = _tokenizer(file)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. RequestError if its file has none, UnsupportedModelError for its kind."""
        if self._tokenizer is None:
            self._file.tokenizer()  # says why, if the file has one
            raise RequestError("this model has no tokenizer; from Python, give token ids", field="prompt")
        return self._tokenizer

    @cached_property
    def chat(self) -> ChatTemplate:
        """The model's chat templates. UnsupportedModelError if it has none."""
        from camelid.requests.chat import (
            ChatTemplate,  # an eighth of all imports, which a prompt of text never needs
        )

        return ChatTemplate.of(self._file.gguf, self.tokenizer)

    @cached_property
    def guides(self) -> Constraints:
        """The grammars that requests asked for."""
        return Constraints(self.tokenizer)

    def request(self, prompt: Prompt | ChatPrompt, options: Mapping[str, object]) -> Request:
        """The request; a conversation may have been rendered already.

        Raises RequestError, UnsupportedModelError, TemplateError.
        """
        check_names(options)
        named: dict[str, Any] = {**options}
        max_tokens, stops = named.pop("max_tokens", None), checked_stops(named.pop("stop", ()))
        special, ignore_eos = named.pop("special", False), named.pop("ignore_eos", False)
        chat = {name: named.pop(name, None) for name in CHAT_OPTIONS}
        guide = self._guide(
            {name: named.pop(name, None) for name in CONSTRAINT_OPTIONS}, ignore_eos=ignore_eos
        )
        self._check_draft(named.get("speculate"))
        engine = engine_options({name: named.pop(name) for name in ENGINE_NAMES & named.keys()})
        sampling = SamplingParams.from_options(named, self._defaults).seeded()
        prompt_ids, make_source = self._prompt(prompt, chat, special=special)
        return Request(
            sampling=sampling,
            prompt_ids=prompt_ids,
            max_tokens=max_tokens,
            eos_ids=self._tokenizer.eos_ids if self._tokenizer and not ignore_eos else frozenset(),
            reader=lambda: TextReader(make_source(stops)),
            constraint=guide,
            **(self._of_tokenizer | engine),
        )

    @cached_property
    def _defaults(self) -> Mapping[str, object]:
        """Sampling that the file itself recommends, as llama.cpp reads it."""
        return file_defaults(self._file.gguf)

    def _check_draft(self, way: object) -> None:
        """A draft model must be another one, which speaks of the same tokens."""
        spec = getattr(way, "spec", None)
        if spec is self._file.spec:  # its answer would wait for the step that waits for it
            raise RequestError("a model cannot be its own draft; load a smaller one", field="speculate")
        want = self._file.spec.vocab_size
        n = getattr(spec, "vocab_size", want)
        if n != want:
            raise RequestError(
                f"the draft model has {n} tokens and this model {want}; choose one with the same vocabulary",
                field="speculate",
            )

    @cached_property
    def _of_tokenizer(self) -> dict[str, Any]:
        """What samplers read of tokens; what a shift keeps unless told otherwise: what opens every prompt."""
        if self._tokenizer is None:
            return {}
        return {"token_bytes": self._tokenizer.token_bytes, "n_keep": len(self._tokenizer.frame.before)}

    def _guide(self, asked: Mapping[str, object], *, ignore_eos: bool) -> ConstraintFactory | None:
        if all(value is None for value in asked.values()):
            return None
        guide = self.guides.of(asked)
        if guide and ignore_eos:
            raise RequestError(
                "ignore_eos goes on past what a grammar allows; leave it out", field="ignore_eos"
            )
        return guide

    def _prompt(
        self, prompt: Prompt | ChatPrompt, chat: Mapping[str, Any], *, special: bool
    ) -> tuple[tuple[int, ...], SourceFactory]:
        """A prompt's ids, and what turns the answer's ids into text."""
        if special and not isinstance(prompt, str):
            raise RequestError("special is for a prompt of text; ids and messages need none", field="special")
        if isinstance(prompt, ChatPrompt):
            return tuple(prompt.token_ids), prompt.answer
        if not isinstance(prompt, str):
            items = _items(prompt)
            if not _are_ids(items):
                made = self.chat.prompt(cast("list[Message]", items), **chat)
                return tuple(made.token_ids), made.answer
        given = next((name for name in CHAT_OPTIONS if chat[name] is not None), None)
        if given:
            raise RequestError(f"{given} is for the chat template; give messages as the prompt", field=given)
        prompt_ids = self._text_ids(prompt, special) if isinstance(prompt, str) else tuple(prompt)
        return cast("tuple[int, ...]", prompt_ids), self._plain_text(prompt_ids)

    def _text_ids(self, text: str, special: bool) -> tuple[int, ...]:
        tokenizer = self.tokenizer
        return tuple(framed(tokenizer, tokenizer.encode(text, special)))

    def _plain_text(self, prompt_ids: tuple[Any, ...]) -> SourceFactory:
        tokenizer, last = self._tokenizer, prompt_ids[-1] if prompt_ids else None
        if tokenizer is None:
            return lambda stops: NoText()
        return lambda stops: OutputText(tokenizer, stops, after=last)


def engine_options(given: Mapping[str, object]) -> dict[str, Any]:
    """Fields of a Request. RequestError for what is not of its option's type; the engine checks the rest."""
    for name, value in given.items():
        kinds = ENGINE_TYPES.get(name)
        if kinds and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            want = " or ".join(kind.__name__ for kind in kinds)
            raise RequestError(f"{name} is {shown(value)}, expected {want}", field=name)
    named = {ENGINE_FIELDS.get(name, name): value for name, value in given.items()}
    return named | ({"proposer": proposer_of(named["proposer"])} if "proposer" in named else {})


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
    """None also for a kind that is not supported: a prompt of token ids needs no text."""
    try:
        return file.tokenizer()
    except UnsupportedModelError:
        return None
