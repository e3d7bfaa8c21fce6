"""Parser of template statements: one row a tag."""

from __future__ import annotations

from dataclasses import dataclass

from camelid.text import template_ast as ast
from camelid.text.template_expressions import ExpressionParser
from camelid.text.template_lexer import Lexer, Token
from camelid.text.template_values import trusted


@dataclass(frozen=True, slots=True)
class Parsed:
    """A template's statements, and the names that it reads before it sets them."""

    body: ast.Body
    variables: frozenset[str]


def parse(source: str) -> Parsed:
    """Parse a template. Raises TemplateError with the line of the fault."""
    parser = Parser(list(Lexer(source).tokens()))
    body, _ = parser.body()
    return Parsed(body, frozenset(parser.reads))


class Parser(ExpressionParser):
    """Reads statements up to the tags that end them."""

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__(tokens)
        self.loops = 0

    def body(self, *ends: str) -> tuple[ast.Body, str]:
        """Statements up to a tag in `ends`, or to the end of the source; that tag's name is consumed."""
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
            raise self.fail(f"the template ends within a tag that wants {' or '.join(ends)}")
        self.depth -= 1
        return tuple(found), ""

    def statement(self, line: int, name: str) -> ast.Statement:
        if name not in STATEMENTS:
            raise self.fail(f"unknown tag {name!r}; known: {', '.join(STATEMENTS)}")
        statement = STATEMENTS[name](self, line)
        self.expect("end")
        return statement

    def block(self, *ends: str) -> tuple[ast.Body, str]:
        """The end of this tag, then statements up to a tag in `ends`."""
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
        target = self.names()
        self.expect("name", "in")
        values = self.tuple(conditional=False)
        self.bound.append({"loop"} | set((target,) if isinstance(target, str) else target))
        condition = self.expression() if self.skip("name", "if") else None
        if self.at("name", "recursive"):
            raise self.fail("recursive loops are not supported; use a macro")
        self.loops += 1
        body, end = self.block("else", "endfor")
        self.loops -= 1
        self.bound.pop()
        otherwise = self.block("endfor")[0] if end == "else" else ()
        return ast.For(line, target, values, condition, body, otherwise)

    def names(self) -> str | tuple[str, ...]:
        """The target of a loop or of `set`: a name, or names with commas between."""
        bracket = self.skip("op", "(")
        names = [self.expect("name")]
        while (comma := self.skip("op", ",")) and self.at("name"):
            names.append(self.next().value)
        if bracket:
            self.expect("op", ")")
        return tuple(names) if len(names) > 1 or comma else names[0]

    def set_(self, line: int) -> ast.Statement:
        target: ast.Target = self.names()
        if isinstance(target, str) and self.skip("op", "."):
            target = ast.Attr(line, ast.Name(line, target), self.expect("name"))
        if self.skip("op", "="):
            node = ast.Set(line, target, self.tuple())
        else:
            node = ast.Set(line, target, None, self.block("endset")[0])
        if not isinstance(target, ast.Attr):
            self.bound[-1].update((target,) if isinstance(target, str) else target)
        return node

    def macro(self, line: int) -> ast.Statement:
        name = self.expect("name")
        self.expect("op", "(")
        params: list[tuple[str, ast.Expr | None]] = []
        while not self.skip("op", ")"):
            param = self.expect("name")
            params.append((param, self.expression() if self.skip("op", "=") else None))
            if not self.at("op", ")"):
                self.expect("op", ",")
        self.bound[-1].add(name)
        self.bound.append({param for param, _ in params})
        loops, self.loops = self.loops, 0
        body = self.block("endmacro")[0]
        self.loops = loops
        self.bound.pop()
        return ast.Macro(line, name, tuple(params), body)

    def filter_(self, line: int) -> ast.Statement:
        name = self.expect("name")
        args = self.args() if self.skip("op", "(") else ast.Args()
        return ast.Group(line, self.block("endfilter")[0], name, args)

    def generation(self, line: int) -> ast.Statement:
        """transformers marks the assistant's text with it, for training; it prints its body."""
        return ast.Group(line, self.block("endgeneration")[0])

    def jump(self, line: int) -> ast.Statement:
        kind = self.tokens[self.index - 1].value
        if not self.loops:
            raise self.fail(f"{kind} outside of a loop")
        return ast.Jump(line, kind)


STATEMENTS = {
    "if": Parser.if_,
    "for": Parser.for_,
    "set": Parser.set_,
    "macro": Parser.macro,
    "filter": Parser.filter_,
    "generation": Parser.generation,
    "break": Parser.jump,
    "continue": Parser.jump,
}
