"""The answers of gpt-oss as rules: messages with a channel, and a recipient where a message is a call."""

from __future__ import annotations

from camelid.text.grammar.builder import in_order, one_of, optional
from camelid.text.grammar.rules import Chars, Expr, Repeat, Text
from camelid.text.toolcalls.call_steps import CallWriter
from camelid.text.toolcalls.markers import free_of


def harmony_rules(w: CallWriter, choice: str) -> Expr:
    """The whole answer. Thoughts may come first; without a demand for a call, text for the user too.

    A call ends the answer, so `parallel` changes nothing.
    """
    free = w.builder.add("free", w.builder.automaton(free_of(w.family.markers), Chars))
    following = in_order(w.markers.expr("<|end|>"), w.markers.expr("<|start|>"), "assistant")
    thoughts = message(w, "analysis", free, following)
    if choice == "required":
        return in_order(Repeat(thoughts), any_call(w))
    before = Repeat(one_of(thoughts, message(w, "commentary", free, following)))
    answer = message(w, "final", free)
    return in_order(before, one_of(answer, any_call(w)) if choice == "auto" else answer)


def message(w: CallWriter, channel: str, *parts: Expr) -> Expr:
    return in_order(w.markers.expr("<|channel|>"), channel, w.markers.expr("<|message|>"), *parts)


def any_call(w: CallWriter) -> Expr:
    """A message to one of the tools."""
    return one_of(*(call(w, name) for name in w.tools))


def call(w: CallWriter, name: str) -> Expr:
    """A message to a tool, with its recipient before or behind the channel, and optionally its type."""
    channel, to = w.markers.expr("<|channel|>"), f" to=functions.{name}"
    typed = in_order(optional(Text(" ")), w.markers.expr("<|constrain|>"), "json")
    kind = optional(one_of(typed, Text(" json")))
    head = one_of(in_order(to, channel, one_of(Text("commentary"), Text("analysis"))),
                  in_order(channel, "commentary", to))  # fmt: skip
    return in_order(head, kind, w.markers.expr("<|message|>"), w.whole(name))
