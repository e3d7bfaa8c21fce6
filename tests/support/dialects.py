"""A model with thoughts and tool calls that says what a test wants, behind a server of this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.gguf_files import write_tiny_llama
from tests.support.served_here import ServedHere, served_here

import camelid
from camelid.api.llm import LLM

TEMPLATE = (
    "{% if tools %}{{ '<tools>' }}{{ tools | tojson }}"
    "{{ '<tool_call>{name, arguments}</tool_call>' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + ' ' }}"
    "{% if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}"
    "{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}{{ call.function.name }}{{ call.function.arguments | tojson }}"
    "{% endfor %}{{ '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think></think>' }}{% endif %}{% endif %}"
)


@contextmanager
def thinker(folder: Path, template: str = TEMPLATE) -> Iterator[ServedHere]:
    """Serves a tiny random model whose template has thoughts, tools and `enable_thinking`."""
    place = folder / "tiny.gguf"
    write_tiny_llama(place, seed=5, hidden=64, head_dim=16, ffn=96, context=1024, template=template)
    with served_here(str(place), backend="reference", context=1024, parallel=2) as served:
        yield served


def thinker_library(served: ServedHere) -> LLM:
    """The same model, loaded by the library."""
    return camelid.load(served.server.models.default.row.file, backend="reference", context=1024)


@contextmanager
def saying(served: ServedHere, text: str) -> Iterator[None]:
    """Forces every answer to be this text, as a trained model would give it."""
    builder = served.service.builder
    original = builder.request

    def request(prompt: Any, options: Mapping[str, object]) -> Any:
        return original(prompt, {**options, "choice": [text]})

    builder.request = request  # type: ignore[method-assign]
    try:
        yield
    finally:
        builder.request = original  # type: ignore[method-assign]


def prompt_of(served: ServedHere, path: str, body: Any) -> str:
    """The text of the prompt that a request renders to."""
    builder, seen = served.service.builder, list[tuple[int, ...]]()
    original = builder.request

    def request(prompt: Any, options: Mapping[str, object]) -> Any:
        made = original(prompt, options)
        seen.append(tuple(made.prompt_ids))
        return made

    builder.request = request  # type: ignore[method-assign]
    try:
        reply = served.http.post(path, json=body)
    finally:
        builder.request = original  # type: ignore[method-assign]
    assert reply.status_code == 200, reply.text
    return builder.tokenizer.decode(seen[0], special=True)
