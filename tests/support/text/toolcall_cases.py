"""Each family's tool-call syntax, derived from its template, and malformed outputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Arguments = Mapping[str, object]
Calls = Sequence[tuple[str, Arguments]]

WEATHER: Arguments = {
    "city": 'Zürich "[x]" }{ \\ \n\t',
    "note": "a </tool_call> [TOOL_CALLS] <|call|> </function> <｜tool▁call▁end｜> 😀",
    "days": 3,
    "options": {"list": [1, -2.5e3, None, True, {}], "deep": {"a": [[]], "b": "}"}},
}
PLAIN: Arguments = {"city": "東京 }{'", "days": -3, "exact": False, "options": {"list": [1, 2.5], "a": {}}}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "A tool.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"description": "x", "type": "string"},
                    "note": {"description": "x", "type": "string"},
                    "days": {"description": "x", "type": "integer"},
                    "exact": {"description": "x", "type": "boolean"},
                    "options": {"description": "x", "type": "object"},
                },
            },
        },
    }
    for name in ("get_weather", "now")
]


def text_of(value: object) -> str:
    """A value as templates write it inside tags."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def gemma(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{gemma(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(gemma, value)) + "]"
    return f'<|"|>{value}<|"|>' if isinstance(value, str) else json.dumps(value)


def each(form: str, before: str = "", between: str = "", after: str = "") -> Callable[[Calls], str]:
    """A writer of calls: `form` contains §N (name), §A (arguments) and §C (count)."""

    def write(calls: Calls) -> str:
        texts = [
            form.replace("§N", name).replace("§C", str(i)).replace("§A", json.dumps(arguments))
            for i, (name, arguments) in enumerate(calls)
        ]
        return before + between.join(texts) + after

    return write


def tagged(
    form: str, pair: str, before: str = "", between: str = "", after: str = ""
) -> Callable[[Calls], str]:
    """A writer of calls with arguments in tags: `pair` contains §K and §V, optionally §S."""

    def write_pair(key: str, value: object) -> str:
        is_string = json.dumps(isinstance(value, str))
        return pair.replace("§K", key).replace("§S", is_string).replace("§V", text_of(value))

    def write(calls: Calls) -> str:
        texts = [
            form.replace("§N", name).replace("§A", "".join(write_pair(*item) for item in arguments.items()))
            for name, arguments in calls
        ]
        return before + between.join(texts) + after

    return write


