"""A family's tool calls as the grammar of a whole answer, by `tool_choice`.

- "required": thoughts where the family has them, then at least one call, and nothing else.
- "auto": text, which may at any place become calls; from their opening on they are complete and valid, and
  nothing follows them. Text has no opening otherwise.
- "none": text without an opening.

`parser` reads the same text, so the calls that it finds have known names and arguments by their schemas. An
opening that is spelled out in ordinary tokens counts too, so text has none. A call of llama3 may be JSON at
the beginning of an answer, like an answer that is JSON: "auto" leaves both free, and enforces a call from
<|python_tag|> on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from camelid.errors import RequestError
from camelid.text.grammar.builder import NOTHING, in_order, one_of, optional, pruned
from camelid.text.grammar.rules import Chars, Expr, Repeat, Rules
from camelid.text.toolcalls.call_steps import GAP, CallWriter
from camelid.text.toolcalls.call_values import object_schema
from camelid.text.toolcalls.families import family_named
from camelid.text.toolcalls.family import Family, Slot
from camelid.text.toolcalls.harmony_rules import harmony_rules
from camelid.text.toolcalls.markers import Markers, free_of


def rules_of_calls(description: Mapping[str, Any]) -> Rules:
    """The grammar of an answer.

    The description is JSON: `family` and its pair of `thinking` markers, `tools` (name -> schema of its
    parameters or null), `choice`, `parallel`, `in_reasoning` (the answer begins within thoughts) and
    `controls` (control token -> id, or null for a token that ends the answer). Raises RequestError for a
    schema that cannot be enforced.
    """
    thinking = description["thinking"]
    family = replace(family_named(description["family"]), thinking=tuple(thinking) if thinking else None)
    tools = {name: object_schema(name, found) for name, found in description["tools"].items()}
    markers = Markers(description["controls"])
    writer = CallWriter.of(family, tools, markers, description["parallel"])
    answer = Answer(writer, family, markers, description["in_reasoning"])
    writer.builder.rules["root"] = answer.root(description["choice"])
    rules = pruned(writer.builder.rules, "root")
    if rules is None:
        raise RequestError("tools: no arguments can satisfy their schemas", field="tools")
    return rules


@dataclass(frozen=True, slots=True)
class Answer:
    """Writes the root of a grammar: thoughts, text and calls in order."""

    w: CallWriter
    family: Family
    markers: Markers
    in_reasoning: bool

    def root(self, choice: str) -> Expr:
        if self.family.call[:1] == (Slot.HARMONY,):
            return harmony_rules(self.w, choice)
        return in_order(WRITERS[choice](self), self.end())

    def required(self) -> Expr:
        """Thoughts where the family has them, then calls."""
        first = in_order(GAP, self.calls(may_lack_opening=True))
        opening, closing = self.family.thinking or ("", "")
        if not closing:
            return first
        ways = [in_order(self.markers.expr(closing), GAP, self.calls()), *self.calls_in_thoughts()]
        thoughts = in_order(self.thought(), one_of(*ways))
        if self.in_reasoning:
            return thoughts
        return one_of(first, in_order(GAP, self.markers.expr(opening), thoughts))

    def auto(self) -> Expr:
        """Text and thoughts, then perhaps calls."""
        return self.text([self.calls()])

    def none(self) -> Expr:
        """Text and thoughts."""
        return self.text([])

    def text(self, calls: list[Expr]) -> Expr:
        """Text and thoughts, ended by nothing or by calls, also within thoughts."""
        opening, closing = self.family.thinking or ("", "")
        inside = in_order(self.thought(), one_of(NOTHING, *(self.calls_in_thoughts() if calls else [])))
        items = [self.markers.expr(marker) for marker in self.silent()]
        ends = [NOTHING, *calls]
        if opening:
            items.append(in_order(self.markers.expr(opening), self.thought(), self.markers.expr(closing)))
            ends.append(in_order(self.markers.expr(opening), inside))
        free = self.free("free", {*self.family.openings, opening} - {""})
        whole = self.to_user(in_order(free, Repeat(in_order(one_of(*items), free)), one_of(*ends)), calls)
        if not self.in_reasoning:
            return whole
        return one_of(inside, in_order(self.thought(), self.markers.expr(closing), whole))

    def to_user(self, text: Expr, calls: list[Expr]) -> Expr:
        """The text, with the user as its recipient where the family names one; a call names a tool."""
        if not self.family.no_tool:
            return text
        opening = optional(self.markers.expr(str(self.family.call[0])))
        ways = [in_order(GAP, self.calls(may_lack_opening=True))] if calls else []
        return one_of(in_order(opening, self.family.no_tool, "\n", text), *ways)

    def silent(self) -> Iterable[str]:
        """Control tokens between texts that stand for no text and for no call."""
        return filter(self.markers.has_token, (*self.family.dropped, *(self.family.answer or ())))

    def thought(self) -> Expr:
        """Text up to the end of thoughts."""
        _, closing = self.family.thinking or ("", "")
        openings = self.family.openings if self.family.calls_end_thoughts else ()
        return self.free("thought", {closing, *openings, *self.family.ends} - {""})

    def free(self, name: str, markers: set[str]) -> Expr:
        """Text without the markers."""

        def make() -> Expr:
            return self.w.builder.automaton(free_of(markers), Chars)

        return self.w.builder.shared(name, ("free", name), make)

    def calls_in_thoughts(self) -> list[Expr]:
        """Calls that end the thoughts before them, where the family has such."""
        return [self.calls()] if self.family.calls_end_thoughts else []

    def calls(self, *, may_lack_opening: bool = False) -> Expr:
        """One or more calls; that at the beginning may lack its opening in a family that has none for it."""
        bare = may_lack_opening and self.family.primed is not None

        def make() -> Expr:
            section = self.w.section()
            first = one_of(section, self.w.unopened()) if bare else section
            return in_order(first, Repeat(in_order(GAP, section))) if self.w.parallel else first

        return self.w.builder.shared("calls", ("calls", bare), make)

    def end(self) -> Expr:
        """The end of the turn, where its token does not end the answer by itself."""
        ends = [self.markers.expr(marker) for marker in self.family.ends if self.markers.has_token(marker)]
        return optional(one_of(*ends)) if ends else NOTHING


WRITERS: Mapping[str, Callable[[Answer], Expr]] = {
    "required": Answer.required,
    "auto": Answer.auto,
    "none": Answer.none,
}
