"""GBNF grammars with texts that match and texts that do not; a small vocabulary; recognizers.

The recognizers share no code with the engine: derivatives (Brzozowski 1964) of the rules, by characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from camelid.text.grammar.rules import (
    Chars,
    Choice,
    Expr,
    Range,
    Ref,
    Repeat,
    Rules,
    Sequence,
    Text,
    Tokens,
)


@dataclass
class FakeTokenizer:
    """The parts of a tokenizer that a grammar needs."""

    tokens: list[bytes]
    control: frozenset[int] = frozenset()
    eos_ids: frozenset[int] = frozenset()

    @property
    def vocab_size(self) -> int:
        return len(self.tokens)

    def token_bytes(self, token_id: int) -> bytes:
        return self.tokens[token_id]

    def is_control(self, token_id: int) -> bool:
        return token_id in self.control


WORDS = r"""a b c ab abc bca aab ba "a": {"a": "b" "," } }, ]] [1, true} null 12 1.5 -3 ), (( a+b \" \n
\u00 ": x"y é ée 日本 本語 日 😀 aé the cat words 1.e4 Nf3 // ,, ;""".split()  # noqa: SIM905
PIECES = [b"\xc3", b"\xe6", b"\xe6\x97", b"\x97\xa5", b"\xa5", b"a\xc3", b"\xa9b", b"\xf0\x9f", b"\x98\x80x"]
BROKEN = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"a\xffb", b"\xf4\x90\x80\x80", b"\xc3a"]
SPACES = [b" ", b"  ", b" " * 40, b"\n", b"\n\n", b"\t", b" a", b" the", b"a" * 36, b"\r\n"]
ALONE = [bytes([byte]) for byte in range(0x21, 0x7F)]


def small_vocab() -> FakeTokenizer:
    """Tokens of one or more characters, of partial characters, and invalid UTF-8; EOS is 0, control tokens 1
    and 2.
    """
    text = [word.encode() for word in WORDS] + PIECES + BROKEN + SPACES
    text += [data for data in ALONE if data not in text] + [b"ab"]  # two tokens of equal bytes
    return FakeTokenizer([b"</s>", b"<think>", b"</think>", *text], frozenset({0, 1, 2}), frozenset({0}))


@dataclass(frozen=True)
class Case:
    name: str
    grammar: str
    matched: tuple[str, ...]
    refused: tuple[str, ...] = ()
    regex: str | None = None  # the same language in Python's `re`, for regular grammars
    tokens: Mapping[str, int] = field(default_factory=dict[str, int])

    def __str__(self) -> str:
        return self.name


JSON = r"""
root   ::= ws value
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (pair ("," ws pair)*)? "}" ws
pair   ::= string ":" ws value
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" char* "\"" ws
char   ::= [^"\\\x00-\x1f\x7f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws     ::= [ \t\n]*
"""
CASES = [
    Case("literal", 'root ::= "abc"', ("abc",), ("", "ab", "abcc"), "abc"),
    Case("empty", 'root ::= ""', ("",), ("a",), ""),
    Case("alternatives", 'root ::= "ab" | "a" | "bca" |', ("", "a", "ab"), ("b", "aab"), "a|ab|bca|"),
    Case("group", 'root ::= ("a" | "b") "c"', ("ac", "bc"), ("c", "abc"), "(?:a|b)c"),
    Case("star", 'root ::= "ab"*', ("", "abab"), ("aba",), "(?:ab)*"),
    Case("plus", "root ::= [ab]+", ("a", "abba"), ("", "c"), "[ab]+"),
    Case("optional", 'root ::= "a"? "b"', ("b", "ab"), ("a", "aab"), "a?b"),
    Case("exactly", 'root ::= "ab"{2}', ("abab",), ("ab", "ababab"), "(?:ab){2}"),
    Case("at least", "root ::= [ab]{2,}", ("ab", "aaab"), ("a",), "[ab]{2,}"),
    Case("between", "root ::= [ab]{1,3}", ("a", "aba"), ("", "abab"), "[ab]{1,3}"),
    Case("at most", "root ::= [ab]{0,2} [c]", ("c", "abc"), ("abac",), "[ab]{0,2}c"),
    Case("none", 'root ::= "a"{0} "b"', ("b",), ("ab",), "b"),
    Case("spaced counts", 'root ::= "a" { 1 , 2 }', ("a", "aa"), ("",), "a{1,2}"),
    Case("long", "root ::= [a-c]{3,80}", ("abc", "a" * 80), ("ab", "a" * 81), "[a-c]{3,80}"),
    Case("long min", "root ::= [a-c]{60,100}", ("b" * 60, "a" * 100), ("a" * 59, "a" * 101), "[a-c]{60,100}"),
    Case("long tail", 'root ::= "\\"" [^"]{0,70} "\\""', ('""', '"é日"'), ('"',), '"[^"]{0,70}"'),
    Case("nested counts", 'root ::= ([ab]{1,2} "c"){2,3}',
         ("acbc", "abcacbc"), ("ac",), "(?:[ab]{1,2}c){2,3}"),
    Case("empty repeats", 'root ::= ("a"? "b"?){0,40} "c"', ("c", "abac"), ("ab",), "[ab]{0,80}c"),
    Case("star of star", 'root ::= (("a"*)* "b"*)*', ("", "aabba"), ("c",), "[ab]*"),
    Case("negated", 'root ::= [^a"\\n]+', ("b", "é日\t"), ("a", "\n"), '[^a"\n]+'),
    Case("any", "root ::= . .", ("ab", "\n日"), ("a", "abc"), r"(?s:..)"),
    Case("dash", r"root ::= [a\-c-] [\]\[^]", ("a]", "-^", "c["), ("b]",), r"[ac-][]\[^]"),
    Case("escapes", r'root ::= "\x61\u00e9\U0001f600\t\r\n\\\""', ('aé😀\t\r\n\\"',), ("a",), None),
    Case("unicode", "root ::= [ぁ-ん日本語]+ [à-ÿ]?", ("日本", "日é"), ("é", "a"), "[ぁ-ん日本語]+[à-ÿ]?"),
    Case("planes", "root ::= [😀-🙏]+ | [\\u0700-\\U00010010]",
         ("😀😃", "日"), ("a",), "[😀-🙏]+|[\u0700-\U00010010]"),
    Case("two bytes", r"root ::= [\u0080-\u07ff]+", ("é", "éé"), ("日", "a"), "[\u0080-\u07ff]+"),
    Case("rules", 'root ::= x y-2 x\nx ::= "a"\ny-2 ::= "b" | "c"', ("aba", "aca"), ("ab",), "a(?:b|c)a"),
    Case("nullable rules", 'root ::= e x e\ne ::= ws "c"?\nws ::= " "*\nx ::= "a" ws',
         ("a", " ca  c"), ("c",),
         " *c?a *(?: *c?)"),
    Case("comments", '# first\nroot ::= ( # in\n  "a" # here\n  |\n  "b"\n) # end\n\n',
         ("a", "b"), ("",), "a|b"),
    Case("borders of lengths",
         r"root ::= [\x7f-\x80\u07ff-\u0800\ud7fe-\ud7ff\ue000-\ue001\uffff-\U00010000]+",
         ("\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000",),
         ("~", "\x81", "\u07fe", "\u0801", "\ud7fd", "\ue002", "\ufffe", "\U00010001"),
         "[\x7f-\x80\u07ff-\u0800\ud7fe-\ud7ff\ue000-\ue001\uffff-\U00010000]+"),
    Case("comments before a lone CR", 'root ::= x # one\rx ::= "a" # two\r', ("a",), ("",), "a"),
    Case("lines", 'root ::=\n  "a" |\n  "b" x\r\nx ::= "c"', ("a", "bc"), ("b",), "a|bc"),
    Case("redefined", 'root ::= "a"\nroot ::= "b"', ("b",), ("a",), "b"),
    Case("overlap", 'root ::= ([a-b]* "a" | "ab" [b-c]* | "abc")+', ("a", "abc"), ("c",),
         "(?:[ab]*a|ab[bc]*|abc)+"),
    Case("parentheses", 'root ::= "" | "(" root ")" root', ("", "(())()"), ("(", ")(")),
    Case("palindrome", 'root ::= "a" root "a" | "b" root "b" | "c"', ("c", "abcba"), ("abcab",)),
    Case("right list", 'root ::= "a" ("," root)?', ("a", "a,a,a"), ("a,", ",a")),
    Case("ambiguous", 'root ::= "a" | "a" root root', ("a", "aaa", "aaaaa"), ("", "aa", "aaaa")),
    Case("mutual", 'root ::= "a" x | "b"\nx ::= "c" root | root "c"?',
         ("b", "ab", "acb", "aabc"), ("a", "acbcc")),
    Case("arithmetic", 'root ::= (expr "=" ws term "\\n")+\nexpr ::= term ([-+*/] term)*\n'
         'term ::= num | "(" ws expr ")" ws\nnum ::= [0-9]+ ws\nws ::= [ \\t\\n]*',
         ("1=2\n", "(1+2)*3 = 4\n"), ("1+=2\n",)),
    Case("json", JSON, ('{"a": [1, -2.5e3, null]}', ' "\\u00e9\\n日"'), ("{", '{"a" 1}', "01", '"\n"')),
    Case("token by id", 'root ::= <[1]> "a" <[2]>', ()),
    Case("token by text", 'root ::= <think> [^<]* </think> "b"?', (), tokens={"<think>": 1, "</think>": 2}),
    Case("any token but", "root ::= <[1]> !<[2]>* <[2]> .*", ()),
    Case("token or text", 'root ::= ("ab" "c" | <[7]> "b")+', ("abc",)),
]  # fmt: skip


class Recognizer:
    """Texts read character by character: the remaining rules as an expression."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules.rules
        self.root: Expr = Ref(rules.root)

    def after(self, text: Iterable[str], start: Expr | None = None) -> Expr:
        expr = self.root if start is None else start
        for char in text:
            expr = self.derive(expr, ord(char))
        return expr

    def accepts(self, text: str) -> bool:
        return self.is_nullable(self.after(text))

    def is_nullable(self, expr: Expr, inside: frozenset[str] = frozenset()) -> bool:
        match expr:
            case Ref(name):
                return name not in inside and self.is_nullable(self.rules[name], inside | {name})
            case Sequence(parts):
                return all(self.is_nullable(part, inside) for part in parts)
            case Choice(parts):
                return any(self.is_nullable(part, inside) for part in parts)
            case Repeat(part, least):
                return least == 0 or self.is_nullable(part, inside)
            case _:
                return expr == Text("")

    def derive(self, expr: Expr, char: int) -> Expr:
        match expr:
            case Ref(name):
                return self.derive(self.rules[name], char)
            case Text(text):
                return Text(text[1:]) if text and ord(text[0]) == char else NOTHING
            case Chars(ranges):
                return Text("") if any(low <= char <= high for low, high in ranges) else NOTHING
            case Sequence(parts):
                return self.derive_sequence(parts, char)
            case Choice(parts):
                return either(self.derive(part, char) for part in parts)
            case Repeat(part, least, most):
                fewer = None if most is None else most - 1
                rest = Repeat(part, max(least - 1, 0), fewer)
                return NOTHING if most == 0 else then(self.derive(part, char), rest)
            case Tokens():
                return NOTHING

    def derive_sequence(self, parts: tuple[Expr, ...], char: int) -> Expr:
        if not parts:
            return NOTHING
        found = then(self.derive(parts[0], char), Sequence(parts[1:]))
        if self.is_nullable(parts[0]):
            found = either([found, self.derive_sequence(parts[1:], char)])
        return found

    def first(self, expr: Expr) -> list[Range]:
        """The characters that may come next."""
        match expr:
            case Ref(name):
                return self.first(self.rules[name])
            case Text(text):
                return [(ord(text[0]), ord(text[0]))] if text else []
            case Chars(ranges):
                return list(ranges)
            case Choice(parts):
                return [found for part in parts for found in self.first(part)]
            case Sequence(parts):
                rest = self.first(Sequence(parts[1:])) if parts and self.is_nullable(parts[0]) else []
                return (self.first(parts[0]) if parts else []) + rest
            case Repeat(part, _, most):
                return [] if most == 0 else self.first(part)
            case Tokens():
                return []

    def goes_on(self, expr: Expr, data: bytes) -> bool:
        """True if some text of the rest begins with these bytes: whole characters and possibly a
        partial one.
        """
        whole, part = split_utf8(data)
        if part is None:
            return False
        expr = self.after(whole, expr)
        if not part:
            return expr != NOTHING
        low, high = code_points(part)
        return any(first <= high and low <= last for first, last in self.first(expr))


NOTHING = Choice(())


def then(first: Expr, rest: Expr) -> Expr:
    if NOTHING in (first, rest):
        return NOTHING
    parts = [
        p for e in (first, rest) for p in (e.parts if isinstance(e, Sequence) else (e,)) if p != Text("")
    ]
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts)) if parts else Text("")


def either(exprs: Iterable[Expr]) -> Expr:
    parts = dict.fromkeys(p for e in exprs for p in (e.parts if isinstance(e, Choice) else (e,)))
    return next(iter(parts)) if len(parts) == 1 else Choice(tuple(parts))


def split_utf8(data: bytes) -> tuple[str, bytes | None]:
    """Whole characters and the beginning of one more; None where the bytes are no prefix of UTF-8."""
    for n_left in range(4):
        whole, part = data[: len(data) - n_left], data[len(data) - n_left :]
        try:
            text = whole.decode()
        except UnicodeDecodeError:
            continue
        return text, part if not part or code_points(part)[0] >= 0 else None
    return "", None


def code_points(part: bytes) -> Range:
    """First and last character whose UTF-8 begins with `part`; (-1, -1) without any."""
    n_bytes = 2 if part[0] < 0xE0 else 3 if part[0] < 0xF0 else 4
    found: list[int] = []
    for fill in ((0x80, 0xBF), (0xBF, 0x80)):
        for second in range(*fill, 1 if fill[0] < fill[1] else -1):
            data = part + bytes([second, *[fill[0]] * 2])[: n_bytes - len(part)]
            try:
                found.append(ord(data[:n_bytes].decode()))
            except (UnicodeDecodeError, TypeError):
                continue
            break
    return (min(found), max(found)) if found else (-1, -1)
