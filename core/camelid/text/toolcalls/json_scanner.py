"""An incremental JSON (RFC 8259) validator that finds the end of a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# Python's json module fails at about 1,000 levels; a tool must be able to read its arguments.
MAX_DEPTH = 200
STRUCTURE = frozenset("{}[],")
PLAIN = re.compile(r'[^"\\\x00-\x1f]*')  # the unescaped characters of a string


def _row(*rules: tuple[Iterable[str], str]) -> Mapping[str, str]:
    return {char: state for chars, state in rules for char in chars}


def _strings() -> dict[str, Mapping[str, str]]:
    """The states of a string, for keys and values, by the state that follows."""
    table: dict[str, Mapping[str, str]] = {}
    for text, after in (("key", "colon"), ("text", "after")):
        table[text] = _row(('"', after), ("\\", f"{text} escape"))
        table[f"{text} escape"] = _row(('"\\/bfnrt', text), ("u", f"{text} 4"))
        for left in (4, 3, 2, 1):
            table[f"{text} {left}"] = _row(
                ("0123456789abcdefABCDEF", f"{text} {left - 1}" if left > 1 else text)
            )
    return table


def _words() -> dict[str, Mapping[str, str]]:
    """A state for each proper prefix of true, false and null."""
    return {
        word[:end]: _row((word[end], word[: end + 1] if end + 1 < len(word) else "after"))
        for word in ("true", "false", "null")
        for end in range(1, len(word))
    }


DIGITS = "0123456789"
AFTER = ((" \t\n\r", "after"), (",", ","), ("}", "}"), ("]", "]"))
VALUE = (
    ("{", "{"), ("[", "["), ('"', "text"), ("-", "minus"), ("0", "zero"), ("123456789", "integer"),
    ("t", "t"), ("f", "f"), ("n", "n"),
)  # fmt: skip
EXPONENT = (("eE", "exponent"),)
# State -> character -> next state. The characters of STRUCTURE are not states: `_nest` handles them.
STEPS: Mapping[str, Mapping[str, str]] = {
    "value": _row((" \t\n\r", "value"), *VALUE),
    "first value": _row((" \t\n\r", "first value"), *VALUE, ("]", "]")),
    "first key": _row((" \t\n\r", "first key"), ('"', "key"), ("}", "}")),
    "next key": _row((" \t\n\r", "next key"), ('"', "key")),
    "colon": _row((" \t\n\r", "colon"), (":", "value")),
    "after": _row(*AFTER),
    "minus": _row(("0", "zero"), ("123456789", "integer")),
    "zero": _row((".", "point"), *EXPONENT, *AFTER),
    "integer": _row((DIGITS, "integer"), (".", "point"), *EXPONENT, *AFTER),
    "point": _row((DIGITS, "fraction")),
    "fraction": _row((DIGITS, "fraction"), *EXPONENT, *AFTER),
    "exponent": _row(("+-", "sign"), (DIGITS, "power")),
    "sign": _row((DIGITS, "power")),
    "power": _row((DIGITS, "power"), *AFTER),
    **_strings(),
    **_words(),
}
NUMBER_ENDS = frozenset({"zero", "integer", "fraction", "power"})


class JsonScanner:
    """A scanner of one value.

    Time is linear in the text; memory is one character per level, at most MAX_DEPTH.
    """

    def __init__(self) -> None:
        self.done = False
        self.broken = False
        self._state = "value"
        self._nested: list[str] = []

    def feed(self, text: str, at: int) -> int:
        """Scans `text` from `at`; returns the end of the value, of its valid part (`broken`), or of `text`.

        A number outside all brackets ends before the next character.
        """
        while at < len(text) and not self.done:
            if self._state in {"text", "key"}:
                at = self._plain(text, at)
                if at == len(text):
                    break
            if not self._step(text[at]):
                break
            at += 1
        return at

    def end(self) -> bool:
        """True if the value is complete when no more text follows."""
        return self.done or (not self._nested and self._state in NUMBER_ENDS)

    def _plain(self, text: str, at: int) -> int:
        found = PLAIN.match(text, at)
        return found.end() if found else at

    def _step(self, char: str) -> bool:
        """Advances by a character; returns False if the character is not part of the value."""
        state = STEPS[self._state].get(char)
        if self._state in NUMBER_ENDS and not self._nested and state in {None, "after", *STRUCTURE}:
            self.done = True
            return False
        if state is None or (state in STRUCTURE and not self._nest(state)):
            self.broken = self.done = True
            return False
        if state not in STRUCTURE:
            self._state = state
        self.done = self._state == "after" and not self._nested
        return True

    def _nest(self, char: str) -> bool:
        """Opens, continues or closes an object or array; returns False if that is invalid here."""
        nested = self._nested
        if char == ",":
            self._state = "next key" if nested[-1] == "}" else "value"
        elif char in "{[":
            self._state = "first key" if char == "{" else "first value"
            nested.append("}" if char == "{" else "]")
        elif nested.pop() == char:
            self._state = "after"
        else:
            return False
        return len(nested) <= MAX_DEPTH


def is_json(text: str) -> bool:
    """True if the whole text is one JSON value without trailing space."""
    scanner = JsonScanner()
    return scanner.feed(text, 0) == len(text) and scanner.end() and not scanner.broken
