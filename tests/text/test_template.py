"""The template evaluator against jinja2: whitespace, expressions, statements, and whole chat templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from tests.text.conversations import CHATML, CONVERSATIONS, TOKENS, VARIABLES, strftime_now
from tests.text.jinja_oracle import oracle_render
from tests.text.template_cases import DATA, EXPRESSIONS, STATEMENTS

from camelid.errors import RequestError, TemplateError
from camelid.text.template import STANDARD, Template, compile_template
from camelid.text.template_filters import FILTERS
from camelid.text.template_tests import TESTS

TEMPLATES = [
    "HuggingFaceTB-SmolLM3-3B", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "google-gemma-2-2b-it",
    "ibm-granite-granite-3.3-2B-Instruct", "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct", "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Mistral-Nemo-Instruct-2407", "openai-gpt-oss-120b",
]  # fmt: skip
STANDARDS = {"tools": None, "documents": None, "add_generation_prompt": False, **TOKENS}


@cache
def compiled(source: str) -> Template:
    return compile_template(source)


def render(source: str, **context: Any) -> str:
    template = compiled(source)
    known = {k: v for k, v in context.items() if k in template.variables | STANDARD}
    messages = known.pop("messages", [])
    return "".join(text for text, _ in template.render(messages, strftime_now=strftime_now, **known))


def outcome(function: Callable[..., str], source: str, context: Mapping[str, object]) -> str | None:
    """What is printed, or None when it is refused: by jinja2, by Python under it, or by us."""
    try:
        return function(source, **context)
    except RequestError:
        raise
    except Exception:
        return None


def assert_same(source: str, context: Mapping[str, object]) -> str | None:
    want = outcome(oracle_render, source, context)
    assert outcome(render, source, context) == want, source
    return want


@pytest.mark.conformance
def test_expressions_print_what_jinja_prints() -> None:
    expressions = [e.strip() for line in EXPRESSIONS.strip().splitlines() for e in line.split(" | ")]
    results = [assert_same(f"[{{{{ {expression} }}}}]", DATA) for expression in expressions]
    refused = sum(result is None for result in results)
    assert len(results) > 270
    assert 20 < refused < 60


@pytest.mark.conformance
@pytest.mark.parametrize("source", STATEMENTS)
def test_statements_and_whitespace_print_what_jinja_prints(source: str) -> None:
    assert_same(source, DATA)


def test_every_filter_and_test_is_among_the_expressions() -> None:
    text = EXPRESSIONS + "".join(STATEMENTS)
    names = {name for name in FILTERS if f"|{name}" not in text}
    names |= {
        name for name in TESTS if name.isidentifier() and f" {name}" not in text and f"'{name}'" not in text
    }
    assert names <= {"le", "ge", "lt", "greaterthan", "callable", "count", "d", "sameas"}


def standing(template: str) -> dict[str, int]:
    rendered = {"equal": 0, "refused": 0}
    for conversation in CONVERSATIONS.values():
        for variables in VARIABLES.values():
            result = assert_same(template, {"messages": conversation, **STANDARDS, **variables})
            rendered["refused" if result is None else "equal"] += 1
    return rendered


@pytest.mark.conformance
def test_chatml_is_rendered_byte_for_byte() -> None:
    assert standing(CHATML)["equal"] > 100


@pytest.mark.conformance
@pytest.mark.parametrize("name", TEMPLATES)
def test_published_templates_are_rendered_byte_for_byte(name: str, shared: Path) -> None:
    source = (shared / "data" / "templates" / f"{name}.jinja").read_text("utf-8")
    assert standing(source)["equal"] > 35


@pytest.mark.conformance
def test_every_published_template_is_in_the_list(shared: Path) -> None:
    assert sorted(path.stem for path in (shared / "data" / "templates").glob("*.jinja")) == sorted(TEMPLATES)


def test_generation_marks_print_their_body() -> None:
    assert render("a{% generation %}b{{ 1 }}{% endgeneration %}c") == "ab1c"


def test_variables_are_the_names_read_before_they_are_set() -> None:
    source = (
        "{% if a is not defined %}{% set a = 1 %}{% endif %}{% set b = 2 %}{{ b }}"
        "{% for c in d %}{{ c }}{{ loop.index }}{% endfor %}{{ c }}{{ range(3) }}{{ messages }}"
        "{% macro m(p) %}{{ p }}{{ q }}{% endmacro %}{{ m(1) }}"
    )
    assert compile_template(source).variables == {"a", "d", "q", "c"}


def test_a_variable_that_the_template_does_not_read_is_refused() -> None:
    template = compile_template("{{ enable_thinking }}")
    assert template.render([], enable_thinking=True) == [("True", False)]
    for name in ("enable_thinkin", "range", "raise_exception", "loop"):
        with pytest.raises(
            RequestError, match=rf"does not read '{name}'; it reads: .*enable_thinking"
        ) as caught:
            template.render([], **cast("dict[str, Any]", {name: 1}))
        assert caught.value.facts["field"] == name


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("a\n\n{{ zz.a }}", 3, "'zz' is undefined"),
        ("{# \n #}\n{% for i in l %}\n{{ i|nope }}{% endfor %}", 4, "unknown filter 'nope'; known: abs"),
        ("{% macro m() %}\n{{ 1 / 0 }}\n{% endmacro %}\n\n{{ m() }}", 2, "ZeroDivisionError"),
        (
            "\n{{ raise_exception('roles must alternate') }}",
            2,
            "refuses this conversation: roles must alternate",
        ),
        ("\n{{ s|trim(1) }}", 2, "TypeError"),
    ],
)
def test_errors_while_rendering_name_the_line(source: str, line: int, message: str) -> None:
    template = compile_template(source)
    known: dict[str, Any] = {k: v for k, v in {"l": [1], "s": "s"}.items() if k in template.variables}
    with pytest.raises(TemplateError) as caught:
        template.render([], **known)
    assert caught.value.message.startswith(f"template line {line}: ")
    assert message in caught.value.message
    assert caught.value.facts["line"] == line


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("a\n{% if x %}\n{{ 1 +\n}}", 4, "expected a value"),
        ("\n\n{{ 'a' }", 3, "unexpected '}'"),
        ("\n\r\n{% include 'x' %}", 3, "unknown tag 'include'; known: if, for"),
        ("{# \n #}\n\n{{ 'open }}", 4, "unexpected character"),
        ("\n{% if x %}\n", 2, "ends within a tag that wants elif or else or endif"),
    ],
)
def test_errors_while_parsing_name_the_line(source: str, line: int, message: str) -> None:
    with pytest.raises(TemplateError, match=f"^template line {line}: .*") as caught:
        compile_template(source)
    assert message in caught.value.message
    assert caught.value.facts["line"] == line


def test_a_refusal_says_that_the_template_raised() -> None:
    with pytest.raises(TemplateError) as caught:
        compile_template("{{ raise_exception('no') }}").render([])
    assert caught.value.facts["raised"] is True
