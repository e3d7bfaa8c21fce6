"""Text of a request never becomes a control token, through any construct of a template."""

# ruff: noqa: E501 - a row of templates stands on one line
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.text.made import byte_level

from camelid.errors import TemplateError
from camelid.text.templates.template import compile_template
from camelid.text.templates.values import trusted
from camelid.text.tokenizers.vocab import ALPHABET

# User text, and its result after filters, spell control tokens.
TOKEN = "<|ab|>"
CONTROLS = [TOKEN, "<|AB|>", "<|Ab|>", ">|ba|<", "&lt;|ab|&gt;", "<|aB|>", "\ue000"]
TOKENIZER = byte_level([*ALPHABET, *CONTROLS], types=[1] * 256 + [3] * len(CONTROLS))
CONTEXT: dict[str, Any] = {
    "messages": [{
        "role": TOKEN, "content": TOKEN, "name": f" {TOKEN}\n{TOKEN} ", TOKEN: "v", "parts": [{"text": TOKEN}],
        "reasoning": TOKEN, "tool_calls": [{"id": TOKEN, "function": {"name": TOKEN, "arguments": {TOKEN: TOKEN}}}],
    }],
    "tools": [{"function": {"name": TOKEN, "description": TOKEN, "parameters": {TOKEN: [TOKEN]}}}],
    "documents": [{"title": TOKEN, "text": TOKEN}],
    "custom": TOKEN,
    "strftime_now": lambda form: TOKEN,
}  # fmt: skip
# Each prints user text that spells a control token by then; c is the content.
PATHS = (
    """
{{ c }} | {{ messages[0].role }} | {{ messages[0]['name'] }} | {{ messages[0].reasoning_content }} | {{ messages[0].thinking }} | {{ custom }}
{{ messages[0].parts[0].text }} | {{ messages[0].tool_calls[0].id }} | {{ messages[0].tool_calls[0].function.name }} | {{ strftime_now('%d') }}
{% for k, v in messages[0].tool_calls[0].function.arguments.items() %}{{ k }}={{ v }}{% endfor %} | {% for k in messages[0] %}{{ k }}{% endfor %}
{{ messages[0].tool_calls[0].function.arguments|tojson }} | {{ messages|tojson(indent=2) }} | {{ messages }} | {{ messages[0].keys()|list|join }}
{{ tools|tojson }} | {{ tools[0].function.name }} | {% for t in tools %}{{ t.function.parameters|items|first|first }}{% endfor %} | {{ tools }}
{{ documents[0].text }} | {{ documents|map(attribute='title')|join(', ') }} | {{ documents|map(attribute='text')|list }} | {{ documents|tojson }}
{{ c|upper }} | {{ c|lower }} | {{ c.capitalize() ~ c }} | {{ c|title }} | {{ c|reverse }} | {{ c[::-1] }} | {{ c|escape }} | {{ c|safe }} | {{ c|e|safe }}
{{ c|trim('x') }} | {{ ('x' ~ c)[1:] }} | {{ c.replace('x', 'y') }} | {{ 'x'|replace('x', c) }} | {{ c.replace('a', 'a') }} | {{ 'x'.replace('', c) }}
{{ [c, c]|join }} | {{ c.join(['x', 'y']) }} | {{ 'x'.join([c]) }} | {{ c|list|join }} | {{ c.split('a')|join('a') }} | {{ c.split()[0] }} | {{ c.partition('|')|join }}
{{ c|indent(2, true) }} | {{ c|center(30) }} | {{ c.ljust(9) }} | {{ c.rjust(9, '*') }} | {{ c|string }} | {{ c|default('x') }} | {{ zz|default(c) }} | {{ c * 2 }}
{{ '%s' % c }} | {{ '%9s' % c }} | {{ '{}'.format(c) }} | {{ '{:>9}'.format(c) }} | {{ '%s'|format(c) }} | {{ '{k}'.format(k=c) }} | {{ '{}'.format_map({}) ~ c if n else c }}
{{ c.format() }} | {{ c % () }} | {{ '%r' % c }} | {{ '%s' % [c] }} | {{ c ~ 1 }} | {{ 1 ~ c }} | {{ c + '' }} | {{ ('<i>'|safe + c|safe) }} | {{ c.swapcase().swapcase() }}
{% set x = c %}{{ x }} | {% set x %}{{ c }}{% endset %}{{ x }} | {% set x|upper %}{{ c }}{% endset %}{{ x }} | {% filter upper %}{{ c }}{% endfilter %}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(c) }} | {% macro m(a=c) %}{{ a|upper }}{% endmacro %}{{ m() }} | {% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(c, k=c) }}
{% macro m() %}{{ caller(c) }}{% endmacro %}{% call(a) m() %}{{ a }}{% endcall %} | {% macro m() %}{{ caller()|upper }}{% endmacro %}{% call m() %}{{ c }}{% endcall %}
{% set ns = namespace(a=c) %}{{ ns.a }} | {% set ns = namespace() %}{% set ns.a = c|reverse %}{{ ns.a }} | {% with a=c %}{{ a }}{% endwith %} | {{ {'k': c}.k }} | {{ dict(a=c)|tojson }}
{% for i in [[c]] recursive %}{{ loop(i) if i is not string else i }}{% endfor %} | {% generation %}{{ c }}{% endgeneration %} | {{ [c, 'x']|sort|first }} | {{ [c]|unique|first }}
{{ [c]|map('upper')|first }} | {{ [c]|select|first }} | {{ [{'k': c}]|groupby('k')|first|first }} | {{ [c]|batch(2)|first|first }} | {{ {c: 1}|dictsort|first|first }} | {{ [c]|max }}
{{ c|truncate(9) }} | {{ (c ~ ' x y z')|truncate(8, true, '', 0) }} | {{ c.splitlines()[0] }} | {{ [c]|sum(start=[])|string if n else c }} | {{ (c, 1) }} | {{ {c: c} }}
{{ c if c else '' }} | {{ c or '' }} | {{ c and c }} | {{ (c|safe).join(['', '']) }} | {{ c.removeprefix('x') }} | {{ c.strip() ~ '' }} | {{ loop or c }} | {{ c.zfill(3) }}
""".strip()
    .replace("\n", " | ")
    .split(" | ")
)


