"""Pre-tokenizers of a tokenizer.json: the cut of text into words, and the prefix of words.

Source: huggingface/tokenizers, docs of `pre_tokenizers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from camelid.errors import UnsupportedModelError
from camelid.text.tokenizers import words
from camelid.text.tokenizers.bpe import TO_ALPHABET
from camelid.text.tokenizers.hf.regexes import read_pattern
from camelid.text.tokenizers.hf.values import SPACE, Json, count, flag, refuse, row, steps, text
from camelid.text.tokenizers.pipeline import Prepare, Split, unchanged, whole
from camelid.text.tokenizers.published import GPT2
from camelid.text.tokenizers.splitting import Spans
from camelid.text.tokenizers.splitting import spans as published_spans

Cut = Callable[[str], Iterable[str]]
Behavior = Callable[[Iterable[words.Piece]], list[str]]

MAX_LENGTH = 1 << 20  # the limit of FixedLength


@dataclass(frozen=True, slots=True)
class Step:
    """One step: the cut of a word. `prepare` runs before it on a stretch of text, if the step comes first."""

    cut: Cut
    prepare: Prepare | None = None
    spells_bytes: bool = False


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """All steps combined. `spells_bytes`: the words are not in the byte alphabet yet."""

    prepare: Prepare = unchanged
    split: Split = whole
    spells_bytes: bool = False


def read_pre_tokenizer(tokenizer: Json) -> PreTokenizer:
    """All steps combined. Raises ModelFormatError, UnsupportedModelError."""
    named = steps(tokenizer, "pre_tokenizer", "pretokenizers")
    found = [row(PRE_TOKENIZERS, kind, "pre-tokenizer")(step) for kind, step in named]
    if any(step.prepare for step in found[1:]):
        refuse("pre-tokenizer", "needs the start of the text after words are cut", named[-1][1])
    cuts = [step.cut for step in found]
    # Spelling bytes in the last step keeps words short, and repeated words need no spelling.
    last = bool(found) and found[-1].spells_bytes and sum(step.spells_bytes for step in found) == 1
    cuts = [spelling(step) if step.spells_bytes and not last else step.cut for step in found]
    prepare = found[0].prepare if found else None
    return PreTokenizer(prepare or unchanged, partial(_split, cuts), last)


def _split(cuts: list[Cut], text: str) -> Iterable[str]:
    found: Iterable[str] = (text,) if text else ()
    for cut in cuts:
        found = [part for word in found for part in cut(word)]
    return found


def spelling(step: Step) -> Cut:
    """The step's words in the byte alphabet, as the steps after ByteLevel receive them."""
    return lambda word: map(spelled, step.cut(word))


def spelled(word: str) -> str:
    """The word's bytes in the byte alphabet."""
    return word.encode().decode("latin-1").translate(TO_ALPHABET)


def _byte_level(step: Json) -> Step:
    prefix = flag(step, "add_prefix_space", default=True)
    cut = partial(_pieces, published_spans(GPT2), words.isolated, False) if _uses_regex(step) else whole
    return Step(partial(_prefixed, cut, " ") if prefix else cut, spells_bytes=True)


def _uses_regex(step: Json) -> bool:
    return flag(step, "use_regex", default=True)


def _prefixed(cut: Cut, prefix: str, word: str) -> Iterable[str]:
    return cut(word if word.startswith(prefix) else prefix + word)


def _pieces(spans: Spans, behavior: Behavior, invert: bool, word: str) -> list[str]:
    return behavior(_marked(spans(word), word, invert))


def _marked(spans: Iterable[tuple[int, int]], word: str, invert: bool) -> Iterator[words.Piece]:
    """The matches and the gaps between them, without empty pieces."""
    end = 0
    for start, stop in spans:
        if end < start:
            yield word[end:start], invert
        if start < stop:
            yield word[start:stop], not invert
        end = stop
    if end < len(word):
        yield word[end:], invert


def _split_step(step: Json) -> Step:
    spans = read_pattern(step.get("pattern"), "pre_tokenizer.pattern")
    return Step(partial(_pieces, spans, _behavior(step), flag(step, "invert")))


def _behavior(step: Json) -> Behavior:
    return row(words.BEHAVIORS, text(step, "behavior"), "behavior")


def _metaspace(step: Json) -> Step:
    mark = text(step, "replacement", SPACE)
    old = "always" if flag(step, "add_prefix_space", default=True) else "never"
    scheme = text(step, "prepend_scheme", old)
    if scheme not in ("always", "first", "never") or len(mark) != 1:
        raise UnsupportedModelError(
            f"tokenizer: Metaspace with prepend_scheme {scheme[:40]!r} and replacement {mark[:40]!r}, "
            "expected always, first or never, and one character",
            kind="tokenizer",
            name="Metaspace",
            known=("always", "first", "never"),
        )
    cut = whole
    if flag(step, "split", default=True):
        cut = partial(_pieces, published_spans(_escaped(mark)), words.merged_with_next, False)
    if scheme == "first":
        return Step(cut, lambda text, opens: _marked_spaces(text, mark, opens))
    return Step(lambda word: cut(_marked_spaces(word, mark, scheme == "always")))


def _escaped(char: str) -> str:
    return f"\\U{ord(char):08x}"


def _marked_spaces(text: str, mark: str, prefix: bool) -> str:
    text = text.replace(" ", mark)
    return mark + text if prefix and text and not text.startswith(mark) else text


def _char_delimiter(step: Json) -> Step:
    return Step(partial(words.char_delimiter_split, delimiter=_one_char(text(step, "delimiter"), step)))


def _one_char(char: str, step: Json) -> str:
    if len(char) != 1:
        refuse("pre-tokenizer", "has a delimiter that is not one character", step)
    return char


def _fixed_length(step: Json) -> Step:
    return Step(partial(words.fixed_length, length=max(count(step, "length", 5, MAX_LENGTH), 1)))


def _punctuation(step: Json) -> Step:
    behavior = text(step, "behavior", "Isolated")
    row(words.BEHAVIORS, behavior, "behavior")
    return Step(partial(words.punctuation, behavior=behavior))


PRE_TOKENIZERS: Mapping[str, Callable[[Json], Step]] = {
    "BertPreTokenizer": lambda _: Step(words.bert_words),
    "ByteLevel": _byte_level,
    "CharDelimiterSplit": _char_delimiter,
    "Digits": lambda step: Step(partial(words.digits, individual_digits=flag(step, "individual_digits"))),
    "FixedLength": _fixed_length,
    "Metaspace": _metaspace,
    "Punctuation": _punctuation,
    "Split": _split_step,
    "UnicodeScripts": lambda _: Step(words.unicode_scripts),
    "Whitespace": lambda _: Step(words.whitespace),
    "WhitespaceSplit": lambda _: Step(words.whitespace_split),
}
