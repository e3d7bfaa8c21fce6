"""The full edition's vocabulary: the first edition's 1024 tokens with their ids, 60 more merges, and four tags."""

import json
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from tokenizers import AddedToken, Tokenizer

from cria.tokenizer import FIRST_SIZE, TAGS, VOCAB_SIZE

Word = tuple[str, ...]
Pair = tuple[str, str]


def counted_words(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[Word]:
    """Frequency of each word, keyed by its current tokens."""
    words: Counter[Word] = Counter()
    for text in texts:
        for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text):
            words[piece] += 1
    return Counter({tuple(t.value for t in tokenizer.model.tokenize(word)): n for word, n in words.items()})


def merged(word: Word, pair: Pair) -> Word:
    """A word with every occurrence of a pair merged, from the left."""
    out: list[str] = []
    for token in word:
        if out and (out[-1], token) == pair:
            out[-1] += token
        else:
            out.append(token)
    return tuple(out)


def next_merges(words: Counter[Word], n: int, taken: set[str]) -> list[Pair]:
    """The n most frequent pairs, recounted after each merge; ties go to the first in sort order.

    No pair contains a hyphen, so that spelled words keep one token per letter.
    """
    merges: list[Pair] = []
    while len(merges) < n:
        pairs: Counter[Pair] = Counter()
        for word, times in words.items():
            for pair in pairwise(word):
                pairs[pair] += times
        best = min(
            (p for p in pairs if "-" not in p and "".join(p) not in taken), key=lambda p: (-pairs[p], p)
        )
        merges.append(best)
        grown: Counter[Word] = Counter()
        for word, times in words.items():
            grown[merged(word, best)] += times
        words = grown
    return merges


def grown(tokenizer: Tokenizer, texts: Iterable[str]) -> Tokenizer:
    """The tokenizer extended with merges trained on texts, and with the tags, which are parsed in any text."""
    room = VOCAB_SIZE - FIRST_SIZE - len(TAGS)
    state = json.loads(tokenizer.to_str())
    vocab = state["model"]["vocab"]
    merges = next_merges(counted_words(tokenizer, texts), room, set(vocab))
    state["model"]["merges"] += [list(pair) for pair in merges]
    vocab.update({"".join(pair): FIRST_SIZE + i for i, pair in enumerate(merges)})
    bigger = Tokenizer.from_str(json.dumps(state))
    bigger.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    return bigger
