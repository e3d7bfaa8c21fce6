"""JSON (RFC 8259) checked while it comes: where a value ends, and whether it is one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# Python's own json module gives up at about 1,000; what calls a tool must be readable to the tool.
MAX_DEPTH = 200
STRUCTURE = frozenset("{}[],")
PLAIN = re.compile(r'[^"\\\x00-\x1f]*')  # what a string holds as it is


def _row(*rules: tuple[Iterable[str], str]) -> Mapping[str, str]:
    return {char: state for chars, state in rules for char in chars}


def _strings() -> dict[str, Mapping[str, str]]:
    """States of a string, for keys and for values, by what follows."""
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
    """A state for each beginning of true, false and null."""
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
# State -> character -> next state; the characters of STRUCTURE, as states, are what `_nest` does.
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
    """Reads one value. Time is linear in the text; memory is one character a level, at most MAX_DEPTH."""

    def __init__(self) -> None:
        self.done = False
        self.broken = False
        self._state = "value"
        self._nested: list[str] = []

    def feed(self, text: str, at: int) -> int:
        """Where the value's text ends in `text`, from `at`: its last character, the first that breaks it
        (then `broken`), or the end of `text`. A number outside all brackets ends before what follows."""
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
        """Whether the value is whole, if nothing follows."""
        return self.done or (not self._nested and self._state in NUMBER_ENDS)

    def _plain(self, text: str, at: int) -> int:
        found = PLAIN.match(text, at)
        return found.end() if found else at

    def _step(self, char: str) -> bool:
        """Whether the character belongs to the value."""
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
        """Open, close or go on in an object or array; False if it may not be done here."""
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
    """Whether the whole text is one JSON value, with no space after it."""
    scanner = JsonScanner()
    return scanner.feed(text, 0) == len(text) and scanner.end() and not scanner.broken
