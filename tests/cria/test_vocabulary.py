"""The second edition's vocabulary: old ids stay, the most frequent pairs are merged, control tags
come last.
"""

import json
from collections import Counter
from itertools import islice, pairwise

import pytest

from cria import conversations

tokenizers = pytest.importorskip("tokenizers")
tokenizer = pytest.importorskip("cria.tokenizer")
vocabulary = pytest.importorskip("cria.vocabulary")


@pytest.fixture(scope="module")
def texts():
    talks = islice(conversations.conversations("vocabulary"), 1000)
    return [message["content"] for talk in talks for message in tokenizer.offered(talk)]


@pytest.fixture(scope="module")
def first(texts):
    tok = tokenizer.blank_tokenizer()
    specials = [tokenizers.AddedToken(token, special=True) for token in tokenizer.SPECIALS]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=tokenizer.FIRST_SIZE, special_tokens=specials, show_progress=False,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    tok.train_from_iterator([text for text in texts if not {"{", "-"} & set(text)], trainer)
    assert tok.get_vocab_size() == tokenizer.FIRST_SIZE
    return tok


@pytest.fixture(scope="module")
def grown(first, texts):
    return vocabulary.grown(first, texts)


def test_old_ids_stay_and_tags_come_last(first, grown):
    assert {token: i for token, i in grown.get_vocab().items() if i < 1024} == first.get_vocab()
    assert grown.get_vocab_size() == tokenizer.VOCAB_SIZE == 1088
    assert [grown.id_to_token(i) for i in range(1084, 1088)] == list(tokenizer.TAGS)
    merges = [tuple(pair) for pair in json.loads(grown.to_str())["model"]["merges"]]
    before = [tuple(pair) for pair in json.loads(first.to_str())["model"]["merges"]]
    assert merges[: len(before)] == before
    assert [grown.token_to_id(a + b) for a, b in merges[len(before) :]] == list(range(1024, 1084))


def test_the_first_new_merge_is_the_most_frequent_pair(first, grown, texts):
    pairs = Counter(pair for text in texts for word in words_of(first, text) for pair in pairwise(word))
    best = max(n for pair, n in pairs.items() if "-" not in pair)
    merge = tuple(json.loads(grown.to_str())["model"]["merges"][tokenizer.FIRST_SIZE - 256 - 3])
    assert pairs[merge] == best


def words_of(tok, text):
    return [
        [t.value for t in tok.model.tokenize(word)] for word, _ in tok.pre_tokenizer.pre_tokenize_str(text)
    ]


def test_texts_take_fewer_tokens_and_round_trip(first, grown, texts):
    ours, theirs = (sum(len(tok.encode(text).ids) for text in texts) for tok in (grown, first))
    assert ours < 0.85 * theirs
    assert all(
        grown.decode(grown.encode(text).ids, skip_special_tokens=False) == text for text in texts[:300]
    )


def test_spelled_words_have_one_token_per_letter_and_tags_one_token(grown):
    assert grown.encode("t-h-e-r-e").tokens == list("t-h-e-r-e")
    assert grown.encode('a<tool_call>{"b').tokens[1] == "<tool_call>"


@pytest.mark.parametrize(
    ("word", "merged"), [("aab", "aa b"), ("aaa", "aa a"), ("aaaa", "aa aa"), ("baab", "b aa b"), ("a", "a")]
)
def test_merged(word, merged):
    assert vocabulary.merged(tuple(word), ("a", "a")) == tuple(merged.split())
