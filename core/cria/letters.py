"""Turns that spell a word, reverse it or count its letters."""

from random import Random

from cria import frames, lexicon
from cria.phrasing import expand_all, join, typed

Turn = tuple[str, str]
REVERSED_LENGTH = 6  # longest word to reverse, in letters

SPELL = expand_all("""
spell [|the word ]{w} [|for me|please|now|letter by letter]
[can|could|will|would] you spell [|the word ]{w}
how [do|would] [you|i|we] spell [|the word ]{w}
how is [|the word ]{w} [spelled|spelt|written]
[what are|name|list|give me|tell me|show me|say] the letters [of|in] [|the word ]{w}
[which|what] letters [are in|does|make up] [|the word ]{w} [|have]
write [|the word ]{w} [letter by letter|one letter at a time|with dashes]
[the spelling|spelling] of [|the word ]{w}
i [want|need|would like] [the spelling of|to spell|to know how to spell] {w}
[show|tell] me how to [spell|write] {w}
split {w} [into letters|into its letters]
{w}, spell it
{w} is spelled
""")
REVERSE = expand_all("""
reverse [|the word ]{w} [|for me|please|now]
[can|could|will|would] you reverse [|the word ]{w}
[write|say|spell|read|type] [|the word ]{w} [backwards|backward|in reverse|from the end|the other way round]
[what is|what's|give me|tell me|show me] [|the word ]{w} [backwards|backward|in reverse|reversed|spelled backwards]
[what is|tell me|show me] the reverse of [|the word ]{w}
how [do you|would you|do i] [spell|write|say] {w} [backwards|in reverse]
turn [|the word ]{w} [around|round|back to front]
{w} [backwards|reversed|in reverse]
{w}, [reverse it|but backwards|now backwards]
[flip|mirror] [|the word ]{w}
the reverse of {w} is
i [want|need] {w} [backwards|reversed]
""")
COUNT = expand_all("""
how many letters [are in|are there in|does|has] [|the word ]{w} [|have|got]
how many letters {w} [has|have]
count the letters [of|in] [|the word ]{w} [|for me|please]
[can|could|will] you count the letters [of|in] {w}
[what is|tell me|give me|say] the number of letters [of|in] [|the word ]{w}
[number|count] of letters in {w}
how long is the word {w}
[what is|tell me] the length of [the word ]{w}
{w}: how many letters
{w} has how many letters
tell me how many letters [are in|there are in] {w}
the letters of {w}, how many are there
i want to know how many letters {w} has
""")


def spelled(word: str) -> str:
    """`cat` as `c-a-t`."""
    return "-".join(word)


def spelling_answer(word: str) -> str:
    """The answer to a spelling question."""
    return f"{spelled(word)}."


def reversing_answer(word: str) -> str:
    """The answer to a reversing question: the letters in order, then reversed."""
    return f"{spelled(word)} backwards is {spelled(word[::-1])}."


def counting_answer(word: str) -> str:
    """The answer to a counting question: the letters, then their number."""
    return f"{spelled(word)} has {len(word)} letters."


def asked(template: str, word: str, rng: Random) -> str:
    """A question about a word, sometimes quoted, never all upper case."""
    quote = rng.choice(("", "", "", '"', "'"))
    prefix = rng.choice(frames.PREFIXES) if rng.random() < 0.25 else ""
    text = join(prefix, template.strip().format(w=quote + word + quote)) + rng.choice(frames.COMMON_SUFFIXES)
    made = typed(text, rng)
    return text if made.isupper() else made


def spelling(rng: Random) -> Turn:
    """A spelling question and its answer."""
    word = lexicon.letter_word(rng)
    return asked(rng.choice(SPELL), word, rng), spelling_answer(word)


def reversing(rng: Random) -> Turn:
    """A reversing question and its answer."""
    word = next(word for word in iter(lambda: lexicon.letter_word(rng), "") if len(word) <= REVERSED_LENGTH)
    return asked(rng.choice(REVERSE), word, rng), reversing_answer(word)


def counting(rng: Random) -> Turn:
    """A counting question and its answer."""
    word = lexicon.letter_word(rng)
    return asked(rng.choice(COUNT), word, rng), counting_answer(word)