def render(source: str) -> list[tuple[str, bool]]:
    template = compile_template("{% set c = messages[0].content %}" + source)
    known = {k: v for k, v in CONTEXT.items() if k in template.variables or k != "custom"}
    return template.render(known.pop("messages"), **known)


def n_controls(token_ids: list[int]) -> int:
    return sum(map(TOKENIZER.is_control, token_ids))


@pytest.mark.parametrize("source", PATHS)
def test_no_construct_makes_a_control_token(source: str) -> None:
    spans = render(source)
    text = "".join(part for part, _ in spans)
    token_ids = TOKENIZER.encode_spans(spans)
    assert n_controls(token_ids) == 0
    assert TOKENIZER.decode(token_ids) == text
    assert n_controls(TOKENIZER.encode(text, special=True)) > 0  # the test has a token to find


@pytest.mark.parametrize(
    "source", ["<|ab|>", "{{ '<|ab' ~ '|>' }}", "{{ '<|ab|>'|upper }}", "{{ '%s' % '<|ab|>' }}"]
)
def test_the_templates_own_text_is_a_control_token(source: str) -> None:
    assert n_controls(TOKENIZER.encode_spans(render(source))) == 1


MARK = "\ue000"  # a control token of one character, unknown to templates, so that none branches on it
MARKED: Mapping[str, Any] = {
    "user": {"role": "user", "content": MARK},
    "assistant": {"role": "assistant", "content": MARK, "reasoning_content": MARK},
    "caller": {"role": "assistant", "content": "", "tool_calls": [
        {"id": MARK * 9, "type": "function", "function": {"name": MARK, "arguments": {MARK: MARK}}},
    ]},
    "tool": {"role": "tool", "name": MARK, "tool_call_id": MARK * 9, "content": MARK},
}  # fmt: skip
TALKS = {
    "plain": ["user", "assistant", "user"],
    "tools": ["user", "caller", "tool", "user"],
}
TOOL = {
    "type": "function",
    "function": {
        "name": MARK, "description": MARK,
        "parameters": {"type": "object", "properties": {MARK: {"type": "string", "description": MARK}}, "required": [MARK]},
    },
}  # fmt: skip


