"""POST /infill: text between a prefix and a suffix, with the model's fill-in-the-middle tokens."""

from __future__ import annotations

from camelid.server.faces.common import Body, model_tokenizer
from camelid.server.faces.native_completions import answer_limit, answered, native_jobs
from camelid.server.fields.native import INFILL
from camelid.server.http.call import Call
from camelid.server.http.reply import Reply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.fill_in import FimTokens
from camelid.text.tokenizers.tokenizer import Tokenizer

SNIPPET = "\n\n--- snippet ---\n\n"  # between files, for a model without a separator token


async def infill(server: Server, call: Call) -> Reply:
    """The text between two texts; it has the fields of /completion."""
    values = INFILL.read(call.json(), call)
    service = await server.service(values.own.get("model"))
    tokens, tokenizer = FimTokens.of(service.host.running.file.gguf), model_tokenizer(service)
    own, room = values.own, service.context - answer_room(values.own, service.context)
    texts = [own["input_prefix"], own["input_suffix"], own.get("prompt", ""), *(own.get("input_extra") or ())]
    with service.text_place():
        token_ids = await service.in_pool(texts, lambda: infill_ids(own, tokens, tokenizer, room))
        jobs = await native_jobs(server, service, call, values, [token_ids], "infill")
    return await answered(service, call, values, jobs)


def answer_room(own: Body, context: int) -> int:
    """Tokens of the context that are kept for the answer: its limit, at most half of all."""
    limit = answer_limit(own)
    return min(context // 4 if limit is None or limit < 0 else limit, context // 2) + 1


def infill_ids(own: Body, tokens: FimTokens, tokenizer: Tokenizer, room: int) -> list[int]:
    """The prompt, cut to `room` tokens: the prefix keeps its end, the suffix its beginning, 3 to 1.

    Other files come first, and only as far as room is left; their beginning is cut.
    """
    middle = tokenizer.encode(own.get("prompt", ""))
    before, after = tokenizer.encode(own["input_prefix"]), tokenizer.encode(own["input_suffix"])
    frame = list(tokenizer.frame.before)
    room -= len(middle) + len(frame) + 3
    n_after = min(len(after), max(room // 4, room - len(before), 0))
    n_before = min(len(before), max(room - n_after, 0))
    extra = extra_ids(own.get("input_extra") or [], tokens, tokenizer)
    n_extra = min(len(extra), max(room - n_before - n_after, 0))
    return [
        *extra[len(extra) - n_extra :], *frame, tokens.prefix, *before[len(before) - n_before :], *middle,
        tokens.suffix, *after[:n_after], tokens.middle,
    ]  # fmt: skip


def extra_ids(files: list[dict[str, str]], tokens: FimTokens, tokenizer: Tokenizer) -> list[int]:
    """Other files of the repository, in the form of Qwen2.5-Coder (arXiv:2409.12186, section 3.2)."""
    token_ids: list[int] = []
    if tokens.repository is not None:
        token_ids += [tokens.repository, *tokenizer.encode("myproject\n")]
    for file in files:
        if tokens.separator is None:
            token_ids += tokenizer.encode(SNIPPET)
        else:
            token_ids += [tokens.separator, *tokenizer.encode(f"{file['filename']}\n")]
        token_ids += tokenizer.encode(file["text"])
    if tokens.separator is not None:
        token_ids += [tokens.separator, *tokenizer.encode("filename\n")]
    return token_ids


ROUTES = (Route("POST", "/infill", infill, INFILL),)