NAMED = '{"name": "§N", "arguments": §A}'
QWEN_PAIR = "<parameter=§K>\n§V\n</parameter>\n"
# Family -> a writer of calls with JSON arguments.
JSON_WRITERS: Mapping[str, Callable[[Calls], str]] = {
    "hermes": each(f"<tool_call>\n{NAMED}\n</tool_call>", between="\n"),
    "mistral-json": each(NAMED[:-1] + ', "id": "abcdefgh§C"}', "[TOOL_CALLS][", ", ", "]"),
    "mistral": each("[TOOL_CALLS]§N[CALL_ID]abcdefgh§C[ARGS]§A"),
    "granite": each(NAMED, "<|tool_call|>[", ", ", "]"),
    "phi-4-mini": each(NAMED, "<|tool_call|>[", ", ", "]<|/tool_call|>"),
    "llama3": each('{"name": "§N", "parameters": §A}', between="; "),
    "gpt-oss": each(
        "<|channel|>commentary to=functions.§N <|constrain|>json<|message|>§A<|call|>",
            between="<|start|>assistant"
    ),
    "deepseek": each(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>§N\n```json\n§A\n```<｜tool▁call▁end｜>",
        "<｜tool▁calls▁begin｜>", "\n", "<｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    ),
    "deepseek-v3.1": each(
        "<｜tool▁call▁begin｜>§N<｜tool▁sep｜>§A<｜tool▁call▁end｜>", "<｜tool▁calls▁begin｜>", "",
            "<｜tool▁calls▁end｜>"
    ),
    "functionary-v3.1": each("<function=§N>§A</function>"),
    "functionary-v3.2": each(">>>§N\n§A"),
    "command-r7b": each(
        '    {"tool_call_id": "§C", "tool_name": "§N", "parameters": §A}',
        "<|START_ACTION|>[\n", ",\n", "\n]<|END_ACTION|>",
    ),
    "command-r": each('{"tool_name": "§N", "parameters": §A}', "Action:\n```json\n[\n", ",\n", "\n]```"),
    "kimi-k2": each(
        "<|tool_call_begin|>functions.§N:§C<|tool_call_argument_begin|>§A<|tool_call_end|>",
        "<|tool_calls_section_begin|>", "", "<|tool_calls_section_end|>",
    ),
    "solar": each(
        "<|tool_call:begin|>id§C<|tool_call:name|>§N<|tool_call:args|>§A<|tool_call:end|>",
            "<|tool_calls|>"
    ),
    "nemotron": each(NAMED, "<TOOLCALL>[", ", ", "]</TOOLCALL>"),
    "tool-calls": each(NAMED, "<tool_calls>\n", "\n", "\n</tool_calls>"),
    "gigachat": each(f"<|function_call|>{NAMED}", between="<|message_sep|>"),
    "functools": each(NAMED, " functools[", ", ", "]"),
    "apertus": each('{"§N": §A}', "<|tools_prefix|>[", ", ", "]<|tools_suffix|>"),
}  # fmt: skip
# Family -> a writer of calls with arguments in tags or another syntax.
TEXT_WRITERS: Mapping[str, Callable[[Calls], str]] = {
    "qwen3-coder": tagged("<tool_call>\n<function=§N>\n§A</function>\n</tool_call>", QWEN_PAIR,
        between="\n"),
    "seed-oss": tagged(
        "<seed:tool_call>\n<function=§N>\n§A</function>\n</seed:tool_call>",
            "<parameter=§K>§V</parameter>\n"
    ),
    "glm": tagged(
        "<tool_call>§N\n§A</tool_call>", "<arg_key>§K</arg_key>\n<arg_value>§V</arg_value>\n",
            between="\n"
    ),
    "minimax-m2": tagged(
        '<invoke name="§N">\n§A</invoke>\n', '<parameter name="§K">§V</parameter>\n',
        "<minimax:tool_call>\n", "", "</minimax:tool_call>",
    ),
    "deepseek-dsml": tagged(
        '<｜DSML｜invoke name="§N">\n§A</｜DSML｜invoke>\n',
        '<｜DSML｜parameter name="§K" string="§S">§V</｜DSML｜parameter>\n',
        "<｜DSML｜function_calls>\n", "", "</｜DSML｜function_calls>",
    ),
    "minicpm5": tagged('<function name="§N">§A</function>', '<param name="§K">§V</param>',
        between="\n"),
    "lfm2": lambda calls: "<|tool_call_start|>[" + ", ".join(
        f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})" for name,
        arguments in calls
    ) + "]<|tool_call_end|>",
    "gemma4": lambda calls: "".join(
        f"<|tool_call>call:{name}{gemma(arguments)}<tool_call|>" for name, arguments in calls
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """An output with its expected parse. A call is (name, arguments' text), with "…" before if incomplete."""

    family: str
    text: str
    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    starts: bool = False
    tools: bool = False


CASES = (
    # Whitespace, and members reordered, of another kind, or too many.
    Case("hermes", '<tool_call>{"name":"f","arguments":{}}</tool_call>', calls=(("f", "{}"),)),
    Case("hermes", ' \n<tool_call>\n\n { "name" :\t"f" , "arguments" : {"a": 1} } \n\n</tool_call>\n ',
        calls=(("f", '{"a": 1}'),)),
    Case("hermes", '<tool_call>{"arguments": {"a": 1}, "id": 7, "name": "f"}</tool_call>', calls=(("f",
        '{"a": 1}'),)),
    Case("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', calls=(("f",
        '{"a": 1}'),)),
    Case("hermes", '<tool_call>{"name": "f", "arguments": null}</tool_call>', calls=(("f", "{}"),)),
    Case("hermes", '<tool_call>{"name": "f"}</tool_call>', calls=(("f", "{}"),)),
    Case("hermes", '<tool_call>[{"name": "f"}, {"name": "g"}]</tool_call>', calls=(("f", "{}"), ("g", "{}"))),
    Case("hermes", '<tool_call>{"name": "f"}</tool_call> and text', " and text".strip(), calls=(("f",
        "{}"),)),
    Case("hermes", "Hi\n\n<tool_call>{\"name\": \"f\"}</tool_call>", "Hi", calls=(("f", "{}"),)),
    Case("hermes", "Hi<|im_end|>", "Hi"),
    Case("hermes", " Hi \n", " Hi \n"),
    Case("hermes", " " * 100 + '<tool_call>{"name": "f"}', " " * 36, calls=(("f", "{}"),)),
    # Missing closings, or missing brackets.
    Case("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}', calls=(("f", '{"a": 1}'),)),
    Case("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}', calls=(("f", '{"a": 1}'),)),
    Case("hermes", '<tool_call>{"name": "f", "arguments": {}</tool_call>Hi', "Hi", calls=(("f", "{}"),)),
    Case("hermes", '<tool_call>{"name": "f", "arguments": {}}}</tool_call>', "}</tool_call>", calls=(("f",
        "{}"),)),
    Case("hermes", '<tool_call>{"name": "f"}<tool_call>{"name": "g"}', calls=(("f", "{}"), ("g", "{}"))),
    # No call: text passes unchanged.
    Case("hermes", "<tool_call>", "<tool_call>"),
    Case("hermes", "a <tool_call> b </tool_call> c", "a <tool_call> b </tool_call> c"),
    Case("hermes", "a < b <tool b <tool_call", "a < b <tool b <tool_call"),
    Case("hermes", "<tool_call>\n<tool_call>{\"name\": \"f\"}", "<tool_call>", calls=(("f", "{}"),)),
    Case("hermes", '<tool_call>{"name": "f", "arg', '<tool_call>{"name": "f", "arg'),
    Case("hermes", '<tool_call>{"name": 7}</tool_call>', '<tool_call>{"name": 7}</tool_call>'),
    Case("hermes", '<tool_call>{"name": ""}</tool_call>', '<tool_call>{"name": ""}</tool_call>'),
    Case("hermes", '<tool_call>{"name": "a b"}</tool_call>', '<tool_call>{"name": "a b"}</tool_call>'),
    Case("hermes", '<tool_call>{"name": "\\ud800"}', '<tool_call>{"name": "\\ud800"}'),
    Case("hermes", '<tool_call>{"name": "f", "arguments": [1]}',
        '<tool_call>{"name": "f", "arguments": [1]}'),
    Case("hermes", '<tool_call>{"name": "f", "arguments": "x"}',
        '<tool_call>{"name": "f", "arguments": "x"}'),
    Case("hermes", "<tool_call>{'name': 'f'}</tool_call>", "<tool_call>{'name': 'f'}</tool_call>"),
    Case("hermes", '<tool_call>{"id": ' + "1" * 5000 + "}", '<tool_call>{"id": ' + "1" * 5000 + "}"),
    Case("hermes", '<tool_call>{"x": "' + "y" * 70_000 + '", "name": "f"}', '<tool_call>{"x": "'
        + "y" * 70_000 + '", "name": "f"}'),
    Case("hermes", '<tool_call>{"name": "f"}, and', ", and", calls=(("f", "{}"),)),
    Case("hermes", '<tool_call>{"x": "' + "y" * 65_536 + '<tool_call>{"name": "f"}',
        '<tool_call>{"x": "' + "y" * 65_536, calls=(("f", "{}"),)),
    # A call that breaks after its announcement ends there; the rest is content.
    Case("hermes", '<tool_call>{"name": "f", "arguments": {"a": "b', calls=(("f", '…{"a": "b'),)),
    Case("hermes", '<tool_call>{"name": "f", "arguments": {"a": }}</tool_call>', "}}</tool_call>",
        calls=(("f", '…{"a": '),)),
    Case("hermes", '<tool_call>{"name": "f", "arguments": {"a": 01}}', "1}}", calls=(("f", '…{"a": 0'),)),
    Case("hermes", '<tool_call>{"name": "f", "arguments": {"a": "\n"}}', '"}}', calls=(("f", '…{"a": "'),)),
    Case("hermes", '<tool_call>{"name": "f", "arguments": ' + '{"a":' * 300, '{"a":' * 100, calls=(("f", "…"
        + '{"a":' * 200),)),
    # Reasoning.
    Case("hermes", "<think>\nso\n</think>\n\nHi", "Hi", "so"),
    Case("hermes", "so\n</think>\n\nHi", "Hi", "so", starts=True),
    Case("hermes", "<think>\nso\n</think>\n\nHi", "Hi", "so", starts=True),
    Case("hermes", "<think></think>Hi", "Hi"),
    Case("hermes", "so <tool_call> not", "", "so <tool_call> not", starts=True),
    Case("hermes", 'so <tool_call>{"name": "f"}</think>Hi', "Hi", 'so <tool_call>{"name": "f"}', starts=True),
    Case("hermes", "<think>so", "", "so"),
    Case("hermes", "<think>a<think>b</think>c<think>d</think>e", "ce", "a<think>bd"),
    Case("hermes", "x </think> y", "x </think> y"),
    Case("granite", "<think>so</think><response>Hi</response>", "Hi", "so"),
    Case("granite", "<response>Hi</response>", "<response>Hi</response>"),
    Case("granite", '<tool_call>[{"name": "f"}]', calls=(("f", "{}"),)),
    Case("seed-oss", "<seed:think>so</seed:think>Hi", "Hi", "so"),
    Case("command-r7b", "<|START_THINKING|>so<|END_THINKING|><|START_RESPONSE|>Hi<|END_RESPONSE|>", "Hi",
        "so"),
    Case("gemma4", "<|channel>thought\nso<channel|>Hi<turn|>", "Hi", "so"),
    Case("gemma4", '<|tool_call>call:f<|"|>{}<tool_call|>', '<|tool_call>call:f<|"|>{}<tool_call|>'),
    Case("gemma4", '<|tool_call>call:f{a: 1 } <tool_call|>', calls=(("f", '{"a": 1 }'),)),
    Case("solar", "<|think|>so<|end|><|begin|>assistant<|content|>Hi", "Hi", "so"),
    Case("kimi-k2", "<think>so<|tool_calls_section_begin|><|tool_call_begin|>f:0<|tool_call_argument_begin|>"
        "{}Hi", "Hi", "so", (("f", "{}"),)),
    Case("kimi-k2", "<think>so<|tool_call_begin|>no</think>Hi", "Hi", "so<|tool_call_begin|>no"),
    # gpt-oss: every place of the recipient, channels without a recipient, malformed headers.
    Case("gpt-oss", " to=functions.f<|channel|>commentary json<|message|>{}<|call|>", calls=(("f", "{}"),)),
    Case("gpt-oss", "<|channel|>analysis to=functions.f code<|message|>{}", calls=(("f", "{}"),)),
    Case(
        "gpt-oss", "<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>final<|message|>Hi",
        "Hi", "so",
    ),
    Case("gpt-oss", "<|channel|>commentary<|message|>Wait.<|end|>"
        "<|start|>assistant to=functions.f<|channel|>commentary<|message|>{}", "Wait.", "", (("f", "{}"),)),
    Case("gpt-oss", "<|channel|>commentary to=assistant<|channel|>final<|message|>Hi", "Hi"),
    Case("gpt-oss", "<|channel|>analysis<|message|>so<|channel|>final<|message|>Hi", "Hi", "so"),
    Case("gpt-oss", "<|channel|>analysis<|channel|>final<|message|>Hi", "Hi"),
    Case("gpt-oss", "Hello there", "Hello there"),
    Case("gpt-oss", "<|channel|>fin", "<|channel|>fin"),
    Case("gpt-oss", "<|channel|>fi{<|message|>Hi", "<|channel|>fi{Hi"),
    Case("gpt-oss", "<|channel|>" + "x" * 300, "<|channel|>" + "x" * 300),
    Case("gpt-oss", "<|channel|>commentary to=python<|message|>print(1)",
        "<|channel|>commentary to=python<|message|>print(1)"),
    # Llama 3: JSON without a marker is a call only at the beginning, and only of a known tool.
    Case("llama3", '{"name": "get_weather", "parameters": {"a": 1}}', calls=(("get_weather", '{"a": 1}'),),
        tools=True),
    Case("llama3", '\n{"type": "function", "name": "f", "parameters": {}}', calls=(("f", "{}"),)),
    Case("llama3", '{"name": "Bob", "parameters": {}}', '{"name": "Bob", "parameters": {}}', tools=True),
    Case("llama3", '{"name": "Bob", "age": 3}', '{"name": "Bob", "age": 3}'),
    Case("llama3", '{"name": "B", "age": 3, "parameters": {}}', '{"name": "B", "age": 3, "parameters": {}}'),
    Case("llama3", '{"name": "Bob"}', '{"name": "Bob"}'),
    Case("llama3", 'See {"name": "f", "parameters": {}}', 'See {"name": "f", "parameters": {}}'),
    Case("llama3", '<|python_tag|>{"name": "f", "parameters": {}}<|eom_id|>', calls=(("f", "{}"),)),
    Case("llama3", '<|python_tag|>brave_search.call(query="a, \'b\' (c)")', calls=(("brave_search",
        '{"query": "a, \'b\' (c)"}'),)),
    Case("llama3", '<|python_tag|>print("hi")', '<|python_tag|>print("hi")'),
    Case("llama3", 'print(a="hi")', 'print(a="hi")'),
    # Functionary: recipient "all" addresses the user.
    Case("functionary-v3.2", "all\nHi", "Hi"),
    Case("functionary-v3.2", "all\nHi>>>f\n{}", "Hi", calls=(("f", "{}"),)),
    Case("functionary-v3.2", "get_weather\n{}", calls=(("get_weather", "{}"),), tools=True),
    Case("functionary-v3.2", "Hello\n{}", "Hello\n{}", tools=True),
    Case("functionary-v3.2", "Hello there", "Hello there"),
    # Values in tags.
    Case("qwen3-coder", "<function=f>\n</function>", calls=(("f", "{}"),)),
    Case("qwen3-coder", "<tool_call><function=f><parameter=a>1</parameter></function></tool_call>Hi", "Hi",
        calls=(("f", '{"a": 1}'),)),
    Case("qwen3-coder", "<function=get_weather><parameter=city>1</parameter></function>",
        calls=(("get_weather", '{"city": "1"}'),), tools=True),
    Case("qwen3-coder", "<function=get_weather><parameter=city>\n\n1\n\n</parameter></function>",
        calls=(("get_weather", '{"city": "\\n1\\n"}'),), tools=True),
    Case("qwen3-coder", "<function=get_weather><parameter=city>Zü", calls=(("get_weather",
        '…{"city": "Zü'),), tools=True),
    Case("qwen3-coder", "<function=get_weather><parameter=days>3", calls=(("get_weather", '…{"days": 3'),),
        tools=True),
    Case("qwen3-coder", "<function=f><parameter=a>1</parameter>x</function>", "x</function>", calls=(("f",
        '…{"a": 1'),)),
    Case("qwen3-coder", "<function=f>x</function>", "<function=f>x</function>"),
    Case("qwen3-coder", "<tool_call>\n<function=f", "<tool_call>\n<function=f"),
    Case("glm", "<tool_call>f</tool_call>", calls=(("f", "{}"),)),
    Case("glm", "<tool_call>f\n<arg_key>a</arg_key>x", "<tool_call>f\n<arg_key>a</arg_key>x"),
    Case("seed-oss",
        "<seed:tool_call><function=f><parameter=a>{'b': [True, None, 'c\"']}</parameter></function>",
            calls=(("f", '{"a": {"b": [true, null, "c\\""]}}'),)),
    Case("lfm2", "<|tool_call_start|>[f(), g(a='x')]<|tool_call_end|>Hi", "Hi", calls=(("f", "{}"), ("g",
        '{"a": "x"}'))),
    Case("lfm2", r"<|tool_call_start|>[f(a='it\'s, (x)')]", calls=(("f", '{"a": "it\'s, (x)"}'),)),
    Case("lfm2", "<|tool_call_start|>[f(a='x', b=)]", ", b=)]", calls=(("f", '…{"a": "x"'),)),
    Case("lfm2", "<|tool_call_start|>[f(1)]", "<|tool_call_start|>[f(1)]"),
    Case("mistral", "[TOOL_CALLS]f{}", "[TOOL_CALLS]f{}"),
    Case("plain", "<think>so</think>{}", "{}", "so"),
)  # fmt: skip
