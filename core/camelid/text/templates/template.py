"""Chat templates: the Jinja subset that models publish, rendered to text that knows who wrote it.

A rendering is a list of (text, trusted) spans. What the template itself wrote is trusted, what came with the
request is not, so `tokenizer.encode_spans` makes control tokens of the former only.
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
# What every template may be given, whether it reads it or not.
STANDARD = {"messages", "tools", "documents", "add_generation_prompt"} | TOKEN_VARIABLES | FUNCTION_VARIABLES


@dataclass(frozen=True, slots=True)
class Rendering:
    """Text as (text, trusted) spans, of which neighbours differ in trust.

    `generated` are (start, end) in the whole text, in characters: what the template marks with
    {% generation %} as written by the assistant, for training on it alone. Blocks within a macro, a set
    block or a filter block are not among them.
    """

    spans: list[tuple[str, bool]]
    generated: list[tuple[int, int]]


class Template:
    """A parsed template. `variables` are the names that it reads beyond the standard ones."""

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
        """Render a conversation.

        As in transformers, a message's reasoning may be called reasoning_content, thinking or reasoning.
        Variables beyond the standard ones must be names that the template reads, else RequestError. Raises
        TemplateError, with the template's line, when it refuses the conversation (`raised` is true then),
        goes wrong, or uses more than its limits.
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
            raise at_line(renderer.line, "there is not enough memory; shorten the conversation") from None
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
    """Parse a chat template. Raises TemplateError with the line of the fault."""
    try:
        parsed = parse(source)
    except RecursionError:
        raise TemplateError("the template is nested too deep") from None
    return Template(parsed.body, parsed.variables, (max_steps, max_bytes))


def at_line(line: int, message: str, **facts: object) -> TemplateError:
    return TemplateError(f"template line {line}: {message}", **{**facts, "line": line})
