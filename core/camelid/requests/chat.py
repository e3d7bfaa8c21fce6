"""Renders a conversation by the model's chat template, as spans of trusted and untrusted text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TypeAlias, cast

from camelid.errors import RequestError, UnsupportedModelError, shown
from camelid.formats.gguf import Gguf
from camelid.images.decode import ImageFile
from camelid.model.vision.spec import ImagePrompt
from camelid.requests.images import placed_images, split_images
from camelid.requests.messages import checked_messages, checked_tools
from camelid.requests.output_text import ChatOutput, ChatPrompt, MarkerTokenizer, OutputText, TextSource
from camelid.requests.tool_choice import checked_choice
from camelid.requests.transcript import Rendering, transcript_ids, updated_transcript
from camelid.text.templates.named import DEFAULT, chosen_template, named_templates
from camelid.text.templates.template import Template, compile_template
from camelid.text.tokenizers.tokenizer import Tokenizer
from camelid.text.toolcalls.families import detect, opens_reasoning
from camelid.text.toolcalls.family import Controls, Family
from camelid.text.toolcalls.parser import OutputParser, parser_for

# Variables by which templates turn thoughts on and off.
THOUGHT_SWITCHES = ("enable_thinking", "thinking")
TAIL = 200  # last characters of a rendering, searched for the marker that opens reasoning

# From the last prompt id and the stop sequences to the text of an answer.
TextOf: TypeAlias = Callable[[int | None, tuple[str, ...]], OutputText]


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A conversation as text up to the answer.

    `parser` finds reasoning and tool calls in the answer; `calls` describe the grammar of the calls.
    """

    rendering: Rendering
    text_of: TextOf
    parser: Callable[[], OutputParser] | None = None
    calls: Mapping[str, object] | None = None
    images: tuple[ImageFile, ...] = ()

    def prompt(self, token_ids: list[int]) -> ChatPrompt:
        """The conversation as token ids."""
        last = token_ids[-1] if token_ids else None
        return ChatPrompt(token_ids, lambda stops: self._source(last, stops), self.calls, self.images)

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
    words: ImagePrompt | None = None
    _compiled: dict[str, Template] = field(default_factory=dict[str, Template])

    @classmethod
    def of(
        cls, gguf: Gguf, tokenizer: Tokenizer, source: str | None = None, words: ImagePrompt | None = None
    ) -> ChatTemplate:
        """The file's templates, or one by its source; `words` are those around an image (None: no images).

        Raises UnsupportedModelError for a file without chat templates.
        """
        sources = named_templates(gguf.metadata) if source is None else {DEFAULT: source}
        if not sources:
            raise UnsupportedModelError(
                "this model's file has no chat template; give the prompt as text, not as messages",
                kind="chat template", name=gguf.path,
            )  # fmt: skip
        return cls(sources, tokenizer, _token(gguf, "bos"), _token(gguf, "eos"), words)

    @property
    def variables(self) -> frozenset[str]:
        """The variables that the default template reads."""
        return self._template(chosen_template(self.sources, tools=False)).variables

    @property
    def thought_switch(self) -> str | None:
        """The variable by which the default template turns thoughts on and off."""
        return next((name for name in THOUGHT_SWITCHES if name in self.variables), None)

    def prompt(self, messages: Sequence[object], **options: object) -> ChatPrompt:
        """Token ids up to the answer; options as of `rendered`, which raises the errors."""
        rendered = self.rendered(messages, **options)
        return rendered.prompt(transcript_ids(updated_transcript((), rendered.rendering, self.tokenizer)))

    def rendered(
        self,
        messages: Sequence[object],
        *,
        tools: object = None,
        tool_choice: object = None,
        parallel_tool_calls: object = None,
        variables: object = None,
        continue_final_message: object = None,
        add_generation_prompt: object = None,
        reasoning_format: object = None,
    ) -> RenderedChat:
        """The text up to the answer. Raises RequestError for malformed messages, TemplateError."""
        checked, is_raw = checked_tools(tools), leaves_reasoning(reasoning_format)
        choice = checked_choice(checked, tool_choice, parallel_tool_calls)
        source = chosen_template(self.sources, tools=bool(checked))
        template = self._template(source)
        whole, opened = checked_ending(
            checked_messages(messages), continue_final_message, add_generation_prompt
        )
        plain, images = split_images(whole, self.words)
        spans = template.render(
            plain,
            add_generation_prompt=add_generation_prompt is not False,
            tools=checked,
            bos_token=self.bos_token,
            eos_token=self.eos_token,
            strftime_now=strftime_now,
            **checked_variables(variables, template.variables),
        )
        spans = placed_images(spans, self.words, len(images)) if self.words else spans
        family = detect(source)
        in_reasoning = opens_reasoning("".join(text for text, _ in spans[-TAIL:])[-TAIL:], family)
        if in_reasoning and opened:
            raise RequestError(
                "this template opens an answer with reasoning, which a message cannot continue; turn its "
                "reasoning off, or leave the last message out",
                field="continue_final_message",
            )
        return RenderedChat(
            Rendering.of([*spans, (opened, False)] if opened else spans),
            lambda last, stops: OutputText(self._marker_tokenizer(family), stops, after=last),
            lambda: parser_for(
                replace(family, thinking=None) if is_raw else family,
                tools=() if choice and choice.forbids else checked or (),
                starts_in_reasoning=in_reasoning and not is_raw,
            ),
            choice
            and choice.description(family, in_reasoning=in_reasoning, controls=self._controls_in(family)),
            tuple(images),
        )

    def _template(self, source: str) -> Template:
        if source not in self._compiled:
            self._compiled[source] = compile_template(source)
        return self._compiled[source]

    def _marker_tokenizer(self, family: Family) -> MarkerTokenizer:
        """The tokenizer with the family's markers as text."""
        return MarkerTokenizer(self.tokenizer, frozenset(self._markers(family)))

    def _markers(self, family: Family) -> Mapping[int, str]:
        """Texts of the control tokens in the family's markers, by id."""
        markers = family.shows(self._controls.values())
        return {i: text for i, text in self._controls.items() if text in markers}

    def _controls_in(self, family: Family) -> Controls:
        """Ids of the control tokens in the family's markers; None for those that end an answer."""
        eos_ids = self.tokenizer.eos_ids
        return {text: None if i in eos_ids else i for i, text in self._markers(family).items()}

    @cached_property
    def _controls(self) -> dict[int, str]:
        """Texts of the control tokens, by id."""
        t = self.tokenizer
        ids = filter(t.is_control, range(t.vocab_size))
        return {i: text for i in ids if (text := t.token_bytes(i).decode("utf-8", "replace"))}


