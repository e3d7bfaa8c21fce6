"""Inputs for Camelid inside Pyodide, with answers of independent oracles that ran natively."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.support.text.conversations import CONVERSATIONS, contexts
from tests.support.text.hf_families import FAMILIES
from tests.support.text.jinja_oracle import oracle_render
from tests.support.text.schema_cases import CASES
from tests.support.text.splitter_cases import ORACLES
from tests.support.text.texts import random_texts
from tests.support.text.unigrams import as_metadata, decided, processor, trained
from tests.support.text.words_oracle import words_of
from tests.vectors.replay import Vector

from camelid.formats.gguf import open_gguf

CODE_POINTS = [*range(0xD800), *range(0xE000, 0x110000)]
BATCH = 0x4000
SHARE = 0.02  # seeded sample of the code points
BORDER = "\n__ggml_vocab_test__\n"
VOCABS = ("gpt-2", "falcon", "deepseek-coder", "llama-spm", "bert-bge")


@cache
def code_points(share: float) -> list[str]:
    """Code points in order, as long texts, and each between two letters; or a seeded sample."""
    chosen = CODE_POINTS
    if share < 1:
        chosen = sorted(Random(11).sample(CODE_POINTS, int(share * len(CODE_POINTS))))
    batches = [chosen[i : i + BATCH] for i in range(0, len(chosen), BATCH)]
    return [*("".join(map(chr, batch)) for batch in batches), *("a".join(map(chr, b)) for b in batches)]


def splitters(share: float, n_texts: int) -> Iterator[Vector]:
    """The published regexes, run by `tokenizers`."""
    texts = random_texts(n_texts, seed=31)
    for name, oracle in ORACLES.items():
        inputs = [*code_points(share), *texts]
        answers = [[len(word) for word in words_of(oracle, text)] for text in inputs]
        yield {"kind": "splitter", "name": name, "facts": name, "inputs": inputs, "answers": answers}


def vocabularies(shared: Path) -> Iterator[Vector]:
    """Real vocabularies, with llama.cpp's ids."""
    for name in VOCABS:
        path = shared / "data" / "vocab" / f"{name}.gguf"
        metadata = open_gguf(path).metadata
        facts = {key: value for key, value in metadata.items() if key.startswith("tokenizer.ggml.")}
        texts = path.with_name(f"{name}.gguf.inp").read_bytes().decode().split(BORDER)
        lines = path.with_name(f"{name}.gguf.out").read_text().split("\n")
        ids = [[int(i) for i in line.split()] for line in lines]
        yield {"kind": "tokenizer", "name": name, "facts": facts, "inputs": texts, "answers": ids}


def templates(shared: Path) -> Iterator[Vector]:
    """Real chat templates, rendered by jinja2; None for a refusal by jinja2 or the template."""
    for path in sorted((shared / "data" / "templates").glob("*.jinja")):
        source = path.read_text("utf-8")
        inputs = [context for name in CONVERSATIONS for context in contexts(name)]
        inputs = [{k: v for k, v in context.items() if k != "strftime_now"} for context in inputs[::5]]
        answers = [rendered(source, context) for context in inputs]
        yield {"kind": "template", "name": path.stem, "facts": source, "inputs": inputs, "answers": answers}


def rendered(source: str, context: Mapping[str, Any]) -> str | None:
    try:
        return oracle_render(source, **context)
    except Exception:
        return None


def families(n_texts: int) -> Iterator[Vector]:
    """Tokenizers of every kind, as tokenizer.json, trained and run by `tokenizers`."""
    for name, make in FAMILIES.items():
        made = make()
        made.encode_special_tokens = False
        inputs = random_texts(n_texts, seed=47)
        answers = [made.encode(text, add_special_tokens=False).ids for text in inputs]
        yield {"kind": "family", "name": name, "facts": made.to_str(), "inputs": inputs, "answers": answers}


def unigrams(n_texts: int) -> Iterator[Vector]:
    """GGUF's kind t5, trained and run by `sentencepiece`."""
    model = trained()
    judge = processor(model)
    inputs = [text for text in random_texts(n_texts, seed=53) if decided(judge, text)]
    answers = [judge.EncodeAsIds(text) for text in inputs]
    facts = as_metadata(model)
    yield {"kind": "tokenizer", "name": "unigram", "facts": facts, "inputs": inputs, "answers": answers}


def schemas() -> Iterator[Vector]:
    """JSON texts that a schema's grammar matches or refuses, from a table verified by `jsonschema`."""
    for case in CASES:
        inputs = [*case.matched, *case.refused, *case.narrow]
        answers = [text in case.matched for text in inputs]
        yield {
            "kind": "schema",
            "name": case.name,
            "facts": case.schema,
            "inputs": inputs,
            "answers": answers,
        }


def vectors(share: float, shared: Path | None, n_texts: int = 150) -> Iterator[Vector]:
    """All vectors; vectors of shared material only where it exists."""
    yield from splitters(share, n_texts)
    yield from families(n_texts)
    yield from unigrams(n_texts)
    yield from schemas()
    if shared:
        yield from vocabularies(shared)
        yield from templates(shared)
