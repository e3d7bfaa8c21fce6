"""The steps of a family's row as grammar expressions: what `steps` reads, in the family's usual spelling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from camelid.errors import RequestError
from camelid.text.grammar.builder import NOTHING, Notation, RuleBuilder, in_order, one_of, optional
from camelid.text.grammar.json_text import COLON, COMMA, DIGIT, JSON, WS, base_rules
from camelid.text.grammar.rules import Chars, Expr, Ref, Repeat, Text
from camelid.text.toolcalls import call_values
from camelid.text.toolcalls.call_values import ANY_KEY, IN_TAGS, PYTHON, Member, Schema, properties_of
from camelid.text.toolcalls.family import Family, Slot, Step, Tags
from camelid.text.toolcalls.markers import Markers
from camelid.text.toolcalls.reading import NAME_CHARS
from camelid.text.toolcalls.values import STRING, schema_types

GAP = Ref("gap")  # optional white space between two steps
GAP_EXPR = in_order(Repeat(Text("\n"), 0, 2), Repeat(Text(" "), 0, 4))
ID_CHARS = Chars(((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)))
ID = Repeat(ID_CHARS, 9, 9)  # the format that Mistral's templates accept
COMMA_SPACE = in_order(",", optional(Text(" ")))


@dataclass(frozen=True, slots=True)
class CallWriter:
    """Writes the calls of one family and some tools: name -> schema of its arguments."""

    family: Family
    tools: Mapping[str, Schema]
    markers: Markers
    parallel: bool
    builder: RuleBuilder

    @classmethod
    def of(cls, family: Family, tools: Mapping[str, Schema], markers: Markers, parallel: bool) -> CallWriter:
        """A writer with the rules of JSON alone."""
        rules = {"ws": base_rules()["ws"], "gap": GAP_EXPR}
        return cls(family, tools, markers, parallel, RuleBuilder(rules))

    def section(self) -> Expr:
        """One or more calls between the markers around them."""
        body = self.body()
        pairs = [
            in_order(self.markers.expr(opening), GAP, body, self.closing(i))
            for i, opening in enumerate(self.family.opens)
        ]
        has_own = not pairs or isinstance(self.family.call[0], str)
        return self.builder.add("section", one_of(*pairs, *([body] if has_own else [])))

    def closing(self, index: int) -> Expr:
        """The marker behind a section: that of its opening, or optional if they do not pair."""
        closes = self.family.closes
        if len(closes) == len(self.family.opens):
            return in_order(GAP, self.markers.expr(closes[index]))
        return optional(in_order(GAP, one_of(*map(self.markers.expr, closes)))) if closes else NOTHING

    def body(self) -> Expr:
        """The calls of one section."""
        first = self.family.call[0]
        if first in LISTED:
            return LISTED[first](self)
        return self.several(self.any_call(self.family.call))

    def unopened(self) -> Expr:
        """The calls of an answer without an opening: in the prompt, or in no use by this family."""
        opened = isinstance(self.family.call[0], str)
        return self.any_call(self.family.call[1:]) if opened else self.body()

    def any_call(self, steps: tuple[Step, ...]) -> Expr:
        """One call of any tool."""
        return one_of(*(self.follow(steps, name) for name in self.tools))

    def follow(self, steps: tuple[Step, ...], name: str) -> Expr:
        """The steps of a call of one tool, with optional white space between them."""
        found: list[Expr] = []
        for step in steps:
            found += [GAP, self.step(step, name)] if found else [self.step(step, name)]
        return in_order(*found)

    def step(self, step: Step, name: str) -> Expr:
        """One step of a call."""
        if isinstance(step, str):
            return self.markers.expr(step)
        if isinstance(step, tuple):
            return optional(self.follow(step, name))
        return tagged(self, name, step) if isinstance(step, Tags) else SLOTS[step](self, name)

    def several(self, call: Expr, between: Expr = GAP) -> Expr:
        """One call, or more where the request allows it."""
        return in_order(call, Repeat(in_order(between, call))) if self.parallel else call

    def whole(self, name: str, notation: Notation = JSON) -> Expr:
        """The arguments of a tool as one object."""
        return self.of_tool(name, lambda schema: call_values.object_of(self.builder, schema, notation))

    def of_tool(self, name: str, write: Callable[[Schema], Expr]) -> Expr:
        """A rule of a tool's schema. Errors name the tool."""
        try:
            return self.builder.shared("arguments", ("tool", name), lambda: write(self.tools[name]))
        except RequestError as error:
            raise RequestError(f"tool {name!r}: {error.message}", field="tools") from None


def listed(w: CallWriter, call: Expr) -> Expr:
    """JSON calls: one or several, or a list of them."""
    return one_of(one_by_one(w, call), in_order("[", WS, w.several(call, COMMA), WS, "]"))


def one_by_one(w: CallWriter, call: Expr) -> Expr:
    """JSON calls with white space or a semicolon between them."""
    return w.several(call, in_order(optional(Text(";")), GAP))


