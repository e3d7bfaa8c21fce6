"""Lists of token ids: checked at once however long they are, since the event loop waits meanwhile."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from tests.support.served_here import served_here

from camelid.server.faces.native_prompts import checked_bias, one_prompt, split_prompts
from camelid.server.faces.native_text import PART_IDS, piece, token_list
from camelid.server.fields.ids import MAX_ID, MAX_IDS
from camelid.server.fields.kinds import Integer
from camelid.server.fields.native import DETOKENIZE, MAX_MIXED, PROMPT, TOKENIZE
from camelid.server.fields.texts import Texts
from camelid.server.http.errors import ApiError
from camelid.server.service import service
from camelid.server.service.text_size import INLINE_CHARS, size_of

KINDS = {
    "prompt": PROMPT,
    "tokens": DETOKENIZE.fields["tokens"].kind,
    "content": TOKENIZE.fields["content"].kind,
    "texts": Texts(4),
}


def refusal(kind: Any, value: object) -> str:
    with pytest.raises(ApiError) as refused:
        kind.read(value, "place")
    assert refused.value.status == 400
    return refused.value.message


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_ids_are_read_without_a_look_at_each(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(kind: Integer, value: object, place: str) -> int:
        raise AssertionError("each id is read alone")

    monkeypatch.setattr(Integer, "read", read)
    ids = [0, MAX_ID, 7] * 100_000
    assert kind.read(ids, "place") in (ids, [ids])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_list_of_ids_has_a_limit(kind: Any) -> None:
    assert kind.read([1] * MAX_IDS, "place")
    assert "1,048,577" in refusal(kind, [1] * (MAX_IDS + 1))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("item", [-1, MAX_ID + 1, 0.5, True, None, {}, [[]]], ids=repr)
def test_what_is_no_id_is_refused(kind: Any, item: object) -> None:
    assert "place" in refusal(kind, [1, item])
    assert "place" in refusal(kind, [1] * MAX_MIXED + [item])


def test_whole_floats_are_ids() -> None:
    found = PROMPT.read([1.0, 2, 3.0], "place")
    assert found == [1, 2, 3]
    assert set(map(type, found)) == {int}


def test_texts_and_ids_are_mixed_up_to_a_bound() -> None:
    mixed = ["a", *[1] * (MAX_MIXED - 1)]
    assert PROMPT.read(mixed, "place") == mixed
    assert f"at most {MAX_MIXED:,} unless all are token ids" in refusal(PROMPT, [*mixed, 1])
    assert split_prompts(mixed) == [mixed]


def test_several_prompts_are_lists_of_ids() -> None:
    several = [[1, 2], ["a", 3], "b"]
    assert PROMPT.read(several, "place") == several
    assert split_prompts(several) == several
    with pytest.raises(ApiError):
        one_prompt([1, [2]])


def test_the_size_of_a_long_prompt_is_not_counted_to_its_end() -> None:
    class Counted(list[Any]):
        n = 0

        def __iter__(self) -> Any:
            for item in super().__iter__():
                self.n += 1
                yield item

    for item in (1, "", [], {}):
        items = Counted([item] * 1_000_000)
        assert size_of(items) > INLINE_CHARS
        assert items.n < 2 * INLINE_CHARS + 2
    assert size_of("a" * 100) == 100
    assert 100 < size_of([{"role": "user", "content": "a" * 100}]) < 120


def test_a_bias_of_any_size_is_cut() -> None:
    assert [checked_bias(value) for value in (10**400, -(10**400), 5, False)] == [100.0, -100.0, 5.0, False]


@pytest.mark.parametrize("n", [0, 1, PART_IDS, PART_IDS + 1, 3 * PART_IDS - 1])
def test_a_long_reply_is_written_in_parts(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bytes:
        def token_bytes(self, token_id: int) -> bytes:
            return b"\xff" if token_id % 7 == 0 else "\xe4".encode()

    sizes, dumps = list[int](), json.dumps
    monkeypatch.setattr(json, "dumps", lambda items, **how: sizes.append(len(items)) or dumps(items, **how))
    ids, tokenizer = list(range(n)), cast("Any", Bytes())
    assert json.loads(token_list(ids, None)) == {"tokens": ids}
    pieces = [{"id": i, "piece": piece(i, tokenizer)} for i in ids]
    assert json.loads(token_list(ids, tokenizer)) == {"tokens": pieces}
    assert max(sizes, default=0) <= PART_IDS


def test_no_look_at_each_token_of_a_prompt_beyond_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_: object) -> None:
        raise AssertionError("each token was looked at")

    with served_here(context=64) as served:
        monkeypatch.setattr(service, "check_request", look)
        reply = served.http.post("/v1/completions", json={"prompt": [1] * 100, "max_tokens": 1})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")
