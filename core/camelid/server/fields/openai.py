"""The fields of OpenAI's chat and text completions, with llama.cpp's additions."""

from __future__ import annotations

from camelid.server.fields.kinds import (
    Either,
    Flag,
    Integer,
    Json,
    ListOf,
    Number,
    Object,
    OneOf,
    Text,
)
from camelid.server.fields.lora import LORA
from camelid.server.fields.sampling import MORE_SAMPLING, OPENAI_SAMPLING
from camelid.server.fields.table import Field, Refused, Table
from camelid.server.fields.texts import Texts

MAX_TOOLS = 512
NO_USERS = "users are known by their keys"
CACHES = "the prefix cache works by itself"
MAX_PROMPTS = 2048  # of one request, as in OpenAI's API
STREAM_OPTIONS = Object({"include_usage": Flag(), "include_obfuscation": OneOf((False,))})
TOOL_CHOICE = Json({"anyOf": [{"enum": ["auto", "none", "required"]}, {"type": "object"}]})
# As chat templates read it; the request itself checks it.
MESSAGE = Json(
    {
        "type": "object",
        "properties": {
            "role": {"type": "string"},  # templates know more roles than OpenAI's API
            "content": {
                "anyOf": [
                    {"type": "string"},
                    {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
                            "required": ["type", "text"],
                            "additionalProperties": False,
                        },
                    },
                ]
            },
        },
        "required": ["role", "content"],
    }
)
COMMON = (
    Field("model", Text(512)),
    Field("stream", Flag()),
    Field("stream_options", STREAM_OPTIONS),
    Field("n", Integer(1, 128)),
    Field("user", Text(512), note=NO_USERS),
    *OPENAI_SAMPLING,
    *MORE_SAMPLING,
    Field("grammar", Text(1 << 20), "grammar"),
    Field("json_schema", Json({"type": ["object", "boolean", "string"]}), "json_schema"),
    Field("cache_salt", Text(256), "cache_salt"),
    Field("priority", Integer(-1000, 1000)),
    Field("timings_per_token", Flag()),
    Field("verbose", Flag()),
    Field("return_progress", Flag()),
    Field("t_max_predict_ms", Number(-1, 1e9)),
    Field("id_slot", Integer(-1, 1 << 20)),
    LORA,
)
CHAT = Table.of(
    COMMON,
    Field("messages", ListOf(MESSAGE, 100_000, 1), is_required=True),
    Field("max_tokens", Integer(-1), "max_tokens"),
    Field("max_completion_tokens", Integer(-1), "max_tokens"),
    Field("n_predict", Integer(-1), "max_tokens"),
    Field("logprobs", Flag()),
    Field("top_logprobs", Integer(0, 20)),
    Field("tools", ListOf(Object(), MAX_TOOLS)),
    Field("tool_choice", TOOL_CHOICE),
    Field("parallel_tool_calls", Flag()),
    Field("response_format", Object(), "response_format"),
    Field("reasoning_effort", OneOf(("none", "minimal", "low", "medium", "high", "xhigh"))),
    Field("chat_template_kwargs", Object(most=64)),
    Field("continue_final_message", Flag()),
    Field("add_generation_prompt", Flag(), "add_generation_prompt"),
    Field("n_probs", Integer(0, 20)),
    Field("return_tokens", Flag()),
    Field("reasoning_format", OneOf(("auto", "deepseek", "none"))),
    Field("metadata", Object(most=16), note="no conversation is stored"),
    Field("safety_identifier", Text(512), note=NO_USERS),
    Field("prompt_cache_key", Text(512), note=CACHES),
    Refused("store", "no conversation is stored", (False,)),
    Refused("modalities", "answers are text", (["text"],)),
    Refused("audio", "answers are text"),
    Refused("prediction", "predicted outputs are not used"),
    Refused("service_tier", "all requests are served alike", ("auto", "default")),
    Refused("web_search_options", "no tool of the server itself exists"),
    Refused("functions", "use `tools`"),
    Refused("function_call", "use `tool_choice`", ("none", "auto")),
    Refused("moderation", "no moderation model is loaded"),
    Refused("prompt_cache_options", "the prefix cache works by itself", ({"mode": "implicit"},)),
    Refused("verbosity", "the model decides the length of its answer", ("medium",)),
    Refused("prompt_cache_retention", "the prefix cache keeps what fits", ("in_memory", "in-memory")),
)
TEXT = Table.of(
    COMMON,
    Field("prompt", Texts(MAX_PROMPTS), is_required=True),
    Field("max_tokens", Integer(-1), "max_tokens"),
    Field("n_predict", Integer(-1), "max_tokens"),
    Field("best_of", Integer(1, 128)),
    Field("echo", Flag()),
    Field("logprobs", Either({bool: Flag(), int: Integer(0, 20)}, "an integer from 0 to 20")),
    Field("suffix", Text()),
    Field("response_format", Object(), "response_format"),
)