def named_call(w: CallWriter) -> Expr:
    """A call as {"name": …, "arguments": {…}}."""
    *ids, name_key, arguments_key = w.family.keys
    before = [in_order(f'"{key}"', COLON, '"', Repeat(ID_CHARS, 1, 9), '"', COMMA) for key in ids]
    calls = (
        in_order(
            "{", WS, *before, f'"{name_key}"', COLON, f'"{name}"', COMMA, f'"{arguments_key}"', COLON,
            w.whole(name), WS, "}",
        )
        for name in w.tools
    )  # fmt: skip
    return w.builder.add("call", one_of(*calls))


def keyed_call(w: CallWriter) -> Expr:
    """A call as {name: {…}}."""
    calls = (in_order("{", WS, f'"{name}"', COLON, w.whole(name), WS, "}") for name in w.tools)
    return w.builder.add("call", one_of(*calls))


def python_calls(w: CallWriter) -> Expr:
    """Calls as name(key=value, …): one, or a list of them."""
    call = w.builder.add("call", one_of(*(python_call(w, name) for name in w.tools)))
    return one_of(call, in_order("[", w.several(call, COMMA_SPACE), "]"))


def python_call(w: CallWriter, name: str) -> Expr:
    def pair(member: Member) -> Expr:
        if member.key and not NAME_CHARS.fullmatch(member.key):
            raise unspeakable(w, member.key)
        key = Text(member.key) if member.key else ANY_KEY
        return in_order(key, "=", member.value(w.builder, PYTHON))

    return in_order(name, "(", w.of_tool(name, lambda schema: members(w, schema, pair, COMMA_SPACE)), ")")


def members(w: CallWriter, schema: Schema, pair: Callable[[Member], Expr], comma: Expr) -> Expr:
    """The arguments one by one."""
    found = call_values.members_of(schema, w.family.name)
    other = None if found else call_values.other_member(schema)
    if other:
        return call_values.any_number(pair(other), comma)
    return call_values.row_of(w.builder, [(pair(member), member.is_required) for member in found], comma)


def tagged(w: CallWriter, name: str, tags: Tags) -> Expr:
    """Arguments as tagged keys and values, and the end of the call."""

    def pair(schema: Schema, member: Member) -> Expr:
        if any(mark and mark in member.key for mark in (tags.key_end, tags.attribute)):
            raise unspeakable(w, member.key)
        is_raw = schema_types(properties_of(schema).get(member.key)) == STRING
        raw = member.raw(w.builder, tags.value_end) if is_raw else member.value(w.builder, IN_TAGS)
        return in_tags(w, tags, member.key, raw, is_raw)

    row = w.of_tool(name, lambda schema: members(w, schema, lambda member: pair(schema, member), GAP))
    return in_order(row, GAP, w.markers.expr(tags.call_end))


def in_tags(w: CallWriter, tags: Tags, key: str, value: Expr, is_raw: bool) -> Expr:
    """A key and its value, with the type of the value where the tag has one."""
    declared = Text(tags.attribute + ("true" if is_raw else "false")) if tags.attribute else NOTHING
    line = Text("\n") if tags.padded else NOTHING
    opening = in_order(GAP, w.markers.expr(tags.value_open)) if tags.value_open else NOTHING
    return in_order(
        w.markers.expr(tags.key_open), Text(key) if key else ANY_KEY, declared, w.markers.expr(tags.key_end),
        opening, line, value, line, w.markers.expr(tags.value_end),
    )  # fmt: skip


def unspeakable(w: CallWriter, key: str) -> RequestError:
    return RequestError(
        f"the calls of {w.family.name} cannot write the argument {key!r}; give it another name", field="tools"
    )


def bare_keys(w: CallWriter, name: str) -> Expr:
    quote, closing = '<|"|>', str(w.family.call[-1])
    return w.whole(name, call_values.bare_notation(w.markers, quote, closing))


Writer: TypeAlias = Callable[[CallWriter, str], Expr]
SLOTS: Mapping[Slot, Writer] = {
    Slot.NAME: lambda w, name: Text(name),
    Slot.ID: lambda w, name: ID,
    Slot.NAME_AND_COUNT: lambda w, name: in_order(f"functions.{name}:", Repeat(DIGIT, 1, 3)),
    Slot.ARGUMENTS: lambda w, name: w.whole(name),
    Slot.BARE_KEYS: bare_keys,
}
# Slots of several calls. Where a marker may precede JSON or Python, JSON is the form of a request's tools,
# and a bracket begins Python.
LISTED: Mapping[Step, Callable[[CallWriter], Expr]] = {
    Slot.CALLS: lambda w: listed(w, named_call(w)),
    Slot.KEYED_CALLS: lambda w: listed(w, keyed_call(w)),
    Slot.PYTHON: python_calls,
    Slot.CALLS_OR_PYTHON: lambda w: one_by_one(w, named_call(w)),
}
