"""The evaluator of a template's statements: one rendering, its output and its generation blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate
from typing import Any

from camelid.errors import TemplateError
from camelid.text.templates import ast
from camelid.text.templates.eval import Evaluator
from camelid.text.templates.filters import filter_named
from camelid.text.templates.scope import Loop, Scope
from camelid.text.templates.values import Bound, Budget, Namespace, Undefined, brief, iterated, shown


class Renderer(Evaluator):
    """Executes statements and appends their text to `out`."""

    def __init__(self, context: dict[str, object], budget: Budget) -> None:
        super().__init__(context, budget)
        self.out: list[str] = []
        self.out_bytes = 0
        self.captures = 0  # enclosing bodies whose output becomes a value
        self.generations: list[tuple[int, int]] = []  # index ranges of `out`

    def text(self) -> str:
        return self.budget.joined(self.out)

    def generated(self) -> list[tuple[int, int]]:
        """(start, end) in the text of each generation block."""
        starts = [0, *accumulate(map(len, self.out))]
        return [(starts[first], starts[end]) for first, end in self.generations]

    def run(self, body: ast.Body) -> str | None:
        """Executes statements; returns "break" or "continue" if a statement leaves the loop's body."""
        for node in body:
            self.enter(node.line)
            jump = STATEMENTS[type(node)](self, node)
            self.depth -= 1
            if jump:
                return jump
        return None

    def captured(self, scope: Scope, work: Callable[[], str | None]) -> tuple[str, str | None]:
        """The output of some statements, run in their own scope, and the jump that ends them."""
        before = self.scope, self.out, self.out_bytes
        self.scope, self.out, self.out_bytes = scope, [], 0
        self.captures += 1
        jump = work()
        self.captures -= 1
        text = self.text()
        self.scope, self.out, self.out_bytes = before
        return text, jump

    def filtered(self, filters: ast.Filters, body: ast.Body) -> tuple[object, str | None]:
        """The output of a body, passed through filters."""
        outer, scope = self.scope, Scope({}, self.scope)
        value: object
        value, jump = self.captured(scope, lambda: self.run(body))
        self.scope = scope  # the filters' arguments see the names that the body sets
        for name, args in filters:
            positional, named = self.args(args)
            value = filter_named(name)(value, self.budget, *positional, **named)
        self.scope = outer
        return value, jump

    def emit(self, node: ast.Emit) -> None:
        self.print(self.value(node.value))

    def print(self, value: object) -> None:
        text = shown(value, self.budget)
        self.out_bytes += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if self.out_bytes > self.budget.max_bytes:
            self.budget.text(self.out_bytes)
        self.out.append(text)

    def if_(self, node: ast.If) -> str | None:
        for test, body in node.branches:
            if self.value(test):
                return self.run(body)
        return self.run(node.otherwise)

    def for_(self, node: ast.For) -> str | None:
        return self.loop(node, self.value(node.values), 1)

    def loop(self, node: ast.For, items: object, depth: int) -> str | None:
        outer = self.scope
        values = self.selected(node, iterated(items))
        recurse = partial(self.loop_again, node, outer, depth + 1) if node.recursive else None
        loop = Loop(values, self.budget, depth, recurse)
        ended = False  # True once an iteration ran to its end; as in Jinja, `else` runs if none did
        for loop.index0, value in enumerate(values):
            self.scope = Scope({"loop": loop}, outer)
            self.bind(node.target, value)
            jump = self.run(node.body)
            ended |= jump is None
            if jump == "break":
                break
        self.scope = Scope({}, outer)
        jump = None if ended else self.run(node.otherwise)
        self.scope = outer
        return jump

    def loop_again(self, node: ast.For, scope: Scope, depth: int, items: object) -> str:
        """Runs `loop(items)` within a recursive loop."""
        return self.captured(scope, lambda: self.loop(node, items, depth))[0]

    def selected(self, node: ast.For, values: Iterable[object]) -> list[object]:
        """The items to iterate over, each charged: those that satisfy the loop's condition."""
        if node.condition is None:
            return self.budget.items(values)
        outer, selected = self.scope, list[object]()
        for value in values:
            self.scope = Scope({}, outer)
            self.bind(node.target, value)
            if self.value(node.condition):
                selected.append(value)
        self.scope = outer
        return selected

    def bind(self, target: ast.Target, value: object) -> None:
        if isinstance(target, str):
            self.scope.values[target] = value
            return
        values = self.budget.items(iterated(value))
        if len(values) != len(target):
            raise TemplateError(f"cannot unpack {len(values)} values into {len(target)} names")
        for part, item in zip(target, values, strict=True):
            self.bind(part, item)

    def set(self, node: ast.Set) -> str | None:
        value, jump = (self.value(node.value), None) if node.value else self.filtered(node.filters, node.body)
        if jump:
            return jump
        if isinstance(node.target, ast.Attr):
            self.set_attribute(node.target, value)
        else:
            self.bind(node.target, value)
        return None

    def set_attribute(self, target: ast.Attr, value: object) -> None:
        namespace = self.value(target.value)
        if not isinstance(namespace, Namespace):
            name = type(namespace).__name__
            raise TemplateError(f"cannot set an attribute of a {name}; use a namespace()")
        namespace.set(target.name, value)

    def with_(self, node: ast.With) -> str | None:
        outer = self.scope
        values = [self.value(value) for _, value in node.values]
        self.scope = Scope({}, outer)
        for (target, _), value in zip(node.values, values, strict=True):
            self.bind(target, value)
        jump = self.run(node.body)
        self.scope = outer
        return jump

    def macro(self, node: ast.Macro) -> None:
        self.scope.values[node.name] = self.callable(node)

    def callable(self, node: ast.Macro) -> Bound:
        return Bound(node.name, partial(self.call_macro, node, self.scope))

    def call_macro(self, node: ast.Macro, scope: Scope, /, *positional: object, **named: object) -> str:
        own = Scope(arguments(node, positional, named), scope)
        before, self.scope = self.scope, own
        for name, default in node.params:
            if name not in own.values:
                own.values[name] = self.value(default) if default else Undefined(f"parameter {name!r}")
        self.scope = before
        return self.captured(own, lambda: self.run(node.body))[0]

    def call_block(self, node: ast.CallBlock) -> None:
        function = self.value(node.call.function)
        positional, named = self.args(node.call.args)
        self.line = node.line
        self.print(self.called(function, positional, {**named, "caller": self.callable(node.caller)}))

    def filter_block(self, node: ast.FilterBlock) -> str | None:
        value, jump = self.filtered(node.filters, node.body)
        if not jump:
            self.print(value)
        return jump

    def generation(self, node: ast.Generation) -> None:
        """Prints the body and records its range, which is unknown within a macro or a set block."""
        text, _ = self.captured(Scope({}, self.scope), lambda: self.run(node.body))
        if not self.captures:
            self.generations.append((len(self.out), len(self.out) + 1))
        self.print(text)

    def jump(self, node: ast.Jump) -> str:
        return node.kind


