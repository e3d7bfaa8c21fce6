"""Text and token ids without an answer: /tokenize, /detokenize, /apply-template, and counts of prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from camelid.requests.options import Message
from camelid.server.faces.chat_completions import chat_job
from camelid.server.faces.common import Body, model_tokenizer
from camelid.server.faces.native_prompts import mixed_ids
from camelid.server.faces.native_reply import shown_text
from camelid.server.fields.native import DETOKENIZE, TOKENIZE
from camelid.server.fields.openai import CHAT
from camelid.server.http.call import Call
from camelid.server.http.reply import JsonReply, Reply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.text.tokenizers.tokenizer import Tokenizer

PART_IDS = 4096
TEMPLATE_OPTIONS = ("tools", "variables", "continue_final_message", "add_generation_prompt")


async def tokenize(server: Server, call: Call) -> Reply:
    """Token ids of a text, with their pieces if asked."""
    own = TOKENIZE.read(call.json(), call).own
    service = await server.service(own.get("model"))
    tokenizer, content = model_tokenizer(service), own.get("content", "")
    frames, special = own.get("add_special", False), own.get("parse_special", True)
    listed = tokenizer if own.get("with_pieces") else None
    with service.text_place():
        body = await service.in_pool(
            content, lambda: token_list(mixed_ids(content, tokenizer, frames=frames, special=special), listed)
        )
    return JsonReply(body)


def token_list(token_ids: Sequence[int], tokenizer: Tokenizer | None) -> bytes:
    """The body of a reply with token ids, and with their pieces if a tokenizer is given.

    It is written in parts: the JSON of one long list would hold up every thread.
    """
    parts = list[str]()
    for start in range(0, len(token_ids), PART_IDS):
        ids = token_ids[start : start + PART_IDS]
        items = [{"id": i, "piece": piece(i, tokenizer)} for i in ids] if tokenizer else list(ids)
        parts.append(json.dumps(items, ensure_ascii=False)[1:-1])
    return f'{{"tokens": [{", ".join(parts)}]}}'.encode()


def piece(token_id: int, tokenizer: Tokenizer) -> str | list[int]:
    """A token's text, or its bytes where they are no whole text."""
    data = tokenizer.token_bytes(token_id)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


async def detokenize(server: Server, call: Call) -> Reply:
    """The text of token ids, control tokens included."""
    own = DETOKENIZE.read(call.json(), call).own
    service = await server.service(own.get("model"))
    tokenizer, token_ids = model_tokenizer(service), own.get("tokens", [])
    with service.text_place():
        text = await service.in_pool(token_ids, lambda: shown_text(token_ids, tokenizer))
    return JsonReply({"content": text})


async def apply_template(server: Server, call: Call) -> Reply:
    """The text that the chat template makes of a conversation."""
    values = CHAT.read(call.json(), call)
    service = await server.service(values.own.get("model"))
    job = chat_job(values, service, call)
    messages = cast("Sequence[Message]", job.prompt)
    options = {name: job.options.get(name) for name in TEMPLATE_OPTIONS}
    chat = service.builder.chat
    with service.text_place():
        rendered: Any = await service.in_pool(job.texts, lambda: chat.rendered(messages, **options))
    opening = shown_text(chat.tokenizer.frame.before, chat.tokenizer)  # /completion adds it again
    return JsonReply({"prompt": rendered.rendering.text.removeprefix(opening)})


async def input_tokens(server: Server, call: Call) -> Reply:
    """The number of tokens of a conversation."""
    values = CHAT.read(call.json(), call)
    service = await server.service(values.own.get("model"))
    with service.text_place():
        request = await service.request(chat_job(values, service, call))
    body: Body = {"object": "response.input_tokens", "input_tokens": request.n_read}
    return JsonReply(body)


ROUTES = (
    Route("POST", "/tokenize", tokenize, TOKENIZE),
    Route("POST", "/detokenize", detokenize, DETOKENIZE),
    Route("POST", "/apply-template", apply_template, CHAT),
    Route("POST", "/v1/chat/completions/input_tokens", input_tokens, CHAT),
    Route("POST", "/chat/completions/input_tokens", input_tokens, CHAT),
)
