# ruff: noqa: E501 - a request is a line
"""The requests that both servers get, in groups of one pair of processes each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tell me about a fish."}]
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    },
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
GREEDY = {"temperature": 0.0, "seed": 42}
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `body` is JSON, or bytes as they are."""

    name: str
    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)


@dataclass(frozen=True, slots=True)
class Group:
    """Requests to one server, in order. `{folder}` in a flag is an empty folder."""

    name: str
    flags: tuple[str, ...]
    asks: tuple[Ask, ...]
    health: str = "/health"


def get(name: str, path: str, **headers: str) -> Ask:
    return Ask(name, "GET", path, headers=headers)


def post(name: str, path: str, body: Any, **headers: str) -> Ask:
    return Ask(name, "POST", path, body, headers)


def native(name: str, **fields: Any) -> Ask:
    return post(name, "/completion", {"prompt": "Once upon a time", "n_predict": 8, **GREEDY, **fields})


def text(name: str, **fields: Any) -> Ask:
    return post(name, "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8, **GREEDY, **fields})


def chat(name: str, **fields: Any) -> Ask:
    return post(name, "/v1/chat/completions", {"messages": TALK, "max_tokens": 8, **GREEDY, **fields})


def message(name: str, **fields: Any) -> Ask:
    base = {"messages": TALK[1:], "system": "Be brief.", "max_tokens": 8, **GREEDY}
    return post(name, "/v1/messages", base | fields)


def response(name: str, **fields: Any) -> Ask:
    base = {"input": "Tell me about a fish.", "max_output_tokens": 8, **GREEDY}
    return post(name, "/v1/responses", base | fields)


NATIVE = (
    native("plain"), native("cached"), native("stream", stream=True), native("eos", n_predict=200),
    native("tokens", return_tokens=True), native("verbose", verbose=True), native("seed_default", seed=-1),
    native("stop", stop=["a"]), native("stop_stream", stop=["a"], stream=True),
    native("probs", n_probs=3), native("probs_stream", n_probs=3, stream=True),
    native("probs_post", n_probs=3, post_sampling_probs=True, temperature=0.5),
    native("min_keep", n_probs=2, min_keep=3, temperature=1.0, top_k=5),
    native("progress", stream=True, return_progress=True, cache_prompt=False),
    native("timings", stream=True, timings_per_token=True),
    native("none", n_predict=0), native("none_stream", n_predict=0, stream=True),
    native("ignore_eos", ignore_eos=True), native("bias", logit_bias=[[5, -1.5], ["the", False]]),
    native("bias_map", logit_bias={"5": 3}), native("fields", response_fields=["content", "timings/prompt_n", "x"]),
    native("batch", prompt=["One", "Two"]), native("batch_stream", prompt=["One", "Two"], stream=True),
    native("ids", prompt=[5, 6, 7]), native("mixed", prompt=["One", 5, 6]), native("one_of_list", prompt=["One"]),
    native("batch_mixed", prompt=[[5, 6], "One", ["Two", 7]]), native("object", prompt={"prompt_string": "One"}),
    native("n", n=2), native("n_cmpl", n_cmpl=2), native("grammar", grammar='root ::= "yes" | "no"'),
    native("schema", json_schema=SCHEMA, n_predict=24), native("samplers", samplers=["top_k", "temperature"]),
    native("samplers_letters", samplers="kt"), native("samplers_unknown", samplers=["nope", "top_k"]),
    native("slot", id_slot=1), native("slot_none", id_slot=77), native("empty", prompt=""),
    native("too_long", prompt=[5] * 600), native("wrong_type", prompt=5), native("wrong_temperature", temperature="x"),
    native("bad_grammar", grammar="root ::= ("), native("bad_schema", json_schema={"type": 5}),
    native("too_many_probs", n_probs=100000), native("cut", n_predict=-1, prompt=[5] * 240, ignore_eos=True),
    native("time", t_max_predict_ms=60000), native("prompt_time", t_max_prompt_ms=60000), native("discard", n_discard=3),
    native("keep", n_keep=4), native("mirostat", mirostat=2, temperature=0.5), native("lora", lora=[{"id": 0, "scale": 1.0}]),
    native("penalties", repeat_penalty=1.1, repeat_last_n=5, dry_multiplier=0.5, presence_penalty=0.1),
    post("no_prompt", "/completion", {"n_predict": 2}), post("no_json", "/completion", b"{"),
    post("null", "/completion", None), post("a_list", "/completion", []), post("other_path", "/completions", {"prompt": "x", "n_predict": 2}),
    post("unknown", "/nowhere", {}), get("wrong_method", "/completion"),
)  # fmt: skip
TEXT = (
    text("plain"), text("stream", stream=True), text("usage", stream=True, stream_options={"include_usage": True}),
    text("logprobs", logprobs=2), text("logprobs_stream", logprobs=2, stream=True), text("echo", echo=True),
    text("n", n=2), text("batch", prompt=["One", "Two"]), text("stop", stop=["a"]), text("model", model="other"),
    text("suffix", suffix="x"), text("best_of", best_of=2), text("bias", logit_bias={"5": -100}), text("length_0", max_tokens=0),
    text("verbose", verbose=True), text("timings", stream=True, timings_per_token=True), text("progress", stream=True, return_progress=True),
    post("no_prompt", "/v1/completions", {}), text("too_long", prompt=[5] * 600), text("empty", prompt=""),
)  # fmt: skip
CHAT = (
    chat("plain"), chat("stream", stream=True), chat("usage", stream=True, stream_options={"include_usage": True}),
    chat("eos", max_tokens=200), chat("verbose", verbose=True), chat("verbose_stream", verbose=True, stream=True),
    chat("logprobs", logprobs=True, top_logprobs=3), chat("logprobs_alone", logprobs=True),
    chat("logprobs_stream", logprobs=True, top_logprobs=3, stream=True), chat("top_alone", top_logprobs=3),
    chat("n", n=2), chat("n_stream", n=2, stream=True), chat("stop", stop=["a"]), chat("seed_random", seed=-1),
    chat("model", model="other"), chat("format_text", response_format={"type": "text"}),
    chat("format_object", response_format={"type": "json_object"}),
    chat("format_object_schema", response_format={"type": "json_object", "schema": SCHEMA}, max_tokens=24),
    chat("format_schema", response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}}, max_tokens=24),
    chat("format_bad", response_format={"type": "sound"}), chat("format_none", response_format={"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}),
    chat("schema", json_schema=SCHEMA, max_tokens=24), chat("grammar", grammar='root ::= "yes" | "no"'),
    chat("progress", stream=True, return_progress=True, cache_prompt=False), chat("timings", stream=True, timings_per_token=True),
    chat("samplers", samplers=["top_k"]), chat("penalties", repeat_penalty=1.1, dry_multiplier=0.5), chat("bias", logit_bias={"5": -100}),
    chat("max_completion", max_completion_tokens=3), chat("prefill", messages=[*TALK, {"role": "assistant", "content": "A fish"}]),
    chat("prefill_two", messages=[*TALK, {"role": "assistant", "content": "A"}, {"role": "assistant", "content": "B"}]),
    chat("continue", messages=[*TALK, {"role": "assistant", "content": "A fish"}], continue_final_message=True, add_generation_prompt=False),
    chat("continue_both", messages=[*TALK, {"role": "assistant", "content": "A fish"}], continue_final_message=True, add_generation_prompt=True),
    chat("no_generation", add_generation_prompt=False), chat("parts", messages=[{"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "you"}]}]),
    chat("image", messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}]),
    chat("reasoning_none", reasoning_format="none"), chat("reasoning_deepseek", reasoning_format="deepseek"), chat("reasoning_bad", reasoning_format="x"),
    chat("thinking_off", chat_template_kwargs={"enable_thinking": False}), chat("kwargs_bad", chat_template_kwargs={"enable_thinking": "x"}),
    chat("tool_auto", tools=[TOOL]), chat("tool_required", tools=[TOOL], tool_choice="required", max_tokens=60),
    chat("tool_required_stream", tools=[TOOL], tool_choice="required", max_tokens=60, stream=True), chat("tool_choice_bad", tools=[TOOL], tool_choice="x"),
    chat("no_messages", messages=[]), chat("bad_messages", messages="x"), chat("bad_role", messages=[{"role": 5, "content": "x"}]),
    chat("no_content", messages=[{"role": "user"}]), chat("bad_message", messages=["x"]), chat("bad_content", messages=[{"role": "user", "content": 5}]),
    chat("null_content", messages=[{"role": "user", "content": None}]), chat("length_0", max_tokens=0), chat("length_minus", max_tokens=-1),
    chat("bad_temperature", temperature="hot"), chat("bad_stop", stop=5), chat("bad_stream", stream="yes"), chat("bad_seed", seed="x"),
    chat("too_long", messages=[{"role": "user", "content": "fish " * 600}]), chat("too_long_stream", messages=[{"role": "user", "content": "fish " * 600}], stream=True),
    chat("id_slot", id_slot=1), chat("n_probs", n_probs=2), chat("hot", temperature=3.0),
    post("count", "/v1/chat/completions/input_tokens", {"messages": TALK}),
    post("template", "/apply-template", {"messages": TALK}), post("template_none", "/apply-template", {}),
    post("template_kwargs", "/apply-template", {"messages": TALK, "add_generation_prompt": False}),
    post("template_tools", "/apply-template", {"messages": TALK, "tools": [TOOL]}),
    post("alias_path", "/chat/completions", {"messages": TALK, "max_tokens": 2}),
)  # fmt: skip
OTHERS = (
    get("health", "/health"), get("health_v1", "/v1/health"), get("props", "/props"), get("slots", "/slots"),
    get("models", "/v1/models"), get("models_short", "/models"), get("metrics", "/metrics"), get("lora", "/lora-adapters"),
    post("lora_set", "/lora-adapters", [{"id": 0, "scale": 1.0}]), post("props_set", "/props", {}), get("slot", "/slots/0"),
    post("save", "/slots/0?action=save", {"filename": "a"}), post("tokenize", "/tokenize", {"content": "What is the capital?"}),
    post("tokenize_special", "/tokenize", {"content": "What is the capital?", "add_special": True}),
    post("tokenize_pieces", "/tokenize", {"content": "What ü€", "with_pieces": True}), post("tokenize_none", "/tokenize", {}),
    post("tokenize_list", "/tokenize", {"content": ["What", 5]}), post("tokenize_number", "/tokenize", {"content": 5}),
    post("tokenize_no_special", "/tokenize", {"content": "<|im_end|>", "parse_special": False}),
    post("detokenize", "/detokenize", {"tokens": [5, 6, 7]}), post("detokenize_none", "/detokenize", {}),
    post("infill", "/infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 2}),
    post("embedding", "/embedding", {"content": "x"}), post("embeddings", "/v1/embeddings", {"input": "x"}),
    post("rerank", "/v1/rerank", {"query": "x", "documents": ["y"]}),
    Ask("preflight", "OPTIONS", "/v1/chat/completions", headers={"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "Authorization"}),
    get("origin_local", "/v1/models", Origin="http://localhost:3000"), get("origin_other", "/v1/models", Origin="http://example.com"),
    message("messages"), message("messages_stream", stream=True), message("messages_stop", stop_sequences=["a"]),
    message("messages_no_length", max_tokens=None), message("messages_blocks", messages=[{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]),
    message("messages_tools", tools=[{"name": "look", "description": "Looks.", "input_schema": SCHEMA}], tool_choice={"type": "any"}, max_tokens=60),
    message("messages_tools_stream", tools=[{"name": "look", "description": "Looks.", "input_schema": SCHEMA}], tool_choice={"type": "any"}, max_tokens=60, stream=True),
    message("messages_thinking", thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=30), message("messages_none", messages=None),
    post("messages_count", "/v1/messages/count_tokens", {"messages": TALK[1:]}), message("messages_sampling", top_k=3, top_p=0.5, metadata={"user_id": "x"}),
    response("responses"), response("responses_stream", stream=True), response("responses_items", input=[{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}], instructions="x"),
    response("responses_none", input=None), post("responses_count", "/v1/responses/input_tokens", {"input": "Hi"}),
    response("responses_previous", previous_response_id="resp_x"), get("tools", "/tools"), get("cors_proxy", "/cors-proxy"),
)  # fmt: skip
KEYED_PATHS = ("/health", "/props", "/v1/models", "/models", "/slots", "/metrics", "/nowhere", "/")
KEYS = {
    "none": {}, "wrong": {"Authorization": "Bearer no"}, "right": {"Authorization": "Bearer sesame"},
    "x_key": {"X-Api-Key": "sesame"},
}  # fmt: skip
KEYED = (
    *(get(f"{name} {path}", path, **headers) for path in KEYED_PATHS for name, headers in KEYS.items()),
    post("chat_none", "/v1/chat/completions", {"messages": TALK}),
    post("messages_none", "/v1/messages", {"messages": TALK[1:], "max_tokens": 1}),
    post("messages_key", "/v1/messages", {"messages": TALK[1:], "max_tokens": 1}, **{"X-Api-Key": "sesame"}),
)
LONG = "The llama walked over the mountain to the other side of the river. "
FLAGGED = (
    get("slots", "/slots"), get("props", "/props"), get("metrics", "/metrics"), post("props_set", "/props", {}),
    native("first", prompt=LONG, id_slot=1), post("save", "/slots/1?action=save", {"filename": "one.bin"}),
    native("other", prompt=LONG.replace("llama", "alpaca"), id_slot=1), post("restore", "/slots/0?action=restore", {"filename": "one.bin"}),
    native("after_restore", prompt=LONG, id_slot=0), native("again", prompt=LONG, id_slot=1), post("erase", "/slots/1?action=erase", {}),
    native("after_erase", prompt=LONG, id_slot=1), post("restore_missing", "/slots/0?action=restore", {"filename": "two.bin"}),
    post("save_path", "/slots/0?action=save", {"filename": "../x"}), post("bad_action", "/slots/0?action=x", {"filename": "x"}),
    post("bad_slot", "/slots/9?action=save", {"filename": "x"}), post("no_name", "/slots/0?action=save", {}),
    get("slots_after", "/slots"), get("metrics_after", "/metrics"), get("models", "/v1/models"), get("index", "/"),
    get("fail_on_no_slot", "/slots?fail_on_no_slot=1"), chat("chat", verbose=None), chat("chat_stream", stream=True),
    text("text"), native("native"),
)  # fmt: skip
SHIFT = (
    native("shift", prompt=LONG, n_predict=200, ignore_eos=True), native("too_long", prompt=[5] * 300),
    native("shift_stream", prompt=LONG, n_predict=200, ignore_eos=True, stream=True),
    native("discard", prompt=LONG, n_predict=100, ignore_eos=True, n_discard=10),
    native("keep", prompt=LONG, n_predict=100, ignore_eos=True, n_keep=-1), chat("chat", max_tokens=200, ignore_eos=True),
)  # fmt: skip
PREFIX = (
    get("health", "/api/v9/health"),
    get("props", "/api/v9/props"),
    get("bare", "/props"),
    post("chat", "/api/v9/v1/chat/completions", {"messages": TALK, "max_tokens": 2}),
)
GROUPS = (
    Group("native", ("-c", "512", "-np", "2", "--seed", "42"), NATIVE),
    Group("text", ("-c", "512", "-np", "2"), TEXT),
    Group("chat", ("-c", "512", "-np", "2", "--jinja"), CHAT),
    Group("others", ("-c", "512", "-np", "2"), OTHERS),
    Group("keyed", ("-c", "512", "-np", "2", "--api-key", "sesame", "--metrics"), KEYED),
    Group(
        "flagged",
        ("-c", "512", "-np", "2", "--slots", "--metrics", "--props", "--slot-save-path", "{folder}", "--verbose",
         "--alias", "one,two", "--tags", "red,blue", "--no-ui", "--temp", "0"),
        FLAGGED,
    ),
    Group("off", ("-c", "512", "-np", "1", "--no-slots", "-n", "4"), (get("slots", "/slots"), get("props", "/props"), post("n", "/completion", {"prompt": "x", "temperature": 0}), chat("chat", max_tokens=None))),
    Group("shift", ("-c", "256", "-np", "1", "--context-shift"), SHIFT),
    Group("prefix", ("-c", "256", "--api-prefix", "/api/v9"), PREFIX, "/api/v9/health"),
)  # fmt: skip
