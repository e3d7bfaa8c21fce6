"""The template evaluator against jinja2: whitespace, expressions, statements, and whole chat templates."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.exhaustive import share_of
from tests.support.text.conversations import CHATML, CONVERSATIONS, contexts, digest, strftime_now
from tests.support.text.jinja_oracle import oracle_render
from tests.support.text.template_cases import DATA, EXPRESSIONS, STATEMENTS
from tests.support.text.template_fuzz import source as random_source

from camelid.errors import RequestError, TemplateError
from camelid.text.templates.filters import FILTERS
from camelid.text.templates.template import STANDARD, Template, compile_template
from camelid.text.templates.tests import TESTS

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "templates.json").read_text("utf-8"))
# Output with a memory address, and templates that jinja2 itself cannot compile.
ADDRESS = re.compile("object at 0x|reversed object|<Macro|<bound method|<built-in|<function|<class")


@cache
def compiled(source: str) -> Template:
    return compile_template(source)


def render(source: str, **context: Any) -> str:
    template = compiled(source)
    known = {k: v for k, v in context.items() if k in template.variables | STANDARD}
    messages = known.pop("messages", [])
    return "".join(text for text, _ in template.render(messages, strftime_now=strftime_now, **known))


def outcome(function: Callable[..., str], source: str, context: Mapping[str, object]) -> str | None:
    """The rendered text, or None for a refusal by jinja2, Python or Camelid."""
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


def compared(seed: int) -> str:
    """The comparison of a random template: "equal", "refused" by both, else its source."""
    source = random_source(seed)
    try:
        want = outcome(oracle_render, source, DATA)
    except RecursionError:
        return "refused"
    if want is not None and ADDRESS.search(want):
        return "refused"
    got = outcome(render, source, DATA)
    if got != want:
        return source
    return "refused" if want is None else "equal"


@pytest.mark.conformance
def test_expressions_equal_jinjas() -> None:
    expressions = [e.strip() for line in EXPRESSIONS.strip().splitlines() for e in line.split(" | ")]
    results = [assert_same(f"[{{{{ {expression} }}}}]", DATA) for expression in expressions]
    refused = sum(result is None for result in results)
    assert len(results) > 430
    assert 40 < refused < 90


@pytest.mark.conformance
@pytest.mark.parametrize("source", STATEMENTS)
def test_statements_and_whitespace_equal_jinjas(source: str) -> None:
    assert_same(source, DATA)


def test_every_filter_and_test_has_an_expression() -> None:
    text = EXPRESSIONS + "".join(STATEMENTS)
    names = {name for name in FILTERS if f"|{name}" not in text}
    names |= {
        name for name in TESTS if name.isidentifier() and f" {name}" not in text and f"'{name}'" not in text
    }
    assert names <= {"le", "ge", "lt", "greaterthan", "callable", "count", "d", "sameas"}


@pytest.mark.conformance
@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_chatml_is_rendered_byte_for_byte(conversation: str) -> None:
    for context in contexts(conversation):
        assert_same(CHATML, context)


@pytest.mark.conformance
@pytest.mark.parametrize("one_in", share_of([3, 1]))
@pytest.mark.parametrize("name", GOLDEN)
def test_published_templates_are_rendered_byte_for_byte(name: str, one_in: int, shared: Path) -> None:
    """Equal to jinja2's rendering now, and to transformers' in the golden file."""
    source = (shared / "data" / "templates" / f"{name}.jinja").read_text("utf-8")
    rendered = 0
    for conversation, want in [*GOLDEN[name].items()][::one_in]:
        found = [assert_same(source, context) for context in contexts(conversation)]
        rendered += sum(text is not None for text in found)
        assert digest(found) == want, conversation
    assert rendered > 60 // one_in


@pytest.mark.conformance
def test_every_published_template_and_conversation_is_in_the_golden_file(shared: Path) -> None:
    assert sorted(path.stem for path in (shared / "data" / "templates").glob("*.jinja")) == sorted(GOLDEN)
    assert all(row.keys() == CONVERSATIONS.keys() for row in GOLDEN.values())


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # Python's, from jinja2's code for 1[2]
def test_random_templates_render_like_jinja() -> None:
    counts = Counter(compared(seed) for seed in range(400))
    assert set(counts) == {"equal", "refused"}
    assert counts["equal"] > 240


@pytest.mark.parametrize(
    ("key", "others"), [("reasoning_content", {}), ("thinking", {}), ("reasoning", {"thinking": None})]
)
def test_reasoning_is_read_under_each_of_its_names(key: str, others: dict[str, object]) -> None:
    source = "{{ messages[0].reasoning_content }}{{ messages[0].thinking }}"
    rendered = compile_template(source).render([{key: "R", **others}])
    assert rendered == [("RNone" if others else "RR", False)]


def test_generation_spans_equal_the_assistants_text() -> None:
    source = (
        "<s>{% for m in messages %}{{ m.role }}: {% if m.role == 'a' %}{% generation %}{{ m.content }}\n"
        "{% endgeneration %}{% else %}{{ m.content }} {% endif %}{% endfor %}"
        "{% set x %}{% generation %}no{% endgeneration %}{% endset %}{{ x }}"
    )
    messages = [
        {"role": role, "content": text} for role, text in zip("uaua", ("q", "é1", "r", "two"), strict=True)
    ]
    rendering = compile_template(source).rendering(messages)
    text = "".join(span for span, _ in rendering.spans)
    assert [text[start:end] for start, end in rendering.generated] == ["é1\n", "two\n"]


def test_generation_marks_print_their_body() -> None:
    assert render("a{% generation %}b{{ 1 }}{% endgeneration %}c") == "ab1c"


def test_variables_are_the_names_read_before_assignment() -> None:
    source = (
        "{% if a is not defined %}{% set a = 1 %}{% endif %}{% set b = 2 %}{{ b }}"
        "{% for c in d %}{{ c }}{{ loop.index }}{% endfor %}{{ c }}{{ range(3) }}{{ messages }}"
        "{% macro m(p) %}{{ p }}{{ q }}{% endmacro %}{{ m(1) }}"
    )
    assert compile_template(source).variables == {"a", "d", "q", "c"}


def test_an_unread_variable_is_refused() -> None:
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
            "rejects this conversation: roles must alternate",
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
        ("\n\r\n{% include 'x' %}", 3, "the tag 'include' is not supported: a chat template is one file"),
        ("{# \n #}\n\n{{ 'open }}", 4, "unexpected character"),
        ("\n{% if x %}\n", 2, "ends within a tag that needs elif or else or endif"),
    ],
)
def test_errors_while_parsing_name_the_line(source: str, line: int, message: str) -> None:
    with pytest.raises(TemplateError, match=f"^template line {line}: .*") as caught:
        compile_template(source)
    assert message in caught.value.message
    assert caught.value.facts["line"] == line


def test_a_refusal_states_that_the_template_raised() -> None:
    with pytest.raises(TemplateError) as caught:
        compile_template("{{ raise_exception('no') }}").render([])
    assert caught.value.facts["raised"] is True
