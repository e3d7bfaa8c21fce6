"""A conversation as token ids: the model's chat template, through spans that say which text is trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from camelid.errors import RequestError, UnsupportedModelError
from camelid.formats.gguf import Gguf
from camelid.text.template import Template, compile_template
from camelid.text.tokenizer import Tokenizer

KEYS = {"role", "content"}


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A compiled chat template and the tokenizer that reads what it renders."""

    template: Template
    tokenizer: Tokenizer
    bos_token: str
    eos_token: str

    @classmethod
    def of(cls, gguf: Gguf, tokenizer: Tokenizer) -> ChatTemplate:
        """The file's template. UnsupportedModelError if it has none, TemplateError if it is malformed."""
        source = gguf.get("tokenizer.chat_template", str, default=None)
        if source is None:
            raise UnsupportedModelError(
                "this model's file has no chat template; give the prompt as text, not as messages",
                kind="chat template", name=gguf.path,
            )  # fmt: skip
        return cls(compile_template(source), tokenizer, _token(gguf, "bos"), _token(gguf, "eos"))

    def encode(self, messages: Sequence[object]) -> list[int]:
        """Token ids up to where the answer begins. RequestError for messages that are malformed."""
        spans = self.template.render(
            messages=[checked(message, i) for i, message in enumerate(messages)],
            add_generation_prompt=True,
            bos_token=self.bos_token,
            eos_token=self.eos_token,
            strftime_now=strftime_now,
        )
        ids = self.tokenizer.encode_spans(spans)
        before = list(self.tokenizer.frame.before)
        # Most templates write BOS themselves; two of them cost quality.
        return ids if ids[: len(before)] == before else before + ids


def strftime_now(form: str) -> str:
    """What templates call to write today's date."""
    return datetime.now().strftime(form)


def checked(message: object, index: int) -> Mapping[str, str]:
    """The message, if it has a role and a content that are text, and nothing else."""
    if not isinstance(message, Mapping):
        raise RequestError(
            f"message {index} is {message!r}, expected {{'role', 'content'}}", field="messages"
        )
    got: Mapping[object, object] = message  # type: ignore[assignment]  # Mapping[Unknown, Unknown]
    if set(got) != KEYS or not all(isinstance(value, str) for value in got.values()):
        found = ", ".join(sorted(f"{key}: {type(value).__name__}" for key, value in got.items()))
        raise RequestError(
            f"message {index} has {{{found}}}, expected exactly role: str and content: str", field="messages"
        )
    return {str(key): str(value) for key, value in got.items()}


def _token(gguf: Gguf, name: str) -> str:
    token_id = gguf.get(f"tokenizer.ggml.{name}_token_id", int, default=None)
    tokens = gguf.get("tokenizer.ggml.tokens", list[str])
    return tokens[token_id] if token_id is not None and 0 <= token_id < len(tokens) else ""
