"""Evaluator of a template's tree. One row a node type; every node costs a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

from camelid.errors import TemplateError
from camelid.text import template_ast as ast
from camelid.text.template_filters import filter_named
from camelid.text.template_methods import OPERATORS, arithmetic, methods
from camelid.text.template_tests import TESTS, test_named
from camelid.text.template_values import (
    Bound,
    Budget,
    Namespace,
    Undefined,
    checked_key,
    cut,
    is_dict,
    is_list,
    iterated,
    shown,
)  # fmt: skip

# Nested calls of macros, times the nesting within one; each level is two or three Python frames.
MAX_DEPTH = 200


class Scope:
    """Names of one body, and the scope around it. `set` writes to the innermost only."""

    __slots__ = ("outer", "values")

    def __init__(self, values: dict[str, object], outer: Scope | None = None) -> None:
        self.values = values
        self.outer = outer

    def get(self, name: str) -> object:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return Undefined(repr(name))


class Loop:
    """The `loop` of one `for`."""

    def __init__(self, values: list[object]) -> None:
        self.values = values
        self.index0 = 0

    def neighbour(self, distance: int) -> object:
        index = self.index0 + distance
        return (
            self.values[index]
            if 0 <= index < len(self.values)
            else Undefined("the item beyond the loop's end")
        )

    def cycle(self, *values: object) -> object:
        return values[self.index0 % len(values)]


LOOP: dict[str, Callable[[Loop], object]] = {
    "index": lambda loop: loop.index0 + 1,
    "index0": lambda loop: loop.index0,
    "revindex": lambda loop: len(loop.values) - loop.index0,
    "revindex0": lambda loop: len(loop.values) - loop.index0 - 1,
    "first": lambda loop: loop.index0 == 0,
    "last": lambda loop: loop.index0 == len(loop.values) - 1,
    "length": lambda loop: len(loop.values),
    "previtem": lambda loop: loop.neighbour(-1),
    "nextitem": lambda loop: loop.neighbour(1),
    "cycle": lambda loop: Bound("cycle", loop.cycle),
}


def raise_exception(message: object = "") -> None:
    """The template refuses the conversation."""
    raise TemplateError(f"the chat template refuses this conversation: {message}", raised=True)


def make_range(*bounds: int) -> range:
    return range(*bounds)


def make_namespace(values: Mapping[str, object] | None = None, /, **named: object) -> Namespace:
    return Namespace({**(values or {}), **named})


def make_dict(**named: object) -> dict[str, object]:
    return named


GLOBALS: dict[str, object] = {
    "raise_exception": Bound("raise_exception", raise_exception),
    "range": Bound("range", make_range),
    "namespace": Bound("namespace", make_namespace),
    "dict": Bound("dict", make_dict),
}


class Evaluator:
    """One rendering: its scopes, its output so far, and what it may still use."""

    def __init__(self, context: dict[str, object], budget: Budget) -> None:
        self.scope = Scope(context, Scope(GLOBALS))
        self.budget = budget
        self.out: list[str] = []
        self.out_bytes = 0
        self.depth = 0
        self.line = 0

    def value(self, node: ast.Expr) -> object:
        """The value of an expression."""
        self.enter(node.line)
        value = EXPRESSIONS[type(node)](self, node)
        self.depth -= 1
        return value

    def run(self, body: ast.Body) -> str | None:
        """Execute statements; "break" or "continue" when one of them leaves the loop's body."""
        for node in body:
            self.enter(node.line)
            jump = STATEMENTS[type(node)](self, node)
            self.depth -= 1
            if jump:
                return jump
        return None

    def enter(self, line: int) -> None:
        self.budget.spend()
        self.line = line
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TemplateError(f"the template nests more than {MAX_DEPTH} deep", limit=MAX_DEPTH)

    def captured(self, body: ast.Body, scope: Scope) -> str:
        """What a body prints, with names of its own."""
        before = self.scope, self.out, self.out_bytes
        self.scope, self.out, self.out_bytes = scope, [], 0
        self.run(body)
        text = self.budget.joined(self.out)
        self.scope, self.out, self.out_bytes = before
        return text

    # Expressions.

    def const(self, node: ast.Const) -> object:
        return node.value

    def name(self, node: ast.Name) -> object:
        return self.scope.get(node.name)

    def items(self, node: ast.Items) -> object:
        values = [self.value(item) for item in node.items]
        return tuple(values) if node.is_tuple else values

    def pairs(self, node: ast.Pairs) -> object:
        return {checked_key(self.value(key)): self.value(value) for key, value in node.pairs}

    def attr(self, node: ast.Attr) -> object:
        return self.attribute(self.value(node.value), node.name)

    def attribute(self, value: object, name: str) -> object:
        """A method, else an item of a dict; never an attribute of a Python object."""
        if isinstance(value, Undefined):
            raise value.fail()
        if isinstance(value, Loop) and name in LOOP:
            return LOOP[name](value)
        if isinstance(value, Namespace):
            return value.values.get(name, Undefined(f"attribute {name!r} of a namespace"))
        method = methods(value).get(name)
        if method:
            self.budget.read(value)
            return Bound(name, partial(method, value, self.budget))
        if is_dict(value) and name in value:
            return value[name]
        if name.startswith("__"):
            raise TemplateError(f"attribute {name!r} is not for templates", name=name)
        return Undefined(f"attribute {name!r}")

    def item(self, node: ast.Item) -> object:
        value, key = self.value(node.value), self.value(node.key)
        if isinstance(value, Undefined):
            raise value.fail()
        if is_list(key) or is_dict(key):
            return Undefined(f"the item with a {type(key).__name__} as its key")
        if is_dict(value) and key in value:
            return value[key]
        if isinstance(key, str):
            return self.attribute(value, key)  # as in Jinja: a missing key may still be a method
        return self.at(value, key)

    def at(self, value: object, index: object) -> object:
        if not isinstance(index, int) or not (is_list(value) or isinstance(value, str | range)):
            return Undefined(f"item {shown(index, self.budget)}")
        if -len(value) <= index < len(value):
            return cut(value, slice(index, index + 1 or None)) if isinstance(value, str) else value[index]
        return Undefined(f"item {shown(index, self.budget)}")

    def slice(self, node: ast.Slice) -> object:
        value = self.value(node.value)
        start, stop, step = (None if bound is None else self.value(bound) for bound in node.bounds)
        where = slice(cast(Any, start), cast(Any, stop), cast(Any, step))
        if isinstance(value, Undefined):
            raise value.fail()
        if isinstance(value, str):
            self.budget.text(len(value))
            return cut(value, where)
        if not is_list(value):
            raise TemplateError(f"a {type(value).__name__} has no slices")
        self.budget.spend(len(value))
        return value[where]

    def args(self, args: ast.Args) -> tuple[list[object], dict[str, object]]:
        return [self.value(a) for a in args.positional], {name: self.value(a) for name, a in args.named}

    def call(self, node: ast.Call) -> object:
        function = self.value(node.function)
        if isinstance(function, Undefined):
            raise function.fail()
        if not isinstance(function, Bound):
            raise TemplateError(f"a {type(function).__name__} cannot be called")
        positional, named = self.args(node.args)
        self.line = node.line
        return function.function(*positional, **named)

    def filter(self, node: ast.Filter) -> object:
        value = self.value(node.value)
        positional, named = self.args(node.args)
        self.line = node.line
        self.budget.read(value)
        return filter_named(node.name)(value, self.budget, *positional, **named)

    def test(self, node: ast.Test) -> object:
        value = self.value(node.value)
        positional, named = self.args(node.args)
        self.line = node.line
        return test_named(node.name)(value, self.budget, *positional, **named)

    def unary(self, node: ast.Unary) -> object:
        value = self.value(node.value)
        if node.op == "not":
            return not value
        return arithmetic(SIGNS[node.op], 0, value, self.budget)

    def binary(self, node: ast.Binary) -> object:
        return OPERATORS[node.op](self.value(node.left), self.value(node.right), self.budget)

    def concat(self, node: ast.Concat) -> object:
        return self.budget.joined([shown(self.value(part), self.budget) for part in node.parts])

    def compare(self, node: ast.Compare) -> object:
        left = self.value(node.first)
        for op, operand in node.rest:
            right = self.value(operand)
            if not TESTS[op](left, self.budget, right):
                return False
            left = right
        return True

    def logic(self, node: ast.Logic) -> object:
        left = self.value(node.left)
        return self.value(node.right) if bool(left) == (node.op == "and") else left

    def choice(self, node: ast.Choice) -> object:
        if self.value(node.test):
            return self.value(node.yes)
        return self.value(node.no) if node.no else Undefined("the value of an if without else")

    # Statements.

    def emit(self, node: ast.Emit) -> None:
        self.print(self.value(node.value))

    def print(self, value: object) -> None:
        text = shown(value, self.budget)
        self.out_bytes += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        self.budget.text(self.out_bytes) if self.out_bytes > self.budget.max_bytes else None
        self.out.append(text)

    def if_(self, node: ast.If) -> str | None:
        for test, body in node.branches:
            if self.value(test):
                return self.run(body)
        return self.run(node.otherwise)

    def for_(self, node: ast.For) -> str | None:
        outer = self.scope
        values = self.kept(node, iterated(self.value(node.values)))
        loop = Loop(values)
        for loop.index0, value in enumerate(values):
            self.scope = Scope({"loop": loop}, outer)
            self.bind(node.target, value)
            if self.run(node.body) == "break":
                break
        self.scope = Scope({}, outer)
        jump = None if values else self.run(node.otherwise)
        self.scope = outer
        return jump

    def kept(self, node: ast.For, values: Iterable[object]) -> list[object]:
        """The items to walk over, each charged: those for which the loop's condition holds."""
        if node.condition is None:
            return self.budget.items(values)
        outer, kept = self.scope, list[object]()
        for value in values:
            self.scope = Scope({}, outer)
            self.bind(node.target, value)
            if self.value(node.condition):
                kept.append(value)
        self.scope = outer
        return kept

    def bind(self, target: str | tuple[str, ...], value: object) -> None:
        if isinstance(target, str):
            self.scope.values[target] = value
            return
        values = self.budget.items(iterated(value))
        if len(values) != len(target):
            raise TemplateError(f"{len(values)} values for the {len(target)} names {', '.join(target)}")
        self.scope.values.update(zip(target, values, strict=True))

    def set(self, node: ast.Set) -> None:
        if node.value is None:
            value: object = self.captured(node.body, Scope({}, self.scope))
        else:
            value = self.value(node.value)
        if not isinstance(node.target, ast.Attr):
            self.bind(node.target, value)
            return
        namespace = self.value(node.target.value)
        if not isinstance(namespace, Namespace):
            raise TemplateError(
                f"cannot set an attribute of a {type(namespace).__name__}; want a namespace()"
            )
        namespace.values[node.target.name] = value

    def macro(self, node: ast.Macro) -> None:
        self.scope.values[node.name] = Bound(node.name, partial(self.call_macro, node, self.scope))

    def call_macro(self, node: ast.Macro, scope: Scope, /, *positional: object, **named: object) -> str:
        names = [name for name, _ in node.params]
        if len(positional) > len(names) or not named.keys() <= set(names[len(positional) :]):
            got = ", ".join([*map(repr, positional), *named])
            raise TemplateError(f"macro {node.name} takes ({', '.join(names)}); got ({got:.200})")
        own = Scope(dict(zip(names, positional, strict=False)) | named, scope)
        before, self.scope = self.scope, own
        for name, default in node.params:
            if name not in own.values:
                own.values[name] = self.value(default) if default else Undefined(f"parameter {name!r}")
        self.scope = before
        return self.captured(node.body, own)

    def group(self, node: ast.Group) -> str | None:
        if node.name is None:
            return self.run(node.body)
        text = self.captured(node.body, Scope({}, self.scope))
        positional, named = self.args(node.args)
        self.print(filter_named(node.name)(text, self.budget, *positional, **named))
        return None

    def jump(self, node: ast.Jump) -> str:
        return node.kind


