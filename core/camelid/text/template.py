"""Chat templates: the Jinja subset that models publish, rendered to text that knows who wrote it.

A rendering is a list of (text, trusted) spans. What the template itself wrote is trusted, what came with the
request is not, so `tokenizer.encode_spans` makes control tokens of the former only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from camelid.errors import RequestError, TemplateError
from camelid.text import template_ast as ast
from camelid.text.template_eval import GLOBALS, Evaluator
from camelid.text.template_parser import parse
from camelid.text.template_values import Bound, Budget, runs, trusted

MAX_STEPS = 1_000_000
MAX_BYTES = 16 << 20
# Variables from the model's file, whose text is trusted: never to be taken from a request.
TOKEN_VARIABLES = frozenset({"bos_token", "eos_token", "pad_token", "unk_token"})
FUNCTION_VARIABLES = frozenset({"strftime_now"})
# What every template may be given, whether it reads it or not.
STANDARD = {"messages", "tools", "documents", "add_generation_prompt"} | TOKEN_VARIABLES | FUNCTION_VARIABLES


class Template:
    """A parsed template. `variables` are the names that it reads beyond the standard ones."""

    def __init__(self, body: ast.Body, variables: frozenset[str], budget: tuple[int, int]) -> None:
        self._body = body
        self._budget = budget
        self.variables = variables - STANDARD - GLOBALS.keys() - {"loop"}

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = False,
        tools: Sequence[object] | None = None,
        documents: Sequence[object] | None = None,
        **variables: object,
    ) -> list[tuple[str, bool]]:
        """Render a conversation to (text, trusted) spans; neighbours differ in trust.

        Variables beyond the standard ones must be names that the template reads, else RequestError. Raises
        TemplateError, with the template's line, when it refuses the conversation (`raised` is true then),
        goes wrong, or uses more than its limits.
        """
        self._check(variables)
        context: dict[str, object] = {name: admitted(name, value) for name, value in variables.items()}
        context |= {"messages": list(messages), "add_generation_prompt": add_generation_prompt}
        context |= {"tools": tools, "documents": documents}
        budget = Budget(*self._budget)
        evaluator = Evaluator(context, budget)
        try:
            evaluator.run(self._body)
            return runs(budget.joined(evaluator.out))
        except TemplateError as error:
            raise at_line(evaluator.line, error.message, **error.facts) from error.__cause__
        except RecursionError:
            raise at_line(evaluator.line, "values are nested too deep") from None
        except MemoryError:
            raise at_line(evaluator.line, "there is not enough memory; shorten the conversation") from None
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise at_line(evaluator.line, f"{type(error).__name__}: {error}") from error

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


def admitted(name: str, value: object) -> object:
    """The value as the template sees it: tokens trusted, functions callable, the rest plain data."""
    if name in TOKEN_VARIABLES and isinstance(value, str):
        return trusted(value)
    if name in FUNCTION_VARIABLES and callable(value):
        return Bound(name, value)
    return value


def at_line(line: int, message: str, **facts: object) -> TemplateError:
    return TemplateError(f"template line {line}: {message}", **{**facts, "line": line})
