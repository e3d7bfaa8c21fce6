"""Chat templates in requests: a single BOS, template variables, models without a template."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, cast

import pytest

from camelid.errors import UnsupportedModelError
from camelid.formats.gguf import Gguf
from camelid.requests.chat import ChatTemplate
from camelid.text.tokenizers.pipeline import Frame
from camelid.text.tokenizers.tokenizer import Tokenizer

BOS, EOS = "<s>", "</s>"
USER = [{"role": "user", "content": "hi"}]


class Spans:
    """A tokenizer with one id per character, and id 1 for BOS in trusted text."""

    def __init__(self, add_bos: bool) -> None:
        self.frame = Frame(before=(1,) if add_bos else ())

    vocab_size = 0

    def encode_spans(self, spans: Iterable[tuple[str, bool]], *, opens: bool = True) -> list[int]:
        text = "".join(text.replace(BOS, "\1") if trusted else text for text, trusted in spans)
        return [ord(char) for char in text]


def chat(template: str | None, *, add_bos: bool = True) -> ChatTemplate:
    metadata: dict[str, Any] = {
        "tokenizer.ggml.tokens": ["a", BOS, EOS],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    if template is not None:
        metadata["tokenizer.chat_template"] = template
    gguf = Gguf(3, 32, metadata, dict.fromkeys(metadata, "any"), {}, 0, 0, "file.gguf")
    return ChatTemplate.of(gguf, cast(Tokenizer, Spans(add_bos)))


def text(template: str, *, add_bos: bool = True) -> str:
    return "".join(map(chr, chat(template, add_bos=add_bos).prompt(USER).token_ids))


def test_bos_is_added_where_the_template_writes_none() -> None:
    assert text("{{ messages[0]['content'] }}") == "\1hi"


def test_bos_is_not_added_twice() -> None:
    assert text("{{ bos_token }}{{ messages[0]['content'] }}") == "\1hi"


def test_bos_is_not_added_to_models_without_bos() -> None:
    assert text("{{ messages[0]['content'] }}", add_bos=False) == "hi"


def test_templates_receive_special_tokens_and_the_date() -> None:
    assert text("{{ eos_token }}", add_bos=False) == EOS
    year = text("{{ strftime_now('%Y') }}", add_bos=False)
    assert abs(int(year) - datetime.now().year) <= 1


def test_generation_prompt_is_requested() -> None:
    assert text("{% if add_generation_prompt %}go{% endif %}", add_bos=False) == "go"


def test_file_without_a_template_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="has no chat template") as caught:
        chat(None)
    assert caught.value.name == "file.gguf"
