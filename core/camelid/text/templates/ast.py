"""The syntax tree of a template. `line` is the first line of a node in the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Const:
    line: int
    value: object


@dataclass(frozen=True, slots=True)
class Name:
    line: int
    name: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list or tuple literal."""

    line: int
    items: tuple[Expr, ...]
    is_tuple: bool = False


@dataclass(frozen=True, slots=True)
class Pairs:
    """A dict literal."""

    line: int
    pairs: tuple[tuple[Expr, Expr], ...]


@dataclass(frozen=True, slots=True)
class Attr:
    line: int
    value: Expr
    name: str


@dataclass(frozen=True, slots=True)
class Item:
    line: int
    value: Expr
    key: Expr


@dataclass(frozen=True, slots=True)
class Slice:
    line: int
    value: Expr
    bounds: tuple[Expr | None, Expr | None, Expr | None]


@dataclass(frozen=True, slots=True)
class Args:
    """Arguments of a call. `rest` and `named_rest` are the expressions after * and **."""

    positional: tuple[Expr, ...] = ()
    named: tuple[tuple[str, Expr], ...] = ()
    rest: Expr | None = None
    named_rest: Expr | None = None


@dataclass(frozen=True, slots=True)
class Call:
    line: int
    function: Expr
    args: Args


@dataclass(frozen=True, slots=True)
class Filter:
    line: int
    value: Expr
    name: str
    args: Args


@dataclass(frozen=True, slots=True)
class Test:
    line: int
    value: Expr
    name: str
    args: Args


@dataclass(frozen=True, slots=True)
class Unary:
    """A unary operator: - + not."""

    line: int
    op: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Binary:
    """A binary operator: + - * / // % **."""

    line: int
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Concat:
    """A concatenation: a ~ b ~ …."""

    line: int
    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison chain, as in Python: first op value op value …, where op may be `in` or `not in`."""

    line: int
    first: Expr
    rest: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Logic:
    """A logical operator: and or."""

    line: int
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Choice:
    """A conditional expression: yes if test else no."""

    line: int
    test: Expr
    yes: Expr
    no: Expr | None


Expr: TypeAlias = (
    Const | Name | Items | Pairs | Attr | Item | Slice | Call | Filter | Test
    | Unary | Binary | Concat | Compare | Logic | Choice
)  # fmt: skip
Body: TypeAlias = "tuple[Statement, ...]"
Target: TypeAlias = "str | tuple[Target, ...]"
Filters: TypeAlias = tuple[tuple[str, Args], ...]
Params: TypeAlias = tuple[tuple[str, Expr | None], ...]


@dataclass(frozen=True, slots=True)
class Emit:
    """Literal text or {{ value }}."""

    line: int
    value: Expr


@dataclass(frozen=True, slots=True)
class If:
    line: int
    branches: tuple[tuple[Expr, Body], ...]
    otherwise: Body


@dataclass(frozen=True, slots=True)
class For:
    line: int
    target: Target
    values: Expr
    condition: Expr | None
    recursive: bool
    body: Body
    otherwise: Body


@dataclass(frozen=True, slots=True)
class Set:
    """An assignment of a value, or of the filtered output of a body."""

    line: int
    target: Target | Attr
    value: Expr | None
    filters: Filters = ()
    body: Body = ()


@dataclass(frozen=True, slots=True)
class With:
    line: int
    values: tuple[tuple[Target, Expr], ...]
    body: Body


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro. `extras` are the names among caller, varargs and kwargs that its body reads."""

    line: int
    name: str
    params: Params
    extras: frozenset[str]
    body: Body


@dataclass(frozen=True, slots=True)
class CallBlock:
    """A call block: the macro prints the block's body with `caller()`."""

    line: int
    call: Call
    caller: Macro


@dataclass(frozen=True, slots=True)
class FilterBlock:
    line: int
    filters: Filters
    body: Body


@dataclass(frozen=True, slots=True)
class Generation:
    """A block of text that the assistant wrote."""

    line: int
    body: Body


@dataclass(frozen=True, slots=True)
class Jump:
    """A break or continue."""

    line: int
    kind: str


Statement: TypeAlias = "Emit | If | For | Set | With | Macro | CallBlock | FilterBlock | Generation | Jump"
