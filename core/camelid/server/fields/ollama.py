"""The fields of Ollama's chat, generate, embed and model endpoints, and their options."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import inf

from camelid.server.fields.kinds import (
    ANYTHING,
    Either,
    Flag,
    Integer,
    ListOf,
    Number,
    Object,
    OneOf,
    Schema,
    Text,
    refuse,
)
from camelid.server.fields.sampling import MORE_SAMPLING, OPENAI_SAMPLING
from camelid.server.fields.table import Field, Refused, Table

MAX_IMAGES = 64
MAX_TOOLS = 512
UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
DURATION = re.compile(r"[+-]?(0|(([0-9]{1,12}(\.[0-9]{1,12})?|\.[0-9]{1,12})(ns|us|µs|ms|s|m|h)){1,8})")
PIECE = re.compile(r"([0-9.]+)(ns|us|µs|ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds, as a number or in Go's notation ("5m", "1h30m"); a negative duration has no end."""

    def read(self, value: object, place: str) -> float:
        if isinstance(value, str) and DURATION.fullmatch(value):
            seconds = sum(float(number) * UNITS[unit] for number, unit in PIECE.findall(value))
            return inf if seconds and value.startswith("-") else seconds
        if type(value) in (int, float):
            seconds = Number().read(value, place)
            return inf if seconds < 0 else seconds
        refuse(place, value, 'seconds, or a duration such as "5m" or "1h30m"')

    def schema(self) -> Schema:
        return {"type": ["number", "string"]}


LOADED = "it is set when the server loads the model"
SHARED = {"min_p", "typical_p", "repeat_last_n", "repeat_penalty", "mirostat", "mirostat_tau", "mirostat_eta"}
SAMPLING = [row for row in (*OPENAI_SAMPLING, *MORE_SAMPLING) if row.name != "logit_bias"]
OPTIONS = Table.of(
    [row for row in SAMPLING if row.name in SHARED or row in OPENAI_SAMPLING],
    [replace(row, kind=Number(0, 1000)) for row in OPENAI_SAMPLING if row.name == "temperature"],
    [row for row in MORE_SAMPLING if row.name == "top_k"],
    Field("num_predict", Integer(-2)),
    Field("num_ctx", Integer(1)),
    Field("num_batch", Integer(1)),
    Field("num_thread", Integer(0)),
    Field("num_keep", Integer(-1)),  # nothing of a prompt is dropped, so everything is kept
    Refused("num_gpu", LOADED, (-1,)),
    Refused("main_gpu", LOADED, (0,)),
    Refused("numa", LOADED, (False,)),
    Refused("low_vram", LOADED, (False,)),
    Refused("f16_kv", LOADED),
    Refused("logits_all", LOADED, (False,)),
    Refused("vocab_only", LOADED, (False,)),
    Refused("use_mmap", LOADED),
    Refused("use_mlock", LOADED, (False,)),
    Refused("embedding_only", LOADED, (False,)),
    Refused("tfs_z", "the sampler is not known here", (1, 1.0)),
    Refused("penalize_newline", "penalties apply to all tokens alike", (True,)),
)
FUNCTION = Object(
    {
        "name": Text(512, 1), "arguments": Object(), "index": Integer(), "description": Text(),
    },
    ("name", "arguments"),
)  # fmt: skip
CALL = Object({"function": FUNCTION, "id": Text(512), "type": OneOf(("function",))}, ("function",))
IMAGES = ListOf(Text(), MAX_IMAGES)
MESSAGE = Object(
    {
        "role": OneOf(("system", "user", "assistant", "tool")), "content": Text(), "thinking": Text(),
        "images": IMAGES, "tool_calls": ListOf(CALL, MAX_TOOLS), "tool_name": Text(512),
        "tool_call_id": Text(512),
    },
    ("role",),
)  # fmt: skip
KEEP_ALIVE = Field("keep_alive", Duration())
COMMON = (
    Field("model", Text(512)),
    Field("stream", Flag()),
    Field("options", Object(most=64)),
    Field(
        "format", Either({str: OneOf(("", "json")), dict: Object()}, '"json", or a JSON schema as an object')
    ),
    Field("think", Either({bool: Flag(), str: OneOf(("low", "medium", "high"))}, "true, false or a level")),
    Field("logprobs", Flag()),
    Field("top_logprobs", Integer(0, 20)),
    KEEP_ALIVE,
    Refused("truncate", "no part of a prompt is cut off", (False,)),
    Refused("shift", "no part of a prompt is dropped", (False,)),
)
CHAT = Table.of(COMMON, Field("messages", ListOf(MESSAGE)), Field("tools", ListOf(Object(), MAX_TOOLS)))
NO_PICTURES = "answers are text"
GENERATE = Table.of(
    COMMON,
    Field("prompt", Text()),
    Field("suffix", Text()),
    Field("system", Text()),
    Field("images", IMAGES),
    Field("raw", Flag()),
    Refused("template", "the model's own chat template is used; `raw` sends a prompt as it is", ("",)),
    Refused("context", "send the conversation as messages to /api/chat", ([],)),
    Refused("width", NO_PICTURES, (0,)),
    Refused("height", NO_PICTURES, (0,)),
    Refused("steps", NO_PICTURES, (0,)),
)
INPUTS = Either({str: Text(), list: ListOf(Text())}, "a text or a list of texts")
EMBED_COMMON = (Field("model", Text(512)), Field("options", Object(most=64)), KEEP_ALIVE)
EMBED = Table.of(
    EMBED_COMMON,
    Field("input", INPUTS, is_required=True),
    Field("dimensions", Integer(1, 1 << 20)),
    Field("truncate", Flag()),
)
EMBEDDINGS = Table.of(EMBED_COMMON, Field("prompt", Text(), is_required=True))
NAMED = (Field("model", Text(512)), Field("name", Text(512)))  # `name` is Ollama's older field
SHOW = Table.of(NAMED, Field("verbose", Flag()))
PULL = Table.of(
    NAMED,
    Field("stream", Flag()),
    Refused("insecure", "nothing is fetched", (False,)),
)
# Endpoints that change the server's models; their fields are not read, since they are refused whole.
ANY = Table.of([Field(name, ANYTHING) for name in ("model", "name", "source", "destination")])
