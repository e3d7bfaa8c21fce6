"""The fields of OpenAI's responses, with llama.cpp's samplers."""

from __future__ import annotations

from camelid.server.fields.kinds import Either, Flag, Integer, Json, ListOf, Number, Object, OneOf, Text
from camelid.server.fields.openai import CACHES, MAX_TOOLS, NO_USERS
from camelid.server.fields.sampling import MORE_SAMPLING, OPENAI_SAMPLING
from camelid.server.fields.table import Field, Refused, Table
from camelid.server.fields.typed import typed

MAX_ITEMS = 100_000
ID = Text(512)
STATUS = OneOf(("in_progress", "completed", "incomplete"))
MEDIA = ("input_audio", "input_file")
IMAGE_PART = Object({"image_url": Text(), "detail": OneOf(("auto", "low", "high"))}, ("image_url",))
TEXT_PART = Object({"text": Text()}, ("text",))
# An answer's text as it comes back; annotations and log-probabilities are no part of the conversation.
ANSWER_PART = Object(
    {
        "text": Text(),
        "annotations": Json({"type": "array"}),
        "logprobs": Json({"type": ["array", "null"]}),
        "parsed": Json({}),  # of the Python client's `parse`
    },
    ("text",),
)
PARTS = typed(
    {
        "input_text": TEXT_PART,
        "output_text": ANSWER_PART,
        "text": TEXT_PART,
        "refusal": Object({"refusal": Text()}, ("refusal",)),
        "input_image": IMAGE_PART,
    },
    media=MEDIA,
)
CONTENT = Either({str: Text(), list: ListOf(PARTS, MAX_ITEMS)}, "text or a list of parts")
OUTPUT = Either(
    {str: Text(), list: ListOf(typed({"input_text": TEXT_PART, "output_text": ANSWER_PART}, media=MEDIA))},
    "text or a list of parts",
)
REASONING_PARTS = ListOf(typed({"reasoning_text": TEXT_PART}, default="reasoning_text"), MAX_ITEMS)
SUMMARIES = ListOf(typed({"summary_text": TEXT_PART}, default="summary_text"), MAX_ITEMS)
ITEMS = typed(
    {
        "message": Object(
            {
                "role": OneOf(("user", "assistant", "system", "developer")),
                "content": CONTENT,
                "id": ID,
                "status": STATUS,
            },
            ("role", "content"),
        ),
        "function_call": Object(
            {
                "call_id": ID,
                "name": Text(512),
                "arguments": Text(),
                "id": ID,
                "status": STATUS,
                "parsed_arguments": Json({}),  # of the Python client's `parse`
            },
            ("call_id", "name", "arguments"),
        ),
        "function_call_output": Object(
            {"call_id": ID, "output": OUTPUT, "id": ID, "status": STATUS}, ("call_id", "output")
        ),
        "reasoning": Object({"summary": SUMMARIES, "content": REASONING_PARTS, "id": ID, "status": STATUS}),
    },
    default="message",
)
TOOLS = typed(
    {
        "function": Object(
            {
                "name": Text(512, 1),
                "description": Text(),
                "parameters": Object(),
                "strict": Flag(),
            },
            ("name",),
        )
    }
)
NAMED = Object({"name": Text(512, 1)}, ("name",))
TOOL_CHOICE = Either(
    {
        str: OneOf(("auto", "none", "required")),
        dict: typed(
            {
                "function": NAMED,
                "allowed_tools": Object(
                    {
                        "mode": OneOf(("auto", "required")),
                        "tools": ListOf(typed({"function": NAMED}), MAX_TOOLS, 1),
                    },
                    ("mode", "tools"),
                ),
            }
        ),
    },
    "'auto', 'none', 'required', a function or allowed tools",
)
FORMATS = typed(
    {
        "text": Object({}),
        "json_object": Object({}),
        "json_schema": Object(
            {"name": Text(512), "schema": Object(), "strict": Flag(), "description": Text()}, ("schema",)
        ),
    }
)
REASONING = Object(
    {
        "effort": OneOf(("none", "minimal", "low", "medium", "high", "xhigh")),
        "summary": OneOf(("auto",)),  # the reply has the reasoning itself, without a summary
        "generate_summary": OneOf(("auto",)),
    }
)
# Additions to outputs of built-in tools, which no answer here has; the reasoning is sent unencrypted.
INCLUDABLE = (
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
CONVERSATION = (
    Field("model", Text(512)),
    Field("input", Either({str: Text(), list: ListOf(ITEMS, MAX_ITEMS)}, "text or a list of items")),
    Field("instructions", Text()),
    Field("previous_response_id", ID),
    Field("tools", ListOf(TOOLS, MAX_TOOLS)),
    Field("tool_choice", TOOL_CHOICE),
    Field("parallel_tool_calls", Flag()),
    Field("text", Object({"format": FORMATS, "verbosity": OneOf(("medium",))})),
    Field("reasoning", REASONING),
    Field("chat_template_kwargs", Object(most=64)),
    Refused("conversation", "continue by previous_response_id"),
    Refused("truncation", "a conversation beyond the context is refused, never cut", ("disabled",)),
)
INPUT_TOKENS = Table.of(CONVERSATION, Refused("personality", "write it into the instructions"))
RESPONSES = Table.of(
    CONVERSATION,
    Field("stream", Flag()),
    Field("stream_options", Object({"include_obfuscation": Flag()})),
    Field("store", Flag()),
    Field("max_output_tokens", Integer(1), "max_tokens"),
    Field("max_tool_calls", Integer(1), note="it bounds built-in tools, of which there are none"),
    Field("metadata", Object(most=16)),
    Field("include", ListOf(OneOf(INCLUDABLE), len(INCLUDABLE))),
    Field("top_logprobs", Integer(0, 20)),
    Field("user", Text(512), note=NO_USERS),
    Field("safety_identifier", Text(512), note=NO_USERS),
    Field("prompt_cache_key", Text(512), note=CACHES),
    *OPENAI_SAMPLING,
    *MORE_SAMPLING,
    Field("grammar", Text(1 << 20), "grammar"),
    Field("cache_salt", Text(256), "cache_salt"),
    Field("priority", Integer(-1000, 1000)),
    Field("t_max_predict_ms", Number(-1, 1e9)),
    Refused("background", "an answer is computed while its request waits", (False,)),
    Refused("background_options", "an answer is computed while its request waits"),
    Refused("context_management", "a conversation beyond the context is refused, never cut"),
    Refused("prompt", "no prompt templates are stored; send the text"),
    Refused("service_tier", "all requests are served alike", ("auto", "default")),
    Refused("prompt_cache_retention", "the prefix cache keeps what fits", ("in_memory", "in-memory")),
    Refused("prompt_cache_options", "the prefix cache works by itself", ({"mode": "implicit"},)),
    Refused("moderation", "no moderation model is loaded"),
    Refused("access_programs", "there are no access programs"),
    Refused("image", "answers are text"),
)
