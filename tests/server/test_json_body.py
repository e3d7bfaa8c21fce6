"""Bodies as JSON: strict UTF-8, finite numbers, whole texts, and no more values than are read at once."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from tests.support.served_here import served_here

from camelid.server.fields.ids import IdsOr
from camelid.server.http import call, json_body
from camelid.server.http.errors import ApiError
from camelid.server.http.json_body import MAX_CONTAINERS, MAX_DIGITS, MAX_STRINGS, MAX_VALUES, json_object

SURROGATE = b"\xed\xa0\x80"  # U+D800, as a lenient encoder writes it


def listed(item: bytes, n: int) -> bytes:
    return b'{"a": [' + b",".join([item] * n) + b"]}"


REFUSED: dict[str, bytes] = {
    "a number beyond floats": b'{"a": 1e999}',
    "a negative one": b'{"a": [-1e999]}',
    "a long fraction": b'{"a": ' + b"9" * 400 + b".5}",
    "a word for a number": b'{"a": NaN}',
    "digits": listed(b"9" * (MAX_DIGITS + 1), 1),
    "a raw surrogate": b'{"a": "x' + SURROGATE + b'"}',
    "a raw surrogate as a name": b'{"x' + SURROGATE + b'": 1}',
    "half a pair": b'{"a": ["\\uD800"]}',
    "half a pair as a name": b'{"a": {"\\udfff": 1}}',
    "a reversed pair": b'{"a": "\\ude00\\ud83d"}',
    "UTF-16": '{"a": "\\ud800"}'.encode("utf-16-le"),
    "UTF-16 with its mark": '{"a": 1}'.encode("utf-16"),
    "UTF-32": '{"a": "\\ud800"}'.encode("utf-32-be"),
    "Latin-1": '{"a": "\xe4"}'.encode("latin-1"),
    "a list": b"[]",
    "nothing whole": b'{"a": ',
    "depth": b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}",
    "more depth": b'{"a": ' + b"[" * 100_000,
    "strings": listed(b'""', MAX_STRINGS + 1),
    "lists": listed(b"[]", MAX_CONTAINERS + 1),
    "objects": listed(b"{}", MAX_CONTAINERS + 1),
    "values": listed(b"1", MAX_VALUES + 1),
    "lists behind quotes": b'{"\\"\\\\": "\\"", ' + listed(b"[]", MAX_CONTAINERS + 1)[1:],
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_refused_bodies(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        json_object(body)
    assert (refused.value.status, refused.value.code) == (400, "invalid_json")
    assert 10 < len(refused.value.message) < 300


READ: dict[str, tuple[bytes, dict[str, Any]]] = {
    "nothing": (b"", {}),
    "a byte order mark": (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
    "the largest float": (b'{"a": 1.7976931348623157e308}', {"a": 1.7976931348623157e308}),
    "digits": (listed(b"9" * MAX_DIGITS, 1), {"a": [10**MAX_DIGITS - 1]}),
    "a pair": (b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
    "an escaped escape": (b'{"a": "\\\\ud800"}', {"a": "\\ud800"}),
    "brackets in a text": (b'{"a": "' + b"[{,\\\"" * MAX_CONTAINERS + b'"}', {"a": '[{,"' * MAX_CONTAINERS}),
    "commas in a text": (b'{"a": "' + b"," * (MAX_VALUES + 1) + b'"}', {"a": "," * (MAX_VALUES + 1)}),
    "strings": (listed(b'""', MAX_STRINGS - 1), {"a": [""] * (MAX_STRINGS - 1)}),
    "values": (listed(b"1", MAX_VALUES), {"a": [1] * MAX_VALUES}),
}  # fmt: skip


@pytest.mark.parametrize(("body", "value"), READ.values(), ids=READ)
def test_read_bodies(body: bytes, value: dict[str, Any]) -> None:
    assert json_object(body) == value


def test_a_long_body_is_parsed_and_checked_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed, checked = list[str](), list[str]()
    read = IdsOr.read

    def spied(body: bytes) -> dict[str, Any]:
        parsed.append(threading.current_thread().name)
        return json_object(body)

    def spied_read(kind: IdsOr, value: object, place: str) -> list[Any]:
        checked.append(threading.current_thread().name)
        return read(kind, value, place)

    monkeypatch.setattr(call, "json_object", spied)
    monkeypatch.setattr(IdsOr, "read", spied_read)
    with served_here(max_body=4 << 20) as served:
        tokens = [1] * call.INLINE_BYTES
        body = json.dumps({"tokens": tokens, "tokns": 1})
        reply = served.http.post("/detokenize", content=body)
        text = served.service.builder.tokenizer.token_bytes(1).decode()
        assert reply.json() == {"content": text * len(tokens)}
        assert reply.headers["warning"].count("'tokns'") == 1
        for broken, code in (
            (body[:-1], "not valid JSON"),
            (body.replace("1,", "-1,", 1), "unless all are token ids"),
        ):
            refused = served.http.post("/detokenize", content=broken)
            assert (refused.status_code, code in refused.text) == (400, True), refused.text
        served.http.post("/detokenize", json={"tokens": tokens[:10]})
    assert [name.startswith("camelid json") for name in parsed] == [True, True, True, False]
    assert [name.startswith("camelid json") for name in checked] == [True, True, False]


def test_a_fault_while_a_body_is_read_is_a_500(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(body: bytes) -> dict[str, Any]:
        raise KeyError("planted")

    monkeypatch.setattr(call, "json_object", broken)
    with served_here() as served:
        reply = served.http.post("/v1/completions", content=b" " * (call.INLINE_BYTES + 1))
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "bug")


def test_the_parser_lets_other_threads_run_at_every_number_and_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python hands its lock over only where Python code runs, so the parser must call some."""
    counts = {"_whole": 0, "_finite": 0, "_same": 0}

    def counted(name: str) -> Any:
        known = getattr(json_body, name)

        def count(value: Any) -> Any:
            counts[name] += 1
            return known(value)

        return count

    for name in counts:
        monkeypatch.setattr(json_body, name, counted(name))
    json_object(b'{"a": [1, 2.5, {"b": 3}]}')
    assert counts == {"_whole": 2, "_finite": 1, "_same": 2}
