"""Inconsistent tokenizer.json files: only the documented errors are raised, in bounded time and memory."""

from __future__ import annotations

import copy
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.exhaustive import share_of
from tests.support.processor_time import within
from tests.support.text.hf_families import published
from tests.text.to_gguf.test_tokenizer_hostile import nested, spoil

from camelid.errors import ModelFormatError, RequestError, UnsupportedModelError
from camelid.text.tokenizers.hf.files import TokenizerFiles
from camelid.text.tokenizers.hf.tokenizer import tokenizer_from_json

Change = Callable[[dict[str, Any]], object]


def regex(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"pre_tokenizer": split}


UNSUPPORTED: dict[str, tuple[str, Change, str]] = {
    "a model": ("gpt2", lambda t: t["model"].update(type="Klingon"), "model 'Klingon' .*known: BPE, Unigram"),
    "a normalizer": ("gpt2", lambda t: t.update(normalizer={"type": "Rot13"}), "normalizer 'Rot13' .*NFC"),
    "a pre-tokenizer": ("gpt2", lambda t: t.update(pre_tokenizer={"type": "Guess"}), "pre-tokenizer 'Guess'"),
    "a processor": ("gpt2", lambda t: t.update(post_processor={"type": "Odd"}), "post-processor 'Odd'"),
    "a decoder": ("gpt2", lambda t: t.update(decoder={"type": "CTC"}), "decoder 'CTC' .*known: BPEDecoder"),
    "a behavior": (
        "glm4", lambda t: t["pre_tokenizer"]["pretokenizers"][0].update(behavior="Odd"), "behavior 'Odd'"
    ),
    "a regex": ("gpt2", lambda t: t.update(regex(r"(a)\1")), "regex .* unsupported escape"),
    "the text twice": (
        "gpt2", lambda t: t["post_processor"].update(single=[{"Sequence": {"id": "A"}}] * 2), "text 2 times"
    ),
    "the end of a text": (
        "llama2", lambda t: t["decoder"]["decoders"][-1].update(stop=1), "end of a text"
    ),
    "Metaspace amid words": (
        "mistral",
        lambda t: t.update(
            pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, t["pre_tokenizer"]]}
        ),
        "start of the text",
    ),
}  # fmt: skip
DAMAGED: dict[str, tuple[str, Change, str]] = {
    "dropout": ("gpt2", lambda t: t["model"].update(dropout=0.1), "dropout is 0.1"),
    "an unknown token": ("llama2", lambda t: t["model"].update(unk_token="qq"), "unk_token 'qq' is not in"),
    "a score": ("t5", lambda t: t["model"]["vocab"][5].__setitem__(1, "x"), "a score is 'x'"),
    "an endless score": ("t5", lambda t: t["model"]["vocab"][5].__setitem__(1, 1e300), "a score is 1e\\+300"),
    "no vocabulary": ("bert", lambda t: t["model"].pop("vocab"), "vocab is NoneType"),
    "unk_id": ("t5", lambda t: t["model"].update(unk_id=10**9), "unk_id is 1000000000"),
    "base64": (
        "t5", lambda t: t.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "?"}), "charsmap"
    ),
    "a map cut short": (
        "t5",
        lambda t: t.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        "charsmap",
    ),
    "deep sequences": ("gpt2", lambda t: t.update(normalizer=nested(100_000)), "normalizer.type is NoneType"),
    "a far id": ("gpt2", lambda t: t["added_tokens"].append({"id": 10**12, "content": "q"}), "highest id is"),
    "a long name": ("gpt2", lambda t: t["added_tokens"][0].update(content="a" * 2000), "has 2000 characters"),
    "half a character": (
        "gpt2", lambda t: t["added_tokens"][0].update(content="\ud800"), "is not Unicode text"
    ),
    "a frame of no token": (
        "llama3",
        lambda t: t["post_processor"]["single"][0]["SpecialToken"].update(id="qq"),
        "adds 'qq', which is not",
    ),
}  # fmt: skip


@pytest.mark.faults
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_step_without_a_row_is_refused_by_name(name: str) -> None:
    refused(*UNSUPPORTED[name], UnsupportedModelError)


@pytest.mark.faults
@pytest.mark.parametrize("name", DAMAGED)
def test_a_file_that_contradicts_itself_is_refused(name: str) -> None:
    refused(*DAMAGED[name], ModelFormatError)


def refused(family: str, change: Change, message: str, error: type[Exception]) -> None:
    made = copy.deepcopy(published(family))
    change(made)
    tracemalloc.start()
    try:
        with pytest.raises(error, match=message) as caught:
            tokenizer_from_json(TokenizerFiles(made))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 1000


@pytest.mark.faults
@pytest.mark.parametrize("family", share_of(["gpt2", "xlm-r", "bert", "phi3", "clip", "deepseek"], 3))
def test_wrong_values_raise_only_documented_errors(family: str) -> None:
    rng, refusals = random.Random(1), 0
    small = smaller(published(family))
    for _ in range(300):
        changed = copy.deepcopy(small)
        for _ in range(rng.randrange(1, 4)):
            spoil(changed, rng)
        with within(2):
            try:
                tokenizer = tokenizer_from_json(TokenizerFiles(changed))
                tokenizer.decode(tokenizer.encode("a <s> llama, \n<mask> 12 \U0001f999", special=True))
            except (ModelFormatError, UnsupportedModelError, RequestError) as error:
                refusals += 1
                assert len(str(error)) < 1000
    assert 20 < refusals < 300


def smaller(made: dict[str, Any]) -> dict[str, Any]:
    """A small vocabulary, so that most damage hits other parts."""
    added = {item["content"] for item in made["added_tokens"]}
    model = dict(made["model"])
    if isinstance(model["vocab"], list):
        model["vocab"] = model["vocab"][:90]
        ids = {token: i for i, (token, _) in enumerate(model["vocab"])}
    else:
        kept = [t for t in model["vocab"] if len(t) == 1 or t in added or t.startswith("[")]
        ids = model["vocab"] = {token: i for i, token in enumerate(kept)}
    if "merges" in model:
        model |= {"merges": [], "byte_fallback": False}
    tokens = [
        {**item, "id": ids.get(item["content"], len(ids) + i)} for i, item in enumerate(made["added_tokens"])
    ]
    return {**made, "model": model, "added_tokens": tokens}
