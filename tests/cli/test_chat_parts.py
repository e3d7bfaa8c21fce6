"""The parts of `camelid chat`: stopped and failed turns, output, multi-line messages."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.gated_engine import PATIENCE_S, Gate, gated
from tests.support.gguf_files import write_tiny_llama

from camelid.api.llm import LLM
from camelid.api.load import aload
from camelid.api.thread import EngineThread
from camelid.cli.chat_commands import execute
from camelid.cli.chat_conversation import Conversation
from camelid.cli.chat_model import LocalModel
from camelid.cli.chat_reader import PlainReader, is_open, unquoted
from camelid.cli.chat_screen import Screen
from camelid.cli.chat_settings import read_setting
from camelid.cli.command import Terminated, termination_signals
from camelid.errors import RequestError
from camelid.requests.output_text import Event
from camelid.text.toolcalls.parts import CallArguments, CallEnd, CallStart, Content, Reasoning


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    write_tiny_llama(
        place := tmp_path_factory.mktemp("model") / "tiny.gguf",
        seed=3,
        hidden=64,
        head_dim=16,
        ffn=96,
        context=128,
    )
    return str(place)


class Interrupting(Screen):
    """Presses Ctrl-C at the nth event."""

    def __init__(self, after: int, interrupt: BaseException) -> None:
        super().__init__()
        self.left, self.interrupt = after, interrupt

    def event(self, event: Event) -> None:
        super().event(event)
        self.left -= 1
        if self.left == 0:
            raise self.interrupt


@pytest.fixture
def thread() -> Iterator[EngineThread]:
    with EngineThread() as made:
        yield made


def open_talk(thread: EngineThread, model: str, screen: Screen) -> Conversation:
    llm = thread.run(aload(model, backend="reference", context=128))
    session = llm.session("main")
    session.options.update({"temperature": 2.0, "seed": 4, "ignore_eos": True})
    return Conversation(LocalModel(llm), thread, screen, session)


def llm_of(talk: Conversation) -> LLM:
    assert isinstance(talk.model, LocalModel)
    return talk.model.llm


def test_ctrl_c_stops_the_answer_and_keeps_its_text(
    thread: EngineThread, tiny: str, capfd: pytest.CaptureFixture[str]
) -> None:
    talk = open_talk(thread, tiny, Interrupting(5, KeyboardInterrupt()))
    talk.send("the llama")
    out, err = capfd.readouterr()
    assert talk.last
    assert out == f"{talk.last.text}\n"
    assert talk.last.finish_reason == "cancelled"
    assert 5 <= talk.last.usage.completion_tokens < 20
    user, answer = talk.session.messages
    assert user["content"] == "the llama"
    assert answer["content"] == talk.last.text
    assert "stopped; the answer so far is kept" in err
    assert llm_of(talk).is_idle
    talk.send("and then?")
    assert talk.last.usage.cached_tokens > 5, "it goes on from there"
    thread.run(llm_of(talk).aclose())


class Pressed:
    """A feed during whose first step Ctrl-C is pressed."""

    def __init__(self, feed: Any, gate: Gate) -> None:
        self.feed, self.gate = feed, gate

    def __iter__(self) -> Iterator[Event]:
        assert self.gate.entered.wait(PATIENCE_S)
        raise KeyboardInterrupt
        yield

    def close(self) -> None:
        self.feed._stop()
        self.gate.gate.set()
        self.feed.close()


def test_ctrl_c_before_an_answer_removes_the_question(
    thread: EngineThread, tiny: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    llm, gate = thread.run(gated(tiny))
    talk = Conversation(LocalModel(llm), thread, Screen(), llm.session("main"))
    with monkeypatch.context() as patch:
        inner = thread.stream
        patch.setattr(thread, "stream", lambda events: Pressed(inner(events), gate))
        talk.send("the llama")
    assert talk.session.messages == []
    out, err = capfd.readouterr()
    assert (out, "the message is removed" in err) == ("", True)
    talk.session.options["max_tokens"] = 3
    talk.send("the llama")
    before = list(talk.session.messages)
    gate.gate.clear()
    gate.entered.clear()
    with monkeypatch.context() as patch:
        patch.setattr(thread, "stream", lambda events: Pressed(inner(events), gate))
        talk.regenerate()
    assert talk.session.messages == before, "the old answer was dropped without a new one"
    assert llm_of(talk).is_idle
    thread.run(llm.aclose())


def test_signal_to_end_is_no_ctrl_c(thread: EngineThread, tiny: str) -> None:
    talk = open_talk(thread, tiny, Interrupting(2, Terminated(15)))
    with pytest.raises(Terminated):
        talk.send("the llama")
    assert llm_of(talk).is_idle
    assert len(talk.session.messages) == 2, "the partial answer is missing in the session"
    thread.run(llm_of(talk).aclose())


def test_only_the_first_termination_signal_counts() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with termination_signals():
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_turn_that_fails_leaves_no_trace(
    thread: EngineThread, tiny: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    talk = open_talk(thread, tiny, Screen())
    backend: Any = llm_of(talk)._engine.backend
    inner, left = backend.run, [4]

    def run(*words: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise RequestError("the device is gone", field="x")
        return inner(*words)

    monkeypatch.setattr(backend, "run", run)
    with pytest.raises(RequestError, match="the device is gone"):
        talk.send("the llama")
    assert talk.session.messages == []
    talk.session.options["max_tokens"] = 4
    capfd.readouterr()
    execute(talk, "the llama")
    assert talk.last
    assert capfd.readouterr().out == f"{talk.last.text}\n", "text of the failed answer leaked into the next"
    thread.run(llm_of(talk).aclose())


def test_reasoning_and_calls_are_marked_in_the_answer(capfd: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    parts = [
        (Reasoning("first I "),), (Reasoning("think"), Content("Then")), (Content(" I say\n"),),
        (CallStart(0, "c0", "add"), CallArguments(0, '{"a": '), CallArguments(0, "1}"), CallEnd(0)),
        (CallStart(1, "c1", "sub"), CallArguments(1, "{"), CallEnd(1, complete=False)),
    ]  # fmt: skip
    for part in parts:
        text = "".join(p.text for p in part if isinstance(p, Content))
        screen.event(Event(text, 1, 0.0, part))
    screen.end("Then I say\n and so on")
    screen.event(Event("Next", 1, 0.0, (Content("Next"),)))
    screen.end("Next, too")
    out, err = capfd.readouterr()
    assert out == "Then I say\n and so on\nNext, too\n"
    assert err == '[thinks] first I think\n[calls] add {"a": 1}\n[calls] sub { (cut off)\n'
    screen.event(Event("plain", 1, 0.0))
    screen.end("plain")
    assert capfd.readouterr().out == "plain\n"


def talk_about(*roles: str) -> tuple[Conversation, list[str]]:
    """A conversation with a message of each role, without a model, and the lines of its screen."""
    notes: list[str] = []
    messages = [{"role": role, "content": f"{role} {i}"} for i, role in enumerate(roles)]
    session: Any = SimpleNamespace(id="main", messages=messages, options={})
    nobody: Any = None
    screen: Any = SimpleNamespace(note=notes.append)
    return Conversation(nobody, nobody, screen, session), notes


def test_undo_removes_a_whole_turn_with_tools() -> None:
    talk, notes = talk_about("system", "user", "assistant", "user", "assistant", "tool", "assistant")
    execute(talk, "/undo")
    assert [message["role"] for message in talk.session.messages] == ["system", "user", "assistant"]
    assert notes == ["undone: user 3"]
    execute(talk, "/undo")
    with pytest.raises(RequestError, match="no turn to undo"):
        execute(talk, "/undo")
    assert [message["role"] for message in talk.session.messages] == ["system"]


def test_an_answer_after_tools_is_regenerated(monkeypatch: pytest.MonkeyPatch) -> None:
    talk, _ = talk_about("user", "assistant", "tool", "assistant")
    before = list(talk.session.messages)

    def send(_: Conversation, text: str | None) -> None:
        assert text is None, "the last message, perhaps with images, is answered as it is"
        talk.session.messages += [{"role": "assistant", "content": "so"}]

    monkeypatch.setattr(Conversation, "send", lambda *_: None)
    talk.regenerate()
    assert talk.session.messages == before, "no answer came"
    monkeypatch.setattr(Conversation, "send", send)
    talk.regenerate()
    assert [message["content"] for message in talk.session.messages] == ["user 0", "so"]


def test_a_lost_terminal_ends_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    def readline() -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("sys.stdin", SimpleNamespace(readline=readline))
    with pytest.raises(EOFError):
        PlainReader().read()


def test_an_unset_option_can_be_reset() -> None:
    talk, notes = talk_about()
    for line in ("/set top_k default", "/set top_k 7", "/set top_k  default"):
        execute(talk, line)
    assert notes == ["top_k: default", "top_k = 7", "top_k: default"]
    assert talk.session.options == {}


@pytest.mark.parametrize("name", ["cache_salt", "grammar", "regex"])
def test_text_options_that_parse_as_json_stay_text(name: str) -> None:
    assert read_setting(name, "12") == "12"


def test_model_output_never_controls_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    wild = "a\x1b[2J\x07\x9b1mb\tc\u200dd\r\n"
    shown: list[str] = []
    for is_terminal in (False, True):
        monkeypatch.setattr("sys.stdout", out := io.StringIO())
        monkeypatch.setattr(out, "isatty", lambda is_terminal=is_terminal: is_terminal)
        screen = Screen()
        screen.event(Event(wild, 1, 0.0))
        shown.append(out.getvalue())
    assert shown == [wild, "a?[2J??1mb\tc\u200dd?\n"]


def test_notes_never_control_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.note("\x1b]0;title\x07")
    screen.event(Event("", 1, 0.0, (Reasoning("\x1b[2Jhm"),)))
    screen.error("two\nlines\x07")
    assert capfd.readouterr().err == "?]0;title?\n[thinks] ?[2Jhm\ncamelid: error: two lines?\n"


@pytest.mark.parametrize(
    ("text", "opens", "bare"),
    [
        ("plain", False, "plain"),
        ('"""', True, '"""'),
        ('"""a', True, '"""a'),
        ('"""a"""', False, "a"),
        ('  """\na\n\nb\n""" ', False, "a\n\nb"),
        ('""""""', False, ""),
        ('"""a""" b', True, '"""a""" b'),
        ('say """a"""', False, 'say """a"""'),
        ('"quoted"', False, '"quoted"'),
    ],
)
def test_quotes_of_several_lines(text: str, opens: bool, bare: str) -> None:
    assert (is_open(text), unquoted(text)) == (opens, bare)
