"""Strings, numbers, booleans and null as rules."""

from __future__ import annotations

from camelid.errors import RequestError
from camelid.text.grammar.builder import DEAD, RuleBuilder, in_order, one_of
from camelid.text.grammar.char_classes import Ranges
from camelid.text.grammar.dfa import Dfa
from camelid.text.grammar.json_text import MAX_DIGITS, character, digits
from camelid.text.grammar.json_types import constraints
from camelid.text.grammar.json_types.document import Places
from camelid.text.grammar.json_types.keywords import refuse
from camelid.text.grammar.numbers import ZERO, Bound, Interval, magnitudes
from camelid.text.grammar.rules import Chars, Expr, Ref, Text

FROM_ZERO = Interval(low=Bound(ZERO))
BOUND_KEYWORDS = ("multipleOf", "exclusiveMinimum", "exclusiveMaximum", "minimum", "maximum")


def string(builder: RuleBuilder, places: Places) -> Expr:
    """The strings of some places: by length, or by the automaton of their patterns and formats."""
    if constraints.shape_dfa(places) and (dfa := constraints.text_dfa(places)):
        return quoted(builder, dfa)
    least, most = constraints.size(places, "Length")
    if least == 0 and most is None:
        return Ref("string")
    if most is not None and most < least:
        return DEAD
    return in_quotes(builder, builder.counted(character(builder.notation), least, most))


def in_quotes(builder: RuleBuilder, text: Expr) -> Expr:
    return in_order(builder.notation.quote, text, builder.notation.quote)


def quoted(builder: RuleBuilder, dfa: Dfa) -> Expr:
    """A string whose unescaped text the automaton accepts."""

    def spell(ranges: Ranges) -> Expr:
        expr = builder.notation.spelled(ranges)
        return expr if isinstance(expr, Chars | Text) else builder.shared("char", ranges, lambda: expr)

    return in_quotes(builder, builder.automaton(dfa, spell, free=Ref("characters")))


def number(builder: RuleBuilder, places: Places, integral: bool) -> Expr:
    """The numbers of some places; equal bounds share one rule."""
    interval = constraints.interval(places, integral)
    if interval.is_free:
        return Ref("integer" if integral else "number")
    if interval == FROM_ZERO:
        return Ref("unsigned")
    if integral and interval == Interval(low=Bound(ZERO), integral=True):
        return digits(MAX_DIGITS)
    try:
        return builder.shared("bounded", interval, lambda: signed(builder, interval))
    except RequestError as error:
        place, keyword = next((p, k) for k in BOUND_KEYWORDS for p, _ in constraints.with_keyword(places, k))
        refuse(keyword, place.pointer, error.message)


def signed(builder: RuleBuilder, interval: Interval) -> Expr:
    plus, minus = magnitudes(interval)
    return one_of(
        *([] if plus.is_empty else [builder.automaton(plus, Chars)]),
        *([] if minus.is_empty else [in_order("-", builder.automaton(minus, Chars))]),
    )