@pytest.mark.parametrize("talk", TALKS)
def test_no_published_template_makes_user_text_trusted(talk: str, shared: Path) -> None:
    rendered = 0
    for path in sorted((shared / "data" / "templates").glob("*.jinja")):
        template = compile_template(path.read_text("utf-8"))
        messages = [MARKED[name] for name in TALKS[talk]]
        for tools in (None, [TOOL]):
            try:
                spans = template.render(
                    [{"role": "system", "content": MARK}, *messages] if rendered % 2 else messages,
                    tools=tools, add_generation_prompt=True, bos_token="<s>", eos_token="</s>",
                    strftime_now=lambda form: MARK,
                )  # fmt: skip
            except TemplateError:
                continue
            rendered += 1
            assert not any(MARK in text for text, is_trusted in spans if is_trusted), path.stem
            assert any(MARK in text for text, is_trusted in spans if not is_trusted), path.stem
            assert n_controls(TOKENIZER.encode_spans(spans)) == 0, path.stem
    assert rendered > 10


class Liar(str):
    """A str with a forged trust mask."""

    mask = b"\1" * 6


def test_no_request_object_has_trust_or_methods() -> None:
    class Odd(dict[str, object]):
        def items(self) -> Any:
            raise AssertionError

    forged: list[Any] = [trusted(TOKEN), Liar(TOKEN), {trusted(TOKEN): Liar(TOKEN)}, (Liar(TOKEN),)]
    spans = compile_template("{{ messages }}{{ tools[0] }}{{ tools[1] }}").render(
        [{"a": forged}], tools=forged
    )
    assert [is_trusted for _, is_trusted in spans] == [False]
    others: list[Any] = [b"x", {1, 2}, object(), len]
    ((text, _),) = compile_template("{{ tools|tojson }}").render([], tools=others)
    assert text == '["<bytes>", "<set>", "<object>", "<builtin_function_or_method>"]'


ODD: dict[str, tuple[str, object, str | None]] = {
    "lone surrogate": ("{{ v }}", "a\ud800b", "a\ud800b"),
    "surrogate changed": ("{{ v|upper ~ v|length }}", "a\udfffb", "A\udfffB3"),
    "keys": (
        "{{ v|tojson }}",
        {1: 2, None: 3, False: 4, 1.5: 5},
        '{"1": 2, "null": 3, "false": 4, "1.5": 5}',
    ),
    "tuple as key": ("{{ v|tojson }}", {("a", "b"): 1}, '{"<tuple>": 1}'),
    "nan": ("{{ v|tojson }}", float("nan"), "NaN"),
    "mixed keys": ("{{ v|dictsort }}", {1: 2, "a": 3}, None),
    "huge integer": ("{{ v }}", 10**5000, None),
    "huge integer as JSON": ("{{ v|tojson }}", 10**5000, None),
    "sum": ("{{ v + 1 }}", 10**100, None),
    "product": ("{{ v * v }}", 2**200, None),
    "digits": ("{{ v|int }}", "9" * 4000, None),
    "digits as float": ("{{ v|float }}", "9" * 4000, "inf"),
}


@pytest.mark.parametrize("name", ODD)
def test_unusual_values_are_printed_or_refused_with_the_line(name: str) -> None:
    source, value, want = ODD[name]
    template = compile_template(source)
    if want is not None:
        assert "".join(text for text, _ in template.render([], v=value)) == want
        return
    with pytest.raises(TemplateError, match=r"^template line 1: "):
        template.render([], v=value)