def leaves_reasoning(reasoning_format: object) -> bool:
    """True for the format "none". Raises RequestError for an unknown one."""
    if reasoning_format not in (None, "auto", "none"):
        raise RequestError(
            f"reasoning_format is {shown(reasoning_format)}, expected 'auto' or 'none'",
            field="reasoning_format",
        )
    return reasoning_format == "none"


def checked_ending(
    messages: list[dict[str, object]], continues: object, opens: object
) -> tuple[list[dict[str, object]], str]:
    """The messages that the template renders, and the text that the answer continues.

    Raises RequestError for a last message that cannot be continued.
    """
    for name, value in (("continue_final_message", continues), ("add_generation_prompt", opens)):
        if value is not None and not isinstance(value, bool):
            raise RequestError(f"{name} is {shown(value)}, expected True or False", field=name)
    if not continues:
        return messages, ""
    last = messages[-1] if messages else {}
    if last.get("role") != "assistant" or last.get("tool_calls") or opens is False:
        raise RequestError(
            "continue_final_message needs a last message of the assistant without tool calls, and no "
            "add_generation_prompt False",
            field="continue_final_message",
        )
    return messages[:-1], message_text(last)


def message_text(message: Mapping[str, object]) -> str:
    """The text of a checked message, joined from its parts if it has parts."""
    content = message.get("content") or ""
    parts = cast("list[dict[str, str]]", content) if isinstance(content, list) else []
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in parts)


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
