"""The tree of a template. `line` is where the node begins in the source."""

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
    """`rest` and `named_rest` are what follows * and **."""

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
    """op: - + not"""

    line: int
    op: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Binary:
    """op: + - * / // % **"""

    line: int
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Concat:
    """a ~ b ~ …"""

    line: int
    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """first op value op value …, as in Python; op also `in` and `not in`."""

    line: int
    first: Expr
    rest: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Logic:
    """op: and or"""

    line: int
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Choice:
    """yes if test else no"""

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
    """Literal text, or {{ value }}."""

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
    """Either a value, or a body whose output, filtered, is the value."""

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
    """`extras`: which of caller, varargs and kwargs the body reads; it takes no others."""

    line: int
    name: str
    params: Params
    extras: frozenset[str]
    body: Body


@dataclass(frozen=True, slots=True)
class CallBlock:
    """A call whose macro may print the body with `caller()`."""

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
    """What the assistant wrote."""

    line: int
    body: Body


@dataclass(frozen=True, slots=True)
class Jump:
    """break or continue"""

    line: int
    kind: str


Statement: TypeAlias = "Emit | If | For | Set | With | Macro | CallBlock | FilterBlock | Generation | Jump"
