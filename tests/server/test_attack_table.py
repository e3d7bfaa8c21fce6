"""The table of attacks: a row for each attack of the committed list, with tests that exist."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROW = re.compile(r"^\| (?P<topic>(?:API)?\d+) \| (?P<attack>[^|]+) \| (?P<tests>[^|]+) \|$", re.MULTILINE)
NAME = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")
ROWS = [
    match.groupdict() for match in ROW.finditer(Path(__file__).with_name("attacks.md").read_text("utf-8"))
]
# Number of a topic of the list of attacks on LLM runtimes -> its attacks, in our words.
TOPICS: Mapping[str, tuple[str, ...]] = {
    "1": (
        "GGUF: each check of the header as a crafted file",
        "GGUF: flipped bytes, a cut at every byte",
        "GGUF: counts, lengths and shapes that overflow or allocate",
    ),
    "2": (
        "safetensors: each check of the header, cut files, false lengths",
        "index of shards: paths beyond the folder, links",
        "config.json: huge sizes, zero divisors, values that are no numbers",
    ),
    "3": (
        "token ids beyond the vocabulary, malformed byte tokens, short token lists",
        "contradicting metadata: rotated dimensions, experts",
        "weights that are no numbers",
        "kernels that read or write out of bounds",
    ),
    "4": (
        "templates that leave the sandbox",
        "templates without end: ranges, products, powers, loops, recursion",
        "templates and variables of a template from requests",
    ),
    "5": ("control tokens in user text",),
    "6": (
        "texts that cost a tokenizer quadratic time",
        "a tokenizer's own regex that backtracks",
        "texts that hold up the other streams",
    ),
    "7": (
        "heads: size, number of fields, trailers, requests sent ahead",
        "bodies: size of one, and of all together",
        "JSON: depth, number of values, numbers beyond floats, encodings, half surrogate pairs",
        "lists: messages, biases, stops, token ids",
        "values: negative, huge, of another type",
        "prompts: empty, and at the context's edge",
    ),
    "8": ("amplification: choices, log-probabilities, prompts, answers without end",),
    "9": (
        "grammars: brackets, recursion, repeats, empty loops",
        "schemas: recursion, size, wrong types of schemas and tools, remote references",
        "patterns: long, nested, broken",
        "compiled grammars that fill the memory or take forever",
    ),
    "10": (
        "URLs fetched on a request's behalf",
        "images, which no endpoint decodes",
        "paths and addresses in texts of errors",
    ),
    "11": ("pickles and code in models",),
    "12": (
        "routes without a key",
        "keys guessed by timing",
        "keys in logs",
        "pages of foreign origins, with and without an Origin header",
        "names bound again to this machine's address",
    ),
    "13": (
        "another tenant's prompts by timing of the prefix cache",
        "collisions of hashes in the prefix cache",
        "state of an ended sequence that another one reads",
        "slots, files of slots and stored responses of another key",
    ),
    "14": (
        "slow heads and bodies",
        "slow readers",
        "a thousand clients that leave during their prefill",
        "idle connections, vanished peers",
        "signals under load",
        "a step that fails, a lost device",
        "a full KV cache",
        "killed workers",
        "clocks that jump",
        "full disks",
    ),
    "15": (
        "downloads of another revision, or damaged",
        "names of files and revisions that leave the cache",
        "stopped downloads",
    ),
}
RISKS = tuple(f"API{i}" for i in range(1, 11))


@pytest.mark.parametrize("topic", TOPICS)
def test_each_attack_of_a_topic_has_a_row(topic: str) -> None:
    assert tuple(row["attack"] for row in ROWS if row["topic"] == topic) == TOPICS[topic]


def test_each_risk_has_a_row_and_no_row_is_of_an_unknown_topic() -> None:
    topics = [row["topic"] for row in ROWS]
    assert tuple(topic for topic in topics if topic.startswith("API")) == RISKS
    assert set(topics) == {*TOPICS, *RISKS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['topic']} {row['attack']}")
def test_a_row_names_tests_that_exist(row: Mapping[str, str]) -> None:
    names = NAME.findall(row["tests"])
    assert names
    assert len(names) == row["tests"].count("`") // 2
    for file, name in names:
        assert f"def {name or 'test_'}" in (TESTS / file).read_text("utf-8"), (file, name)
