"""Construction of rules: unique names, rules shared by key, repeats of any count, automata as rules."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from camelid.errors import RequestError
from camelid.text.grammar.char_classes import Ranges, union
from camelid.text.grammar.dfa import Dfa
from camelid.text.grammar.rules import Chars, Choice, Expr, Ref, Repeat, Rules, Sequence, Text

MAX_RULES = 20_000
BLOCK = 256  # copies of a repeat in one rule; a larger count is written in base 256
MAX_INLINE = 16  # automaton states nested in one expression; deeper states become rules
NOTHING = Sequence(())
DEAD = Choice(())  # matches nothing at all
S = TypeVar("S", bound=Hashable)
Spell: TypeAlias = Callable[[Ranges], Expr]


def in_order(*parts: Expr | str) -> Expr:
    """A sequence of the parts; nested sequences are flattened, neighboring texts are joined."""
    flat: list[Expr] = []
    for part in parts:
        expr = Text(part) if isinstance(part, str) else part
        for piece in expr.parts if isinstance(expr, Sequence) else (expr,):
            if isinstance(piece, Text) and flat and isinstance(last := flat[-1], Text):
                flat[-1] = Text(last.text + piece.text)
            else:
                flat.append(piece)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def one_of(*parts: Expr) -> Expr:
    """A choice of the parts without duplicates."""
    distinct = tuple(dict.fromkeys(parts))
    return distinct[0] if len(distinct) == 1 else Choice(distinct)


def optional(part: Expr) -> Expr:
    return Repeat(part, 0, 1)


@dataclass(frozen=True, slots=True)
class Notation:
    """The spelling of values, JSON (`json_text.JSON`) or a variant of it that a family of models writes.

    `quote` is on either side of a string; `plain` are the characters that a string writes as they are, and
    `escape` is any other character; `spelled` is one character out of some; `words` are true, false and null.
    `characters` are the strings of any length; None: any `plain` and `escape`. `has_bare_keys`: a key without
    odd characters has no quotes.
    """

    quote: Expr
    spelled: Spell
    plain: Ranges
    escape: Expr
    words: tuple[str, str, str] = ("true", "false", "null")
    characters: Dfa | None = None
    has_bare_keys: bool = False


AS_IS = Notation(NOTHING, Chars, (), DEAD)  # of grammars without JSON


@dataclass(slots=True)
class RuleBuilder:
    """The rules made so far. `add`, `shared` and `fresh` raise RequestError beyond MAX_RULES."""

    rules: dict[str, Expr]
    keys: dict[Hashable, Ref] = field(default_factory=dict[Hashable, Ref])
    numbers: Counter[str] = field(default_factory=Counter[str])
    notation: Notation = AS_IS

    def fresh(self, kind: str) -> str:
        """Reserves an unused rule name, such as `node_3`."""
        if len(self.rules) >= MAX_RULES:
            raise RequestError(
                f"the grammar has more than {MAX_RULES} rules; use a smaller schema",
                field="grammar",
                limit=MAX_RULES,
            )
        self.numbers[kind] += 1
        name = f"{kind}_{self.numbers[kind]}"
        self.rules[name] = DEAD  # a placeholder until the rule is written
        return name

    def add(self, kind: str, expr: Expr) -> Ref:
        name = self.fresh(kind)
        self.rules[name] = expr
        return Ref(name)

    def shared(self, kind: str, key: Hashable, make: Callable[[], Expr]) -> Ref:
        """The rule of a key, made on the first request for it."""
        if key not in self.keys:
            self.keys[key] = self.add(kind, make())
        return self.keys[key]

    def counted(self, part: Expr, least: int, most: int | None) -> Expr:
        """`part` from `least` to `most` times; a count above BLOCK becomes nested rules."""
        if max(least, most or 0) <= BLOCK:
            return Repeat(part, least, most)
        rest = Repeat(part) if most is None else self.up_to(part, most - least)
        return in_order(self.exactly(part, least), rest)

    def block(self, part: Expr, power: int) -> Expr:
        """`part` exactly BLOCK ** power times."""
        if power == 0:
            return part

        def make() -> Expr:
            return Repeat(self.block(part, power - 1), BLOCK, BLOCK)

        return self.shared("block", ("block", part, power), make)

    def exactly(self, part: Expr, n: int) -> Expr:
        parts: list[Expr] = []
        power = 0
        while n:
            n, digit = divmod(n, BLOCK)
            parts.append(Repeat(self.block(part, power), digit, digit))
            power += 1
        return in_order(*parts[::-1])

    def up_to(self, part: Expr, n: int) -> Expr:
        """`part` at most n times.

        Either fewer large blocks and a shorter remainder, or all large blocks and the rest.
        """
        if n <= BLOCK:
            return Repeat(part, 0, n)
        power = 1
        while BLOCK ** (power + 1) <= n:
            power += 1
        digit, rest = divmod(n, BLOCK**power)
        block = self.block(part, power)
        fewer = in_order(Repeat(block, 0, digit - 1), self.below(part, power))
        return one_of(fewer, in_order(Repeat(block, digit, digit), self.up_to(part, rest)))

    def below(self, part: Expr, power: int) -> Expr:
        """`part` fewer than BLOCK ** power times."""

        def make() -> Expr:
            rest = self.below(part, power - 1) if power > 1 else NOTHING
            return in_order(Repeat(self.block(part, power - 1), 0, BLOCK - 1), rest)

        return self.shared("below", ("below", part, power), make)

    def machine(self, kind: str, start: S, write: Callable[[S, Callable[[S], Ref]], Expr]) -> Ref:
        """One rule per state, starting at `start`.

        `write` makes the rule of a state and refers to the next states through the function that it receives.
        """
        names: dict[S, str] = {}
        queue: deque[S] = deque()

        def ref(state: S) -> Ref:
            if state not in names:
                names[state] = self.fresh(kind)
                queue.append(state)
            return Ref(names[state])

        first = ref(start)
        while queue:
            state = queue.popleft()
            self.rules[names[state]] = write(state, ref)
        return first

    def automaton(self, dfa: Dfa, spell: Spell, free: Expr | None = None) -> Expr:
        """The texts of an automaton. `spell` writes a set of characters, `free` any text at all."""
        return _DfaWriter(self, dfa, spell, free).write()


@dataclass(slots=True)
class _DfaWriter:
    builder: RuleBuilder
    dfa: Dfa
    spell: Spell
    free: Expr | None
    names: dict[int, str] = field(default_factory=dict[int, str])
    queue: deque[int] = field(default_factory=deque[int])

    def write(self) -> Expr:
        arrivals = Counter(
            target
            for state, row in enumerate(self.dfa.edges)
            for target in {target for _, _, target in row} - {state}
        )
        joints = {state for state, n in arrivals.items() if n > 1 or state == 0}
        root = self.reach(0, joints, 0)
        while self.queue:
            state = self.queue.popleft()
            self.builder.rules[self.names[state]] = self.leave(state, joints, 0)
        return root

    def reach(self, state: int, joints: set[int], depth: int) -> Expr:
        """The expression of a state: a rule where several edges meet, else written inline."""
        if self.free is not None and self.dfa.is_free(state):
            return self.free
        if state not in joints and depth < MAX_INLINE:
            return self.leave(state, joints, depth)
        if state not in self.names:
            self.names[state] = self.builder.fresh("state")
            self.queue.append(state)
        return Ref(self.names[state])

    def leave(self, state: int, joints: set[int], depth: int) -> Expr:
        ways: dict[int, list[tuple[int, int]]] = {}
        for first, last, target in self.dfa.edges[state]:
            ways.setdefault(target, []).append((first, last))
        loop = ways.pop(state, None)
        ends = [NOTHING] if state in self.dfa.final else []
        onward = [
            in_order(self.spell(union(ranges)), self.reach(target, joints, depth + 1))
            for target, ranges in ways.items()
        ]
        rest = one_of(*onward, *ends)
        return in_order(Repeat(self.spell(union(loop))), rest) if loop else rest


def pruned(rules: Mapping[str, Expr], root: str) -> Rules | None:
    """The grammar reduced to rules that the root reaches and that can end; None if no text matches."""
    live = productive(rules)
    if root not in live:
        return None
    reached: dict[str, Expr] = {}
    stack = [root]
    while stack:
        name = stack.pop()
        if name not in reached:
            reached[name] = trimmed(rules[name], live) or DEAD
            stack.extend(references(reached[name]))
    return Rules(reached, root)


def references(expr: Expr) -> set[str]:
    found: set[str] = set()
    stack = [expr]
    while stack:
        match stack.pop():
            case Ref(name):
                found.add(name)
            case Sequence(parts) | Choice(parts):
                stack.extend(parts)
            case Repeat(part):
                stack.append(part)
            case _:
                pass
    return found


def productive(rules: Mapping[str, Expr]) -> set[str]:
    """The names of the rules that match at least one text."""
    users: dict[str, list[str]] = {}
    for name, expr in rules.items():
        for used in references(expr):
            users.setdefault(used, []).append(name)
    live: set[str] = set()
    waiting = deque(rules)
    while waiting:
        name = waiting.popleft()
        if name not in live and finishes(rules[name], live):
            live.add(name)
            waiting.extend(users.get(name, ()))
    return live


def finishes(expr: Expr, live: set[str]) -> bool:
    match expr:
        case Ref(name):
            return name in live
        case Sequence(parts):
            return all(finishes(part, live) for part in parts)
        case Choice(parts):
            return any(finishes(part, live) for part in parts)
        case Repeat(part, least):
            return least == 0 or finishes(part, live)
        case _:
            return True


def trimmed(expr: Expr, live: set[str]) -> Expr | None:
    """The expression without alternatives that match nothing; None if the expression matches nothing."""
    match expr:
        case Ref(name):
            return expr if name in live else None
        case Sequence(parts):
            alive = [trimmed(part, live) for part in parts]
            return None if None in alive else Sequence(tuple(part for part in alive if part))
        case Choice(parts):
            some = [part for part in (trimmed(part, live) for part in parts) if part]
            return Choice(tuple(some)) if some else None
        case Repeat(part, least, most):
            inner = trimmed(part, live)
            return Repeat(inner, least, most) if inner else None if least else NOTHING
        case _:
            return expr
