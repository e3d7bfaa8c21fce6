"""The fields of embeddings (OpenAI) and of rerankings (Jina, and text-embeddings-inference)."""

from __future__ import annotations

from camelid.server.fields.kinds import Either, Flag, Integer, ListOf, Object, OneOf, Text
from camelid.server.fields.table import Field, Table
from camelid.server.fields.texts import Texts

MAX_INPUTS = 2048
MAX_DOCUMENTS = 10_000
MAX_DIMENSIONS = 1 << 16
EMBEDDINGS = Table.of(
    Field("input", Texts(MAX_INPUTS), is_required=True),
    Field("model", Text(512)),
    Field("encoding_format", OneOf(("float", "base64"))),
    Field("dimensions", Integer(1, MAX_DIMENSIONS)),
    Field("user", Text(512)),
)
PASSAGE = Object({"text": Text()}, ("text",))
RERANK = Table.of(
    Field("model", Text(512)),
    Field("query", Either({str: Text(), dict: PASSAGE}, "text or {'text': ...}"), is_required=True),
    Field(
        "documents",
        ListOf(Either({str: Text(), dict: PASSAGE}, "text or {'text': ...}"), MAX_DOCUMENTS, 1),
    ),
    Field("texts", ListOf(Text(), MAX_DOCUMENTS, 1)),
    Field("top_n", Integer(1)),
    Field("return_documents", Flag()),
    Field("return_text", Flag()),
    Field("raw_scores", Flag()),
    Field("truncate", Flag()),
    Field("truncation_direction", OneOf(("left", "right", "Left", "Right"))),
)
