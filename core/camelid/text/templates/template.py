"""Chat templates: parsed once, rendered to spans of trusted and untrusted text.

A rendering is a list of (text, trusted) spans. Text of the template itself is trusted, text of the request is
not: `Tokenizer.encode_spans` recognizes control tokens in trusted text only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from camelid.errors import RequestError, TemplateError
from camelid.text.templates import ast
from camelid.text.templates.inputs import (
    FUNCTION_VARIABLES,
    TOKEN_VARIABLES,
    admitted,
    conversation,
    plain,
)  # fmt: skip
from camelid.text.templates.parser import parse
from camelid.text.templates.scope import GLOBALS
from camelid.text.templates.statements import Renderer
from camelid.text.templates.values import Budget, runs

MAX_STEPS = 1_000_000
MAX_BYTES = 16 << 20
# Variables that every template accepts, whether it reads them or not.
STANDARD = {"messages", "tools", "documents", "add_generation_prompt"} | TOKEN_VARIABLES | FUNCTION_VARIABLES


@dataclass(frozen=True, slots=True)
class Rendering:
    """A rendered conversation as (text, trusted) spans; neighboring spans differ in trust.

    `generated` lists (start, end) in characters of the whole text: the parts in {% generation %} blocks,
    which the assistant wrote, for training on them alone. Blocks within a macro, a set block or a filter
    block are not listed.
    """

    spans: list[tuple[str, bool]]
    generated: list[tuple[int, int]]


class Template:
    """A parsed template. `variables` are the names that it reads beyond the standard variables."""

    def __init__(self, body: ast.Body, variables: frozenset[str], budget: tuple[int, int]) -> None:
        self._body = body
        self._budget = budget
        self.variables = variables - STANDARD - GLOBALS.keys() - {"loop"}

    def render(self, messages: Sequence[Mapping[str, object]], **variables: Any) -> list[tuple[str, bool]]:
        """The spans of `rendering`."""
        return self.rendering(messages, **variables).spans

    def rendering(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = False,
        tools: Sequence[object] | None = None,
        documents: Sequence[object] | None = None,
        **variables: object,
    ) -> Rendering:
        """Renders a conversation.

        A message's reasoning may be under the key reasoning_content, thinking or reasoning, as in
        transformers. Raises RequestError for a variable that the template does not read. Raises
        TemplateError, with the template's line, if the template rejects the conversation (its fact `raised`
        is True then), fails, or exceeds its limits.
        """
        self._check(variables)
        budget = Budget(*self._budget)
        context = {name: admitted(name, value, budget) for name, value in variables.items()}
        context |= {"messages": conversation(messages, budget)}
        context |= {"tools": plain(tools, budget), "documents": plain(documents, budget)}
        renderer = Renderer({**context, "add_generation_prompt": add_generation_prompt}, budget)
        try:
            renderer.run(self._body)
            return Rendering(runs(renderer.text()), renderer.generated())
        except TemplateError as error:
            raise at_line(renderer.line, error.message, **error.facts) from error.__cause__
        except RecursionError:
            raise at_line(renderer.line, "values are nested too deep") from None
        except MemoryError:
            raise at_line(renderer.line, "not enough memory; shorten the conversation") from None
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise at_line(renderer.line, f"{type(error).__name__}: {error}") from error

    def _check(self, variables: Mapping[str, object]) -> None:
        known = self.variables | STANDARD
        unknown = sorted(variables.keys() - known)
        if unknown:
            raise RequestError(
                f"the chat template does not read {unknown[0]!r}; it reads: {', '.join(sorted(known))}",
                field=unknown[0],
                known=sorted(known),
            )


def compile_template(source: str, *, max_steps: int = MAX_STEPS, max_bytes: int = MAX_BYTES) -> Template:
    """Parses a chat template. Raises TemplateError with the line of the error."""
    try:
        parsed = parse(source)
    except RecursionError:
        raise TemplateError("the template is nested too deep") from None
    return Template(parsed.body, parsed.variables, (max_steps, max_bytes))


def at_line(line: int, message: str, **facts: object) -> TemplateError:
    return TemplateError(f"template line {line}: {message}", **{**facts, "line": line})
