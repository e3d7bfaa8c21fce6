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
    positional: tuple[Expr, ...] = ()
    named: tuple[tuple[str, Expr], ...] = ()


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
Target: TypeAlias = "str | tuple[str, ...] | Attr"


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
    target: str | tuple[str, ...]
    values: Expr
    condition: Expr | None
    body: Body
    otherwise: Body


@dataclass(frozen=True, slots=True)
class Set:
    """Either a value, or a body whose output is the value."""

    line: int
    target: Target
    value: Expr | None
    body: Body = ()


@dataclass(frozen=True, slots=True)
class Macro:
    line: int
    name: str
    params: tuple[tuple[str, Expr | None], ...]
    body: Body


@dataclass(frozen=True, slots=True)
class Group:
    """A body in its own output: {% filter f %} with a filter, {% generation %} without."""

    line: int
    body: Body
    name: str | None = None
    args: Args = Args()


@dataclass(frozen=True, slots=True)
class Jump:
    """break or continue"""

    line: int
    kind: str


Statement: TypeAlias = "Emit | If | For | Set | Macro | Group | Jump"