def arguments(node: ast.Macro, positional: tuple[object, ...], named: dict[str, object]) -> dict[str, object]:
    """The arguments of a call by name. Surplus arguments are an error unless the macro reads them."""
    names = [name for name, _ in node.params]
    found = dict(zip(names, positional, strict=False))
    found |= {name: named.pop(name) for name in names[len(positional) :] if name in named}
    if "caller" in node.extras:
        found["caller"] = named.pop("caller", Undefined("'caller', outside of a call block,"))
    if "varargs" in node.extras:
        found["varargs"], positional = positional[len(names) :], ()
    if "kwargs" in node.extras:
        found["kwargs"], named = named, {}
    if len(positional) > len(names) or named:
        got = ", ".join([*map(brief, positional[:20]), *named])
        raise TemplateError(f"macro {node.name} expects ({', '.join(names)}); got ({got:.200})")
    return found


STATEMENTS: dict[type, Callable[[Renderer, Any], str | None]] = {
    ast.Emit: Renderer.emit, ast.If: Renderer.if_, ast.For: Renderer.for_, ast.Set: Renderer.set,
    ast.With: Renderer.with_, ast.Macro: Renderer.macro, ast.CallBlock: Renderer.call_block,
    ast.FilterBlock: Renderer.filter_block, ast.Generation: Renderer.generation, ast.Jump: Renderer.jump,
}  # fmt: skip
