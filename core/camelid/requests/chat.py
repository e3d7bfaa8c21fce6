"""Renders a conversation by the model's chat template, as spans of trusted and untrusted text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TypeAlias, cast

from camelid.errors import RequestError, UnsupportedModelError, shown
from camelid.formats.gguf import Gguf
from camelid.requests.messages import checked_messages, checked_tools
from camelid.requests.output_text import ChatOutput, ChatPrompt, MarkerTokenizer, OutputText, TextSource
from camelid.requests.transcript import Rendering, transcript_ids, updated_transcript
from camelid.text.templates.named import chosen_template, named_templates
from camelid.text.templates.template import Template, compile_template
from camelid.text.tokenizers.tokenizer import Tokenizer
from camelid.text.toolcalls.families import detect, opens_reasoning
from camelid.text.toolcalls.family import Family
from camelid.text.toolcalls.parser import OutputParser, parser_for

TAIL = 200  # last characters of a rendering, searched for the marker that opens reasoning

# From the last prompt id and the stop sequences to the text of an answer.
TextOf: TypeAlias = Callable[[int | None, tuple[str, ...]], OutputText]


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A conversation as text up to the answer. `parser` finds reasoning and tool calls in the answer."""

    rendering: Rendering
    text_of: TextOf
    parser: Callable[[], OutputParser] | None = None

    def prompt(self, token_ids: list[int]) -> ChatPrompt:
        """The conversation as token ids."""
        last = token_ids[-1] if token_ids else None
        return ChatPrompt(token_ids, lambda stops: self._source(last, stops))

    def _source(self, last: int | None, stops: tuple[str, ...]) -> TextSource:
        text = self.text_of(last, stops)
        return ChatOutput(text, self.parser()) if self.parser else text


@dataclass(frozen=True)
class ChatTemplate:
    """A model's chat templates by name, compiled on first use, with the model's tokenizer."""

    sources: Mapping[str, str]
    tokenizer: Tokenizer
    bos_token: str
    eos_token: str
    _compiled: dict[str, Template] = field(default_factory=dict[str, Template])

    @classmethod
    def of(cls, gguf: Gguf, tokenizer: Tokenizer) -> ChatTemplate:
        """The file's templates. Raises UnsupportedModelError for a file without chat templates."""
        sources = named_templates(gguf.metadata)
        if not sources:
            raise UnsupportedModelError(
                "this model's file has no chat template; give the prompt as text, not as messages",
                kind="chat template", name=gguf.path,
            )  # fmt: skip
        return cls(sources, tokenizer, _token(gguf, "bos"), _token(gguf, "eos"))

    def prompt(
        self, messages: Sequence[object], *, tools: object = None, variables: object = None
    ) -> ChatPrompt:
        """Token ids up to the answer. Raises RequestError for malformed messages, TemplateError."""
        rendered = self.rendered(messages, tools=tools, variables=variables)
        return rendered.prompt(transcript_ids(updated_transcript((), rendered.rendering, self.tokenizer)))

    def rendered(
        self, messages: Sequence[object], *, tools: object = None, variables: object = None
    ) -> RenderedChat:
        """The text up to the answer. Raises RequestError for malformed messages, TemplateError."""
        checked = checked_tools(tools)
        source = chosen_template(self.sources, tools=bool(checked))
        template = self._template(source)
        spans = template.render(
            checked_messages(messages),
            add_generation_prompt=True,
            tools=checked,
            bos_token=self.bos_token,
            eos_token=self.eos_token,
            strftime_now=strftime_now,
            **checked_variables(variables, template.variables),
        )
        family = detect(source)
        in_reasoning = opens_reasoning("".join(text for text, _ in spans[-TAIL:])[-TAIL:], family)
        return RenderedChat(
            Rendering.of(spans),
            lambda last, stops: OutputText(self._marker_tokenizer(family), stops, after=last),
            lambda: parser_for(family, tools=checked or (), starts_in_reasoning=in_reasoning),
        )

    def _template(self, source: str) -> Template:
        if source not in self._compiled:
            self._compiled[source] = compile_template(source)
        return self._compiled[source]

    def _marker_tokenizer(self, family: Family) -> MarkerTokenizer:
        """The tokenizer with the family's markers as text."""
        markers = family.shows(self._controls.values())
        return MarkerTokenizer(
            self.tokenizer, frozenset(i for i, text in self._controls.items() if text in markers)
        )

    @cached_property
    def _controls(self) -> dict[int, str]:
        """Texts of the control tokens, by id."""
        t = self.tokenizer
        ids = filter(t.is_control, range(t.vocab_size))
        return {i: text for i in ids if (text := t.token_bytes(i).decode("utf-8", "replace"))}


def checked_variables(variables: object, known: frozenset[str]) -> Mapping[str, object]:
    """A request's variables. Raises RequestError for a variable that the template does not read."""
    if variables is None:
        return {}
    if not isinstance(variables, Mapping):
        raise RequestError(f"variables is {shown(variables)}, expected a mapping", field="variables")
    values = cast("Mapping[object, object]", variables)
    for name in values:
        if name not in known:
            readable = ", ".join(sorted(known)) or "none"
            raise RequestError(
                f"the chat template does not read the variable {shown(name)}; it reads: {readable}",
                field="variables",
            )
    return {str(name): value for name, value in values.items()}


def strftime_now(format_: str) -> str:
    """Today's date in this format: the function `strftime_now` of chat templates."""
    return datetime.now().strftime(format_)


def _token(gguf: Gguf, name: str) -> str:
    token_id = gguf.get(f"tokenizer.ggml.{name}_token_id", int, default=None)
    tokens = gguf.get("tokenizer.ggml.tokens", list[str])
    return tokens[token_id] if token_id is not None and 0 <= token_id < len(tokens) else ""
