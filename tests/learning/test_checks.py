"""A user's own checks: their file, its faults, and the gate and the faces that read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.served_here import served_here

from camelid.api.load import load
from camelid.cli.learn import command
from camelid.errors import RequestError
from camelid.learning import checks
from camelid.learning.checks import read_checks
from camelid.loading.options import LoadOptions

TOOLS = [{"type": "function", "function": {"name": "get_price", "parameters": {"type": "object"}}}]


def call(arguments: str) -> dict[str, Any]:
    return {"content": "", "tool_calls": [{"function": {"name": "get_price", "arguments": arguments}}]}


def file_of(folder: Path, *lines: object) -> Path:
    path = folder / "checks.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_answers_are_compared_as_feedback_is(tmp_path: Path) -> None:
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "price of tea"}]
    path = file_of(
        tmp_path, {"prompt": "2 + 3", "answer": "5"}, "", {"messages": talk, "tools": TOOLS,
        "answer": ["I cannot.", call('{"item": "tea", "n": 1}')]},
    )  # fmt: skip
    (short, passes_short), (long, passes_long) = read_checks(path)
    assert (short.messages, short.tools) == (({"role": "user", "content": "2 + 3"},), ())
    assert (list(long.messages), list(long.tools)) == (talk, TOOLS)
    assert passes_short({"content": " 5\n"})
    assert not passes_short({"content": "6"})
    assert passes_long(call('{"n": 1, "item": "tea"}'))
    assert passes_long({"content": "I cannot."})
    assert not passes_long(call('{"item": "tea"}'))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2 is no JSON"),
        ("[" * 100_000, "line 2 is no JSON"),
        ("3", "line 2: it is 3, expected an object"),
        ({"prompt": "a", "want": "b"}, "line 2: 'want' is unknown; known: prompt, messages, tools, answer"),
        ({"answer": "b"}, "line 2: it needs a text as prompt, or messages"),
        ({"prompt": "a", "messages": [{"content": "a"}], "answer": "b"}, "line 2: it needs a text as prompt"),
        ({"prompt": ["a"], "answer": "b"}, "line 2: it needs a text as prompt, or messages"),
        ({"messages": "a", "answer": "b"}, "line 2: messages is 'a', expected a list of objects"),
        ({"messages": ["a"], "answer": "b"}, "line 2: messages is list, expected a list of objects"),
        ({"prompt": "a", "tools": {}, "answer": "b"}, "line 2: tools is dict, expected a list of objects"),
        ({"prompt": "a"}, "line 2: answer is None, expected a text, a message with content or tool_calls"),
        ({"prompt": "a", "answer": []}, "line 2: answer is list, expected a text"),
        ({"prompt": "a", "answer": ["b", 3]}, "line 2: answer is list, expected a text"),
    ],
)
def test_a_faulty_line_is_one_clear_error(tmp_path: Path, line: object, words: str) -> None:
    path = file_of(tmp_path, {"prompt": "a", "answer": "b"}, line)
    with pytest.raises(RequestError) as caught:
        read_checks(path)
    assert words in caught.value.message
    assert str(path) in caught.value.message


def test_a_file_that_cannot_be_read_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RequestError, match="No such file"):
        read_checks(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match="no UTF-8"):
        read_checks(tmp_path / "bytes")
    monkeypatch.setattr(checks, "MOST_BYTES", 8)
    with pytest.raises(RequestError, match="more than 8 bytes"):
        read_checks(file_of(tmp_path, {"prompt": "a", "answer": "b"}))


def test_faces_refuse_faulty_checks_before_anything_runs(tmp_path: Path) -> None:
    path = file_of(tmp_path, "3")
    done = CliRunner().invoke(command, ["run", "--checks", str(path), "--folder", str(tmp_path / "store")])
    assert "line 1: it is 3, expected an object" in done.output + str(done.exception)
    with pytest.raises(RequestError, match="line 1: it is 3"):
        load("cria", backend="cpu", threads=1, learn="on", learn_folder=tmp_path, learn_checks=path)
    with (
        pytest.raises(AssertionError, match="did not load"),
        served_here(learn="on", learn_folder=tmp_path, learn_checks=path, context=256, threads=1),
    ):
        pass
    with pytest.raises(RequestError, match="learn is 'memory'; give learn 'on'"):
        LoadOptions(learn="memory", learn_checks=path).check()
