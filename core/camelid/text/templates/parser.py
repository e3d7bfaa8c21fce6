"""Parser of template statements, one table row per tag."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from camelid.text.templates import ast
from camelid.text.templates.expressions import CONSTANTS, ExpressionParser
from camelid.text.templates.lexer import Lexer, Token
from camelid.text.templates.values import trusted


@dataclass(frozen=True, slots=True)
class Parsed:
    """A template's statements, and the names that it reads before setting them."""

    body: ast.Body
    variables: frozenset[str]


def parse(source: str) -> Parsed:
    """Parses a template. Raises TemplateError with the line of the error."""
    parser = Parser(list(Lexer(source).tokens()))
    body, _ = parser.body()
    return Parsed(body, frozenset(parser.reads))


class Parser(ExpressionParser):
    """Parses statements up to the tags that end them."""

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__(tokens)
        self.loops = 0

    def body(self, *ends: str) -> tuple[ast.Body, str]:
        """Parses statements up to a tag in `ends`, consumed and returned by name, or to the end."""
        self.enter()
        found: list[ast.Statement] = []
        while not self.at("eof"):
            if self.at("text"):
                found.append(ast.Emit(self.line, ast.Const(self.line, trusted(self.next().value))))
                continue
            tag, line = self.expect("begin"), self.line
            if tag == "{{":
                found.append(ast.Emit(line, self.tuple()))
                self.expect("end")
                continue
            name = self.expect("name")
            if name in ends:
                self.depth -= 1
                return tuple(found), name
            found.append(self.statement(line, name))
        if ends:
            raise self.fail(f"the template ends within a tag that needs {' or '.join(ends)}")
        self.depth -= 1
        return tuple(found), ""

    def statement(self, line: int, name: str) -> ast.Statement:
        if name in REFUSED:
            raise self.fail(f"the tag {name!r} is not supported: {REFUSED[name]}")
        if name not in STATEMENTS:
            raise self.fail(f"unknown tag {name!r}; known: {', '.join(STATEMENTS)}")
        statement = STATEMENTS[name](self, line)
        self.expect("end")
        return statement

    def block(self, *ends: str) -> tuple[ast.Body, str]:
        """Parses the end of this tag, then statements up to a tag in `ends`."""
        self.expect("end")
        return self.body(*ends)

    def if_(self, line: int) -> ast.Statement:
        branches: list[tuple[ast.Expr, ast.Body]] = []
        end = "elif"
        while end == "elif":
            test = self.tuple(conditional=False)
            body, end = self.block("elif", "else", "endif")
            branches.append((test, body))
        otherwise = self.block("endif")[0] if end == "else" else ()
        return ast.If(line, tuple(branches), otherwise)

    def for_(self, line: int) -> ast.Statement:
        target = self.target()
        self.expect("name", "in")
        values = self.tuple(conditional=False)
        self.bound.append({"loop", *names_of(target)})
        condition = self.expression() if self.skip("name", "if") else None
        recursive = self.skip("name", "recursive")
        self.loops += 1
        body, end = self.block("else", "endfor")
        self.loops -= 1
        self.bound.pop()
        otherwise = self.block("endfor")[0] if end == "else" else ()
        return ast.For(line, target, values, condition, recursive, body, otherwise)

    def target(self) -> ast.Target:
        """Parses the target of a loop or `set`: names separated by commas, with optional brackets."""
        parts = [self.target_part()]
        while (comma := self.skip("op", ",")) and (self.at("name") or self.at("op", "(")):
            if self.at("name", "in"):
                break
            parts.append(self.target_part())
        return tuple(parts) if len(parts) > 1 or comma else parts[0]

    def target_part(self) -> ast.Target:
        if not self.skip("op", "("):
            return self.new_name()
        self.enter()
        target = self.target()
        self.expect("op", ")")
        self.depth -= 1
        return target

    def new_name(self) -> str:
        if self.token.value in CONSTANTS:
            raise self.fail(f"{self.token.value} is not a valid name")
        return self.expect("name")

    def set_(self, line: int) -> ast.Statement:
        target: ast.Target | ast.Attr = self.target()
        if isinstance(target, str) and self.skip("op", "."):
            target = ast.Attr(line, ast.Name(line, target), self.expect("name"))
        if self.skip("op", "="):
            node = ast.Set(line, target, self.tuple())
        else:
            filters = self.filter_chain() if self.skip("op", "|") else ()
            node = ast.Set(line, target, None, filters, self.block("endset")[0])
        if not isinstance(target, ast.Attr):
            self.bound[-1].update(names_of(target))
        return node

    def with_(self, line: int) -> ast.Statement:
        values: list[tuple[ast.Target, ast.Expr]] = []
        while not self.at("end"):
            if values:
                self.expect("op", ",")
            target = self.target_part()
            self.expect("op", "=")
            values.append((target, self.expression()))
        self.bound.append({name for target, _ in values for name in names_of(target)})
        body = self.block("endwith")[0]
        self.bound.pop()
        return ast.With(line, tuple(values), body)

    def macro(self, line: int) -> ast.Statement:
        name = self.new_name()
        self.expect("op", "(")
        node = self.macro_rest(line, name, self.params(), "endmacro")
        self.bound[-1].add(name)
        return node

    def params(self) -> ast.Params:
        """Parses parameters up to and including the closing bracket."""
        params: list[tuple[str, ast.Expr | None]] = []
        while not self.skip("op", ")"):
            name = self.new_name()
            default = self.expression() if self.skip("op", "=") else None
            if params and params[-1][1] and not default:
                raise self.fail(f"parameter {name!r} needs a default, since the previous parameter has one")
            params.append((name, default))
            if not self.at("op", ")"):
                self.expect("op", ",")
        return tuple(params)

    def macro_rest(self, line: int, name: str, params: ast.Params, end: str) -> ast.Macro:
        """Parses the body of a macro, from which no enclosing loop can be left."""
        self.bound.append({name, *EXTRAS, *(param for param, _ in params)})
        start, loops, self.loops = self.index, self.loops, 0
        body = self.block(end)[0]
        read = {token.value for token in self.tokens[start : self.index] if token.kind == "name"}
        self.loops = loops
        self.bound.pop()
        return ast.Macro(line, name, params, frozenset(EXTRAS & read), body)

    def call_block(self, line: int) -> ast.Statement:
        params = self.params() if self.skip("op", "(") else ()
        call = self.expression()
        if not isinstance(call, ast.Call):
            raise self.fail("expected the call of a macro")
        return ast.CallBlock(line, call, self.macro_rest(line, "caller", params, "endcall"))

    def filter_block(self, line: int) -> ast.Statement:
        return ast.FilterBlock(line, self.filter_chain(), self.block("endfilter")[0])

    def filter_chain(self) -> ast.Filters:
        """Parses filters separated by |."""
        found: list[tuple[str, ast.Args]] = []
        while not found or self.skip("op", "|"):
            found.append((self.expect("name"), self.args() if self.skip("op", "(") else ast.Args()))
        return tuple(found)

    def print_(self, line: int) -> ast.Statement:
        value = self.tuple()
        parts = value.items if isinstance(value, ast.Items) and value.is_tuple else (value,)
        return ast.Emit(line, ast.Concat(line, parts))

    def generation(self, line: int) -> ast.Statement:
        loops, self.loops = self.loops, 0
        node = ast.Generation(line, self.block("endgeneration")[0])
        self.loops = loops
        return node

    def jump(self, line: int) -> ast.Statement:
        kind = self.tokens[self.index - 1].value
        if not self.loops:
            raise self.fail(f"{kind} outside of a loop")
        return ast.Jump(line, kind)


def names_of(target: ast.Target) -> Iterator[str]:
    if isinstance(target, str):
        yield target
        return
    for part in target:
        yield from names_of(part)


EXTRAS = frozenset({"caller", "varargs", "kwargs"})
STATEMENTS = {
    "if": Parser.if_, "for": Parser.for_, "set": Parser.set_, "with": Parser.with_, "macro": Parser.macro,
    "call": Parser.call_block, "filter": Parser.filter_block, "generation": Parser.generation,
    "print": Parser.print_, "break": Parser.jump, "continue": Parser.jump,
}  # fmt: skip
# Jinja's tags that chat templates do not support, with the reason.
REFUSED = {
    **dict.fromkeys(("include", "import", "from", "extends"), "a chat template is one file"),
    **dict.fromkeys(
        ("block", "autoescape", "trans", "do", "debug"), "transformers' templates do not have it"
    ),
}
