"""/embedding, as llama.cpp's."""

from __future__ import annotations

import math
from collections.abc import Sequence

from camelid.server.faces.common import model_tokenizer
from camelid.server.faces.embeddings import encoder, packed
from camelid.server.faces.native_prompts import Mixed, mixed_ids, split_prompts
from camelid.server.fields.native import EMBEDDING
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.http.reply import JsonReply, Reply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.encoding import embeddings, token_rows
from camelid.text.tokenizers.tokenizer import Tokenizer

EUCLIDEAN = 2
LARGEST = 32760.0


async def embedding(server: Server, call: Call) -> Reply:
    """The embedding of each prompt; of a model without a pooling, the hidden state of each token."""
    own = EMBEDDING.read(call.json(), call).own
    content = own.get("content", own.get("input"))
    if content is None:
        raise ApiError(400, "the field 'content' is missing", param="content")
    prompts = split_prompts(content)
    service = await encoder(server, own.get("model"), "embeddings")
    tokenizer = model_tokenizer(service)
    with service.text_place():
        texts: list[list[int]] = await service.in_pool(
            prompts, lambda: [framed(prompt, tokenizer) for prompt in prompts]
        )
    found = service.host.running.file.spec.encoder
    if found is not None and not found.pooling:
        rows = (await token_rows(service, call, texts)).rows
    else:
        done = await embeddings(service, call, texts, normalize=False)
        rows = [[scaled(row, own.get("embd_normalize", EUCLIDEAN))] for row in done.rows]
    is_packed = own.get("encoding_format") == "base64"
    return JsonReply([
        {"index": i, "embedding": [packed(row) if is_packed else list(row) for row in each]}
        for i, each in enumerate(rows)
    ])  # fmt: skip


def framed(prompt: Mixed, tokenizer: Tokenizer) -> list[int]:
    """Token ids of a prompt; a text has the tokens around every text."""
    return mixed_ids(prompt, tokenizer, special=False)


def scaled(row: Sequence[float], kind: int) -> list[float]:
    """A row scaled as llama.cpp's `embd_normalize` says: -1 not at all, 0 to at most 32760, else to length 1
    in the norm of that power.
    """
    if kind < 0:
        return list(row)
    if kind == 0:
        most = max(map(abs, row), default=0.0) / LARGEST
    else:
        most = math.fsum(abs(value) ** kind for value in row) ** (1.0 / kind)
    return [value / most for value in row] if most else list(row)


ROUTES = (
    Route("POST", "/embedding", embedding, EMBEDDING),
    Route("POST", "/embeddings", embedding, EMBEDDING),
)
