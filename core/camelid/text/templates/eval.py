"""The evaluator of a template's expressions, one table row per node type.

Every node except a constant costs a step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from camelid.errors import TemplateError
from camelid.text.templates import ast
from camelid.text.templates.filters import filter_named
from camelid.text.templates.methods import methods
from camelid.text.templates.operators import OPERATORS, arithmetic
from camelid.text.templates.scope import GLOBALS, LOOP, Loop, Scope
from camelid.text.templates.tests import TESTS, test_named
from camelid.text.templates.values import (
    Bound,
    Budget,
    Namespace,
    Undefined,
    brief,
    checked_key,
    cut,
    is_dict,
    is_list,
    iterated,
    shown,
)  # fmt: skip

# Nested macro calls times the nesting within each; a level needs two or three Python frames.
MAX_DEPTH = 200


class Evaluator:
    """One rendering: its scopes and its budget."""

    def __init__(self, context: dict[str, object], budget: Budget) -> None:
        names: dict[str, object] = {
            name: Bound(name, partial(function, budget)) for name, function in GLOBALS.items()
        }
        self.scope: Scope = Scope(context, Scope(names))
        self.budget = budget
        self.depth = 0
        self.line = 0

    def value(self, node: ast.Expr) -> object:
        """The value of an expression."""
        kind = type(node)
        if kind is ast.Const:  # a third of all nodes; every use of a constant is charged
            return cast(ast.Const, node).value
        self.enter(node.line)
        value = EXPRESSIONS[kind](self, node)
        self.depth -= 1
        return value

    def enter(self, line: int) -> None:
        self.line = line
        self.depth += 1
        self.budget.spend()
        if self.depth > MAX_DEPTH:
            raise TemplateError(f"the template nests more than {MAX_DEPTH} deep", limit=MAX_DEPTH)

    def name(self, node: ast.Name) -> object:
        return self.scope.get(node.name)

    def items(self, node: ast.Items) -> object:
        values = [self.value(item) for item in node.items]
        return tuple(values) if node.is_tuple else values

    def pairs(self, node: ast.Pairs) -> object:
        return {checked_key(self.value(key), self.budget): self.value(value) for key, value in node.pairs}

    def attr(self, node: ast.Attr) -> object:
        return self.attribute(self.value(node.value), node.name)

    def attribute(self, value: object, name: str) -> object:
        """A method, else an item of a dict; never an attribute of a Python object."""
        if isinstance(value, Undefined):
            raise value.fail()
        if isinstance(value, Loop) and name in LOOP:
            return LOOP[name](value)
        if isinstance(value, Namespace):
            return value.values[name] if name in value.values else Undefined(f"{brief(name)} of a namespace")
        method = methods(value).get(name)
        if method:
            self.budget.read(value)
            return Bound(name, partial(method, value, self.budget))
        if is_dict(value) and name in value:
            return value[name]
        if name.startswith("__"):
            raise TemplateError(f"attribute {brief(name)} is not accessible in templates", name=name)
        return Undefined(f"attribute {brief(name)}")

    def item(self, node: ast.Item) -> object:
        value, key = self.value(node.value), self.value(node.key)
        if isinstance(value, Undefined):
            raise value.fail()
        self.budget.read(key)
        if is_list(key) or is_dict(key):
            return Undefined(f"the item with a {type(key).__name__} as its key")
        if is_dict(value) and key in value:
            return value[key]
        if isinstance(key, str):
            return self.attribute(value, key)  # as in Jinja: a missing key may be a method
        return self.at(value, key)

    def at(self, value: object, index: object) -> object:
        if not isinstance(index, int) or not (is_list(value) or isinstance(value, str | range)):
            return Undefined(f"item {brief(index)}")
        if -len(value) <= index < len(value):
            return cut(value, slice(index, index + 1 or None)) if isinstance(value, str) else value[index]
        return Undefined(f"item {brief(index)}")

    def slice(self, node: ast.Slice) -> object:
        value = self.value(node.value)
        start, stop, step = (None if bound is None else self.value(bound) for bound in node.bounds)
        where = slice(cast(Any, start), cast(Any, stop), cast(Any, step))
        if isinstance(value, Undefined):
            raise value.fail()
        if isinstance(value, str):
            self.budget.text(len(value))
            return cut(value, where)
        if not is_list(value) and not isinstance(value, range):
            raise TemplateError(f"a {type(value).__name__} has no slices")
        self.budget.spend(len(value))
        return value[where]

    def args(self, args: ast.Args) -> tuple[list[object], dict[str, object]]:
        positional = [self.value(a) for a in args.positional]
        named = {name: self.value(a) for name, a in args.named}
        if args.rest:
            positional += self.budget.items(iterated(self.value(args.rest)))
        if args.named_rest:
            named |= self.named_rest(self.value(args.named_rest))
        return positional, named

    def named_rest(self, value: object) -> dict[str, object]:
        if not is_dict(value) or not all(isinstance(name, str) for name in value):
            raise TemplateError(f"** of a {type(value).__name__}; expected a mapping of names")
        self.budget.spend(len(value))
        return cast("dict[str, object]", dict(value))

    def call(self, node: ast.Call) -> object:
        function = self.value(node.function)
        positional, named = self.args(node.args)
        self.line = node.line
        return self.called(function, positional, named)

    def called(self, function: object, positional: list[object], named: dict[str, object]) -> object:
        if isinstance(function, Loop) and function.recurse:
            return function.recurse(*positional, **named)
        if isinstance(function, Undefined):
            raise function.fail()
        if not isinstance(function, Bound):
            raise TemplateError(f"a {type(function).__name__} cannot be called")
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
        self.budget.read(value)
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


SIGNS: dict[str, Callable[[Any, Any], object]] = {"-": lambda zero, v: -v, "+": lambda zero, v: +v}

EXPRESSIONS: dict[type, Callable[[Evaluator, Any], object]] = {
    ast.Name: Evaluator.name, ast.Items: Evaluator.items, ast.Pairs: Evaluator.pairs,
    ast.Attr: Evaluator.attr, ast.Item: Evaluator.item, ast.Slice: Evaluator.slice,
    ast.Call: Evaluator.call, ast.Filter: Evaluator.filter, ast.Test: Evaluator.test,
    ast.Unary: Evaluator.unary, ast.Binary: Evaluator.binary, ast.Concat: Evaluator.concat,
    ast.Compare: Evaluator.compare, ast.Logic: Evaluator.logic, ast.Choice: Evaluator.choice,
}  # fmt: skip
