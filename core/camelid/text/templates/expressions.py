"""Parser of template expressions: Jinja's precedence, from `a if b else c` down to filters and subscripts."""

from __future__ import annotations

from camelid.errors import TemplateError
from camelid.text.templates import ast
from camelid.text.templates.lexer import Token, unescape
from camelid.text.templates.values import MAX_INT_BITS, trusted

MAX_NESTING = 40  # of brackets, operators and tags; each level needs up to 15 Python frames

CONSTANTS: dict[str, object] = {
    "true": True, "false": False, "none": None, "True": True, "False": False, "None": None,
}  # fmt: skip
COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}
# From loose to tight. Each level is left-associative, as in Jinja, where ** is left-associative too.
BINARY_LEVELS: tuple[tuple[str, ...], ...] = (("+", "-"), ("~",), ("*", "/", "//", "%"), ("**",))
# A test accepts an argument without brackets if it begins with one of these kinds.
ARGUMENT_KINDS = {"name", "string", "number"}
NO_ARGUMENT = {"else", "or", "and"}


class ExpressionParser:
    """Parses expressions from a list of tokens."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.index = 0
        self.depth = 0
        self.reads: set[str] = set()
        self.bound: list[set[str]] = [set()]  # names set so far, by scope

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    @property
    def line(self) -> int:
        return self.token.line

    @property
    def following(self) -> tuple[str, str]:
        """Kind and value of the next token."""
        token = self.tokens[min(self.index + 1, len(self.tokens) - 1)]
        return token.kind, token.value

    def fail(self, message: str) -> TemplateError:
        return TemplateError(f"template line {self.line}: {message}", line=self.line)

    def next(self) -> Token:
        token = self.token
        self.index += token.kind != "eof"
        return token

    def at(self, kind: str, *values: str) -> bool:
        return self.token.kind == kind and (not values or self.token.value in values)

    def skip(self, kind: str, *values: str) -> bool:
        """Skips the current token if it matches; returns True if it did."""
        found = self.at(kind, *values)
        self.index += found
        return found

    def expect(self, kind: str, *values: str) -> str:
        if not self.at(kind, *values):
            raise self.fail(
                f"found {self.token.value or 'the end'!r}, expected {' or '.join(values) or kind}"
            )
        return self.next().value

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.fail(f"nested more than {MAX_NESTING} deep")

    def expression(self, conditional: bool = True) -> ast.Expr:
        """Parses one expression; without `conditional`, a following `if` is left to the caller."""
        self.enter()
        line, value = self.line, self.either()
        while conditional and self.skip("name", "if"):
            test = self.either()
            no = self.expression() if self.skip("name", "else") else None
            value = ast.Choice(line, test, value, no)
        self.depth -= 1
        return value

    def tuple(self, conditional: bool = True) -> ast.Expr:
        """Parses expressions separated by commas, without brackets; a single expression stays alone."""
        line, items = self.line, [self.expression(conditional)]
        while (comma := self.skip("op", ",")) and not self.at("end"):
            items.append(self.expression(conditional))
        return ast.Items(line, tuple(items), is_tuple=True) if len(items) > 1 or comma else items[0]

    def either(self) -> ast.Expr:
        line, value = self.line, self.both()
        while self.skip("name", "or"):
            value = ast.Logic(line, "or", value, self.both())
        return value

    def both(self) -> ast.Expr:
        line, value = self.line, self.negation()
        while self.skip("name", "and"):
            value = ast.Logic(line, "and", value, self.negation())
        return value

    def negation(self) -> ast.Expr:
        line = self.line
        if not self.skip("name", "not"):
            return self.comparison()
        self.enter()
        value = ast.Unary(line, "not", self.negation())
        self.depth -= 1
        return value

    def comparison(self) -> ast.Expr:
        line, first = self.line, self.binary(0)
        rest: list[tuple[str, ast.Expr]] = []
        while op := self.comparison_op():
            rest.append((op, self.binary(0)))
        return ast.Compare(line, first, tuple(rest)) if rest else first

    def comparison_op(self) -> str | None:
        if self.token.kind == "op" and self.token.value in COMPARISONS:
            return self.next().value
        if self.skip("name", "in"):
            return "in"
        if self.at("name", "not") and self.following == ("name", "in"):
            self.index += 2
            return "not in"
        return None

    def binary(self, level: int) -> ast.Expr:
        if level == len(BINARY_LEVELS):
            return self.unary()
        line, value = self.line, self.binary(level + 1)
        while self.at("op", *BINARY_LEVELS[level]):
            op = self.next().value
            parts = [value, self.binary(level + 1)]
            while op == "~" and self.skip("op", "~"):
                parts.append(self.binary(level + 1))
            value = ast.Concat(line, tuple(parts)) if op == "~" else ast.Binary(line, op, *parts)
        return value

    def unary(self, filters: bool = True) -> ast.Expr:
        line = self.line
        if self.at("op", "-", "+"):
            self.enter()
            op = self.next().value
            value: ast.Expr = ast.Unary(line, op, self.unary(filters=False))
            self.depth -= 1
        else:
            value = self.postfix(self.primary())
        return self.filters(value) if filters else value

    def primary(self) -> ast.Expr:
        token = self.next()
        match token.kind:
            case "name":
                return self.name(token)
            case "string":
                return self.string(token)
            case "number":
                return ast.Const(token.line, self.number(token.value))
            case "op" if token.value in BRACKETS:
                return BRACKETS[token.value](self, token.line)
            case _:
                self.index -= token.kind != "eof"
                raise self.fail(f"found {token.value or 'the end'!r}, expected a value")

    def name(self, token: Token) -> ast.Expr:
        if token.value in CONSTANTS:
            return ast.Const(token.line, CONSTANTS[token.value])
        if not any(token.value in names for names in self.bound):
            self.reads.add(token.value)
        return ast.Name(token.line, token.value)

    def string(self, token: Token) -> ast.Expr:
        value = unescape(token.value)
        while self.at("string"):
            value += unescape(self.next().value)
        return ast.Const(token.line, trusted(value))

    def number(self, text: str) -> int | float:
        digits = text.replace("_", "")
        if len(digits) > MAX_INT_BITS // 4:
            raise self.fail(f"the number {digits[:20]}… is too long")
        return int(digits) if digits.isdecimal() else float(digits)

    def list(self, line: int) -> ast.Expr:
        return ast.Items(line, self.items("]"))

    def group(self, line: int) -> ast.Expr:
        if self.skip("op", ")"):
            return ast.Items(line, (), is_tuple=True)
        first = self.expression()
        if self.skip("op", ")"):
            return first
        self.expect("op", ",")
        return ast.Items(line, (first, *self.items(")")), is_tuple=True)

    def items(self, closer: str) -> tuple[ast.Expr, ...]:
        items: list[ast.Expr] = []
        while not self.skip("op", closer):
            items.append(self.expression())
            if not self.at("op", closer):
                self.expect("op", ",")
        return tuple(items)

    def dict(self, line: int) -> ast.Expr:
        pairs: list[tuple[ast.Expr, ast.Expr]] = []
        while not self.skip("op", "}"):
            key = self.expression()
            self.expect("op", ":")
            pairs.append((key, self.expression()))
            if not self.at("op", "}"):
                self.expect("op", ",")
        return ast.Pairs(line, tuple(pairs))

    def postfix(self, value: ast.Expr) -> ast.Expr:
        while True:
            line = self.line
            if self.skip("op", "."):
                name = self.expect("number") if self.at("number") else self.expect("name")
                number = ast.Const(line, int(name)) if name.isdecimal() else None
                value = ast.Item(line, value, number) if number else ast.Attr(line, value, name)
            elif self.skip("op", "["):
                value = self.subscript(line, value)
            elif self.skip("op", "("):
                value = ast.Call(line, value, self.args())
            else:
                return value

    def subscript(self, line: int, value: ast.Expr) -> ast.Expr:
        bounds: list[ast.Expr | None] = [None]
        while not self.skip("op", "]"):
            if self.skip("op", ":"):
                bounds.append(None)
            elif bounds[-1] is None:
                bounds[-1] = self.expression()
            else:
                self.expect("op", ":", "]")
        if len(bounds) == 1 and bounds[0] is not None:
            return ast.Item(line, value, bounds[0])
        if len(bounds) not in (2, 3):
            raise self.fail("a subscript is one value, or a slice of two or three")
        start, stop, step = (*bounds, None)[:3]
        return ast.Slice(line, value, (start, stop, step))

    def args(self) -> ast.Args:
        """Parses arguments up to and including the closing bracket."""
        positional: list[ast.Expr] = []
        named: list[tuple[str, ast.Expr]] = []
        rest: dict[str, ast.Expr] = {}
        while not self.skip("op", ")"):
            if self.at("op", "*", "**"):
                stars = self.next().value
                if stars in rest or "**" in rest:
                    raise self.fail(f"unexpected {stars}")
                rest[stars] = self.expression()
            elif self.at("name") and self.following == ("op", "="):
                name = self.next().value
                self.index += 1
                named.append((name, self.expression()))
            elif named or rest:
                raise self.fail("a positional argument follows a named one")
            else:
                positional.append(self.expression())
            if not self.at("op", ")"):
                self.expect("op", ",")
        return ast.Args(tuple(positional), tuple(named), rest.get("*"), rest.get("**"))

    def filters(self, value: ast.Expr) -> ast.Expr:
        while True:
            line = self.line
            if self.skip("op", "|"):
                value = self.filter(line, value)
            elif self.skip("name", "is"):
                value = self.test(line, value)
            elif self.skip("op", "("):
                value = ast.Call(line, value, self.args())
            else:
                return value

    def filter(self, line: int, value: ast.Expr) -> ast.Expr:
        name = self.expect("name")
        return ast.Filter(line, value, name, self.args() if self.skip("op", "(") else ast.Args())

    def test(self, line: int, value: ast.Expr) -> ast.Expr:
        negated = self.skip("name", "not")
        name, args = self.expect("name"), ast.Args()
        if self.at("name", "is"):
            raise self.fail("tests do not chain; put the first test in brackets")
        if self.skip("op", "("):
            args = self.args()
        elif self.at("op", "[", "{") or (
            self.token.kind in ARGUMENT_KINDS and not self.at("name", *NO_ARGUMENT)
        ):
            args = ast.Args((self.postfix(self.primary()),))
        test = ast.Test(line, value, name, args)
        return ast.Unary(line, "not", test) if negated else test


BRACKETS = {"(": ExpressionParser.group, "[": ExpressionParser.list, "{": ExpressionParser.dict}
