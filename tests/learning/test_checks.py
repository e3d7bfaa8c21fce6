"""A user's own checks: their file, its faults, and the gate and the faces that read it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from camelid.api.learnt import runs
from camelid.api.load import load_with
from camelid.cli.learn import command
from camelid.errors import RequestError
from camelid.learning import checks
from camelid.learning.checks import read_checks
from camelid.learning.loops import Learning, Run
from camelid.learning.retention import Check
from camelid.learning.training import Pace
from camelid.loading.options import LoadOptions
from camelid.server.service.limits import Limits
from camelid.server.service.models import Models
from camelid.server.service.rows import ModelRow

PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "get_price", "parameters": PARAMETERS}}]


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
        ({"answer": "b"}, "line 2: it needs a text as prompt, or a list of messages"),
        ({"prompt": "a", "messages": [{"content": "a"}], "answer": "b"}, "line 2: it needs a text as prompt"),
        ({"prompt": ["a"], "answer": "b"}, "line 2: it needs a text as prompt"),
        ({"messages": [], "answer": "b"}, "line 2: it needs a text as prompt"),
        ({"messages": ["a"], "answer": "b"}, "line 2: messages[0]: found 'a'"),
        ({"messages": [{}], "answer": "b"}, "line 2: messages[0]"),
        ({"messages": [{"role": 3, "content": "a"}], "answer": "b"}, "line 2: messages[0].role: found 3"),
        ({"messages": [{"role": "user", "content": "a"}, {"content": "b"}], "answer": "b"}, "messages[1]"),
        ({"prompt": "a", "tools": {}, "answer": "b"}, "line 2: tools: found dict, expected a list"),
        ({"prompt": "a", "tools": [{"x": 1}], "answer": "b"}, "line 2: tools[0]"),
        ({"prompt": "a"}, "line 2: answer is None, expected a text, a message with content or tool_calls"),
        ({"prompt": "a", "answer": []}, "line 2: answer is list, expected a text"),
        ({"prompt": "a", "answer": ["b", 3]}, "line 2: correction is 3, expected the right answer"),
        ({"prompt": "a", "answer": {"content": 3}}, "line 2: messages[0].content: found 3"),
        ({"prompt": "a", "answer": {"content": [3]}}, "line 2: messages[0].content[0]"),
        ({"prompt": "a", "answer": {"tool_calls": 3}}, "line 2: messages[0].tool_calls: found 3"),
        ({"prompt": "a", "answer": {"tool_calls": [{"function": "x"}]}}, "line 2: messages[0].tool_calls[0]"),
        ({"prompt": "a", "tools": TOOLS, "answer": call('{"n": "x"}')}, "so that this call cannot be right"),
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
    with pytest.raises(RequestError, match="null byte"):
        read_checks("a\0b")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match="no UTF-8"):
        read_checks(tmp_path / "bytes")
    one = {"prompt": "a", "answer": "b"}
    with pytest.raises(RequestError, match="it has 0 checks, expected 1 to 2000"):
        read_checks(file_of(tmp_path, "", " "))
    monkeypatch.setattr(checks, "MOST_CHECKS", 1)
    with pytest.raises(RequestError, match="it has 2 checks, expected 1 to 1"):
        read_checks(file_of(tmp_path, one, one))
    monkeypatch.setattr(checks, "MOST_BYTES", 8)
    with pytest.raises(RequestError, match="more than 8 bytes"):
        read_checks(file_of(tmp_path, one))


def test_lines_end_as_those_of_json_do(tmp_path: Path) -> None:
    """A mark at the beginning is none of the text, and other separators of lines may stand in a string."""
    line = json.dumps({"prompt": "a\u2028b\u0085c", "answer": "d"}, ensure_ascii=False)
    path = tmp_path / "checks.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + line.encode() + b"\r\n" + line.encode())
    assert [asked.completion_id for asked, _ in read_checks(path)] == ["check of line 1", "check of line 2"]
    assert read_checks(path)[0][0].messages[0]["content"] == "a\u2028b\u0085c"


def test_a_plain_text_has_no_role(tmp_path: Path) -> None:
    ((asked, _),) = read_checks(file_of(tmp_path, {"messages": [{"content": "Once"}], "answer": "upon"}))
    assert asked.messages == ({"content": "Once"},)


def test_faces_refuse_faulty_checks_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(*_: object) -> None:
        raise AssertionError("a model is loaded")

    monkeypatch.setattr("camelid.api.load.start", start)
    monkeypatch.setattr("camelid.server.service.host.start", start)
    path = file_of(tmp_path, "3")
    done = CliRunner().invoke(command, ["run", "--checks", str(path), "--folder", str(tmp_path / "store")])
    assert "line 1: it is 3, expected an object" in done.output + str(done.exception)
    options = LoadOptions(backend="cpu", learn="on", learn_folder=tmp_path, learn_checks=path)
    with pytest.raises(RequestError, match="line 1: it is 3"):
        load_with("cria", options)
    row = ModelRow("cria", "cria", options)
    with pytest.raises(RequestError, match="line 1: it is 3"):
        asyncio.run(Models({"cria": row}, Limits())._open_engine(row, None))
    with pytest.raises(RequestError, match="learn is 'memory'; give learn 'on'"):
        LoadOptions(learn="memory", learn_checks=path).check()


def test_checks_reach_the_gate_of_each_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python API's background run and the command hand the file's checks to the run."""
    seen: list[Sequence[Check]] = []

    def run(self: Learning, _: Pace) -> Run:
        seen.append(self.checks)
        return Run(())

    monkeypatch.setattr(Learning, "run", run)
    path = file_of(tmp_path, {"prompt": "2 + 3", "answer": "5"})
    done = CliRunner().invoke(
        command, ["run", "--checks", str(path), "--folder", str(tmp_path / "a"), "--backend", "cpu"]
    )
    assert done.exit_code == 0, done.output
    works: list[Callable[[Pace], Run]] = []
    monkeypatch.setattr(runs, "Background", lambda _, work, *__, **___: works.append(work))
    options = LoadOptions(
        backend="cpu", threads=1, learn="on", learn_folder=tmp_path / "b", learn_checks=path
    )
    with load_with("cria", options):
        works[0](Pace(time.monotonic, time.sleep))
    assert [[asked.completion_id for asked, _ in each] for each in seen] == [["check of line 1"]] * 2
