"""Rules to fragments: each expression once, without recursion, within a limit on states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from camelid.errors import RequestError
from camelid.text.grammar import bytes_nfa as nfa
from camelid.text.grammar.bytes_nfa import EMPTY, Fragment
from camelid.text.grammar.rules import Chars, Choice, Expr, Ref, Repeat, Rules, Sequence, Text, Tokens

# States written while fragments are combined, inner fragments several times, in multiples of the limit.
COPIES = 16
# A rule of short matches is copied into its callers, so `char*` is a loop within one rule.
INLINE_BYTES, INLINE_STATES = 16, 64


def too_large(limit: int) -> RequestError:
    return RequestError(
        f"the grammar needs more than {limit:,} states; use smaller repetition counts, fewer or shorter "
        "alternatives, or rules in place of nested groups",
        field="grammar",
        limit=limit,
    )


class FragmentBuilder:
    """Builds the fragment of each rule; None stands for an expression that matches nothing."""

    def __init__(self, rules: Rules, max_states: int) -> None:
        self.rules = rules.rules
        self.max_states = max_states
        self.work = COPIES * max_states
        self.built: dict[int, Fragment | None] = {}  # by id of the expression, which `rules` keeps alive
        self.of_rule: dict[str, Fragment | None] = {}

    def rule(self, name: str) -> None:
        """Builds the fragment of a rule from the inside out."""
        root = self.rules[name]
        todo = [root]
        while todo:
            expr = todo[-1]
            missing = [] if id(expr) in self.built else [p for p in parts(expr) if id(p) not in self.built]
            if not missing:
                todo.pop()
                self.build(expr)
            todo += missing
        self.of_rule[name] = self.built[id(root)]

    def build(self, expr: Expr) -> None:
        if id(expr) not in self.built:
            found = BUILDERS[type(expr)](self, expr)
            self.built[id(expr)] = found
            self.spend(len(found) if found else 0)

    def spend(self, n_states: int) -> None:
        self.work -= n_states
        if n_states > self.max_states or self.work < 0:
            raise too_large(self.max_states)

    def of(self, expr: Expr) -> Fragment | None:
        return self.built[id(expr)]

    def ref(self, expr: Ref) -> Fragment | None:
        found = self.of_rule.get(expr.name)
        small = found and found.longest is not None and found.longest <= INLINE_BYTES
        return found if found and small and len(found) <= INLINE_STATES else nfa.call(expr.name)

    def sequence(self, expr: Sequence) -> Fragment | None:
        found = [self.of(part) for part in expr.parts]
        fragments = [fragment for fragment in found if fragment]
        if len(fragments) < len(found):
            return None
        if len(fragments) == 1:
            return fragments[0]
        self.check(sum(map(len, fragments)))
        return nfa.in_sequence(fragments)

    def choice(self, expr: Choice) -> Fragment | None:
        texts = [part.text for part in expr.parts if isinstance(part, Text)]
        others = [part for part in expr.parts if not isinstance(part, Text)] if len(texts) > 1 else expr.parts
        fragments = [nfa.words(texts)] if len(texts) > 1 else []
        fragments += [fragment for part in others if (fragment := self.of(part))]
        self.check(sum(map(len, fragments)))
        return nfa.any_of(fragments) if len(fragments) > 1 else fragments[0] if fragments else None

    def repeat(self, expr: Repeat) -> Fragment | None:
        part, least, most = self.of(expr.part), expr.least, expr.most
        if most is not None and least > most:
            raise RequestError(
                f"a repetition has minimum {least} above maximum {most}; swap them", field="grammar"
            )
        if part is None or len(part) == 1 or most == 0:
            return EMPTY if part or least == 0 else None
        self.check(len(part) * max(least, most or 0, 1))
        if most is not None:
            return nfa.repeated(part, least, most)
        rest = nfa.endless(part, optional=least == 0)
        return nfa.in_sequence([nfa.repeated(part, least - 1, least - 1), rest]) if least > 1 else rest

    def check(self, n_states: int) -> None:
        if n_states > self.max_states:
            raise too_large(self.max_states)


BUILDERS: dict[type, Callable[[FragmentBuilder, Any], Fragment | None]] = {
    Text: lambda builder, expr: nfa.text(expr.text),
    Chars: lambda builder, expr: nfa.chars(expr.ranges),
    Tokens: lambda builder, expr: nfa.token(expr.token_ids, expr.negated),
    Ref: FragmentBuilder.ref,
    Sequence: FragmentBuilder.sequence,
    Choice: FragmentBuilder.choice,
    Repeat: FragmentBuilder.repeat,
}


def parts(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Sequence | Choice):
        return expr.parts
    return (expr.part,) if isinstance(expr, Repeat) else ()


def references(root: Expr) -> set[str]:
    """The names of the rules that an expression refers to."""
    found, seen, todo = set[str](), {id(root)}, [root]
    while todo:
        expr = todo.pop()
        if isinstance(expr, Ref):
            found.add(expr.name)
        fresh = [part for part in parts(expr) if id(part) not in seen]
        seen.update(map(id, fresh))
        todo += fresh
    return found


def callees_first(rules: Rules) -> list[str]:
    """Every rule that the root reaches, each after the rules that it refers to, as far as cycles allow.

    Raises RequestError for a reference without a rule.
    """
    order, entered, todo = list[str](), set[str](), [("", rules.root, False)]
    while todo:
        caller, name, left = todo.pop()
        if left:
            order.append(name)
        elif name not in entered:
            entered.add(name)
            todo.append((caller, name, True))
            todo += [(name, other, False) for other in sorted(references(rule_of(rules, caller, name)))]
    return order


def rule_of(rules: Rules, caller: str, name: str) -> Expr:
    if name in rules.rules:
        return rules.rules[name]
    where = f"rule {caller!r:.80} refers to it" if caller else "a grammar starts there"
    raise RequestError(
        f"the grammar has no rule {name!r:.80}, but {where}; define it or correct the name",
        field="grammar",
        rule=name,
    )


def build_fragments(rules: Rules, max_states: int) -> dict[str, Fragment | None]:
    """The fragment of each rule that the root reaches, callees first. Raises RequestError."""
    builder = FragmentBuilder(rules, max_states)
    for name in callees_first(rules):
        builder.rule(name)
    return builder.of_rule
