"""POST /infill: the order of its tokens, what is cut, and a model that has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.coder_model import write_coder
from tests.support.served import served

from camelid.server.faces.native_infill import answer_room, infill_ids
from camelid.server.service.fill_in import FimTokens
from camelid.text.tokenizers.pipeline import Frame

PLAIN = FimTokens(901, 902, 903)
WHOLE = FimTokens(901, 902, 903, 904, 905)


class Letters:
    """A tokenizer of one token a character, with BOS 1."""

    frame = Frame((1,))

    def encode(self, text: str, special: bool = False) -> list[int]:
        return list(map(ord, text))


def ids(tokens: FimTokens, room: int = 1000, **fields: Any) -> list[int]:
    own = {"input_prefix": "ab", "input_suffix": "yz", "prompt": "m", **fields}
    tokenizer: Any = Letters()
    return infill_ids(own, tokens, tokenizer, room)


def letters(text: str) -> list[int]:
    return list(map(ord, text))


def test_prefix_suffix_and_middle_have_their_marks() -> None:
    assert ids(PLAIN) == [1, 901, *letters("abm"), 902, *letters("yz"), 903]


def test_other_files_come_first() -> None:
    extra = [{"filename": "f.py", "text": "TEXT"}]
    found = ids(WHOLE, input_extra=extra)
    head = [904, *letters("myproject\n"), 905, *letters("f.py\nTEXT"), 905, *letters("filename\n")]
    assert found == [*head, *ids(PLAIN)]
    assert ids(PLAIN, input_extra=extra) == [*letters("\n\n--- snippet ---\n\nTEXT"), *ids(PLAIN)]


@pytest.mark.parametrize("room", [20, 41, 100, 400])
def test_a_long_prompt_is_cut_far_from_the_middle(room: int) -> None:
    before, after = "p" * 200 + "B", "A" + "s" * 200
    found = ids(WHOLE, room, input_prefix=before, input_suffix=after)
    assert len(found) <= room
    middle = found.index(902)
    assert found[middle - 2 : middle] == letters("Bm"), "the prefix keeps its end"
    assert found[middle + 1] == ord("A"), "the suffix keeps its beginning"
    assert len(found) == room, "no room is wasted"


def test_the_answer_keeps_its_room() -> None:
    assert answer_room({"n_predict": 10}, 100) == 11
    assert answer_room({"n_predict": 90}, 100) == 51
    assert answer_room({"max_completion_tokens": 10}, 100) == 11
    assert answer_room({}, 100) == answer_room({"n_predict": -1}, 100) == 26


def test_a_model_with_the_tokens_fills_in(tmp_path: Path) -> None:
    target = tmp_path / "coder.gguf"
    write_coder(target)
    with served(str(target), "--backend", "cpu") as server:
        fields = {"input_prefix": "def f(", "input_suffix": "return", "n_predict": 4, "return_tokens": True}
        body = server.post("/infill", fields).json()
        token_ids = [
            server.post("/tokenize", {"content": text}).json()["tokens"] for text in ("def f(", "return")
        ]
        prompt = [1000, *token_ids[0], 1001, *token_ids[1], 1002]
        wanted = server.post("/completion", {**fields, "prompt": prompt}).json()
        assert body["prompt"] == wanted["prompt"]
        assert body["tokens_evaluated"] == len(prompt)
        assert body["content"] == wanted["content"]
        last = list(server.stream("/infill", {**fields, "stream": True}))[-1]
        assert last["stop"] is True