SIGNS: dict[str, Callable[[Any, Any], object]] = {"-": lambda zero, v: -v, "+": lambda zero, v: +v}

EXPRESSIONS: dict[type, Callable[[Evaluator, Any], object]] = {
    ast.Const: Evaluator.const, ast.Name: Evaluator.name, ast.Items: Evaluator.items,
    ast.Pairs: Evaluator.pairs, ast.Attr: Evaluator.attr, ast.Item: Evaluator.item,
    ast.Slice: Evaluator.slice, ast.Call: Evaluator.call, ast.Filter: Evaluator.filter,
    ast.Test: Evaluator.test, ast.Unary: Evaluator.unary, ast.Binary: Evaluator.binary,
    ast.Concat: Evaluator.concat, ast.Compare: Evaluator.compare, ast.Logic: Evaluator.logic,
    ast.Choice: Evaluator.choice,
}  # fmt: skip
STATEMENTS: dict[type, Callable[[Evaluator, Any], str | None]] = {
    ast.Emit: Evaluator.emit, ast.If: Evaluator.if_, ast.For: Evaluator.for_, ast.Set: Evaluator.set,
    ast.Macro: Evaluator.macro, ast.Group: Evaluator.group, ast.Jump: Evaluator.jump,
}  # fmt: skip
