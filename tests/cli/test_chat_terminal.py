"""`camelid chat` on a terminal: a whole session, keys, history, signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.cli.chat_reader import PlainReader, TerminalReader, default_history, open_reader
from camelid.cli.command import termination_signals

if sys.platform != "win32":
    import pexpect

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="not on this platform: pseudo-terminals")
CORE = Path(camelid.__file__).parents[1]
PATIENCE_S = 30
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")
# A prompt begins by enabling bracketed paste and ends by disabling it; output is between two prompts.
BEGINS, ENDS = r"\x1b\[\?2004h", r"\x1b\[\?2004l"
ENTER, ALT_ENTER, UP, TAB, CTRL_C, CTRL_D = "\r", "\x1b\r", "\x1b[A", "\t", "\x03", "\x04"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=3, hidden=64, head_dim=16, ffn=96, context=4096)
    return str(place)


class Terminal:
    """A chat in a pseudo-terminal."""

    def __init__(self, state: Path, *words: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(CORE), "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm"}
        self.child: Any = pexpect.spawn(
            sys.executable, ["-m", "camelid", "chat", *words, "--backend", "reference"],
            env={**env, "XDG_STATE_HOME": str(state)}, encoding="utf-8", timeout=PATIENCE_S,
            dimensions=(40, 200),
        )  # fmt: skip
        self.greeting = self.shown()

    def shown(self) -> str:
        """Output up to the next prompt."""
        self.child.expect(BEGINS)
        return ESCAPES.sub("", self.child.before).replace("\r\n", "\n")

    def type(self, keys: str) -> None:
        """Types keys that end the prompt."""
        self.child.send(keys)
        self.child.expect(ENDS)

    def say(self, text: str) -> str:
        """Types a line. Returns the output up to the next prompt."""
        self.type(text + ENTER)
        return self.shown().lstrip("\n")

    def end(self, keys: str = CTRL_D) -> int:
        """Ends the chat. Returns its exit code."""
        self.child.send(keys)
        return self.wait()

    def wait(self) -> int:
        """The exit code, or minus the signal."""
        self.child.expect(self.child.delimiter)
        self.child.close()
        return self.child.exitstatus if self.child.signalstatus is None else -self.child.signalstatus


@contextmanager
def terminal(state: Path, *words: str) -> Iterator[Terminal]:
    opened = Terminal(state, *words)
    try:
        yield opened
    finally:
        opened.child.close(force=True)


@pytest.mark.e2e
def test_three_turns_stop_save_quit_load_go_on(tmp_path: Path) -> None:
    file = tmp_path / "talk.session"
    with terminal(tmp_path, "cria", "--temp", "0", "-n", "12") as chat:
        assert "cria; /help lists" in chat.greeting
        first, second = chat.say("What is 2 plus 3?"), chat.say("Who are you?")
        assert first.endswith("\n")
        assert second.strip()
        assert chat.say("What is the capital of France?").strip()
        assert "saved 6 messages" in chat.say(f"/save {file}")
        chat.child.send("/qu" + TAB)
        chat.child.expect("/quit")
        assert chat.end(ENTER) == 0
    with terminal(tmp_path, "cria", "--temp", "0", "-n", "12", "-v") as chat:
        assert "loaded main: 6 messages" in chat.say(f"/load {file}")
        shown = chat.say("What is 2 plus 3?")
        assert " prompt tokens cached" in shown
        assert " 0 of " not in shown
        assert chat.end() == 0


@pytest.mark.e2e
def test_ctrl_c_stops_the_answer_and_not_the_program(tmp_path: Path, tiny: str) -> None:
    with terminal(tmp_path, tiny, "--temp", "2", "--seed", "1") as chat:
        chat.say("/set ignore_eos true")
        chat.type("the llama" + ENTER)
        chat.child.expect(r"\w.*\w.*\w")  # it has begun; 4,000 tokens follow
        chat.child.send(CTRL_C)
        assert "stopped; the answer so far is kept" in chat.shown()
        chat.type("half a question" + CTRL_C)
        assert "/quit or Ctrl-D ends the chat" in chat.shown()
        assert "main: 2 messages" in chat.say("/stats")
        chat.say("/set max_tokens 4")
        chat.say("and then?")
        assert "main: 4 messages" in chat.say("/stats")
        assert chat.end() == 0


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_end_the_chat_after_writing_its_session(tmp_path: Path, tiny: str, number: int) -> None:
    file = tmp_path / "talk.session"
    with terminal(tmp_path, tiny, "--temp", "0", "-n", "4", "--session", str(file)) as chat:
        chat.say("hello")
        chat.child.kill(number)
        assert chat.wait() == 128 + number
    with terminal(tmp_path, tiny, "--session", str(file)) as chat:
        assert "main: 2 messages" in chat.say("/stats")
        assert chat.end() == 0


@pytest.mark.e2e
def test_colours_are_for_terminals(tmp_path: Path, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for no_color, is_plain in (("", False), ("1", True)):
        monkeypatch.setenv("NO_COLOR", no_color)
        with terminal(tmp_path, tiny) as chat:
            chat.type("/stats" + ENTER)
            chat.child.expect(BEGINS)
            assert ("\x1b[2m" not in chat.child.before) == is_plain


@contextmanager
def keyboard(*words: str, history: Path | None = None) -> Iterator[tuple[Any, TerminalReader]]:
    """A terminal's reader, and the pipe of its keys."""
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        yield keys, TerminalReader(words, history)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("hello" + ENTER, "hello"),
        ("two" + ALT_ENTER + "lines" + ENTER, "two\nlines"),
        ('"""a' + ENTER + "b" + ENTER + 'c"""' + ENTER, '"""a\nb\nc"""'),
        ("\x1b[200~pasted\nlines\x1b[201~" + ENTER, "pasted\nlines"),
        (ENTER, ""),
    ],
)
def test_keys(typed: str, text: str) -> None:
    with keyboard("/regenerate", "/fork") as (keys, reader):
        keys.send_text(typed)
        assert reader.read() == text


@pytest.mark.parametrize(("key", "error"), [(CTRL_C, KeyboardInterrupt), (CTRL_D, EOFError)])
def test_keys_that_end(key: str, error: type[BaseException]) -> None:
    with keyboard() as (keys, reader):
        keys.send_text(key)
        with pytest.raises(error):
            reader.read()
        keys.send_text("on" + ENTER)
        assert reader.read() == "on"


def test_history_is_kept_between_chats(tmp_path: Path) -> None:
    for typed, text in (("first" + ENTER, "first"), (UP + ENTER, "first"), (UP + UP + ENTER, "first")):
        with keyboard(history=tmp_path / "history") as (keys, reader):
            keys.send_text(typed)
            assert reader.read() == text


def test_history_is_readable_by_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_history() == tmp_path / "camelid" / "chat_history"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_history() == Path.home() / ".local" / "state" / "camelid" / "chat_history"
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    warnings: list[str] = []
    with keyboard():
        assert isinstance(open_reader((), tmp_path / "new" / "history", warnings.append), TerminalReader)
        assert (tmp_path / "new" / "history").stat().st_mode & 0o777 == 0o600
        (tmp_path / "file").touch()
        open_reader((), tmp_path / "file" / "history", warnings.append)
        open_reader((), None, warnings.append)
    (warning,) = warnings
    assert warning.startswith("warning: the history is not saved: ")


def test_pipe_has_no_prompt() -> None:
    assert isinstance(open_reader((), None, print), PlainReader)


LOST = """
import os, signal, sys, time, weakref
from camelid.cli.command import AGAIN_S, Terminated, termination_signals

class Thing:
    pass

try:
    with termination_signals():
        try:
            thing = Thing()
            kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGHUP))
            del thing  # an exception in the callback is lost
            time.sleep(60)  # until the exception comes again, after AGAIN_S
        finally:
            time.sleep(3 * AGAIN_S)  # longer than a check: it leaves cleanup alone
            print("cleaned up")
except Terminated as termination:
    sys.exit(128 + termination.signal)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no such signals")
def test_a_lost_exception_of_a_signal_is_raised_again_but_not_in_cleanup() -> None:
    environment = {**os.environ, "PYTHONPATH": str(CORE)}
    done = subprocess.run(
        [sys.executable, "-c", LOST], capture_output=True, text=True, timeout=PATIENCE_S, env=environment
    )
    assert "Exception ignored" in done.stderr and done.stdout == "cleaned up\n"
    assert done.returncode == 128 + signal.SIGHUP


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no such signals")
def test_a_timer_of_another_owner_stays() -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    kept = signal.setitimer(signal.ITIMER_REAL, 1000.0)
    try:
        with termination_signals():
            pass
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 900 and callable(signal.getsignal(signal.SIGALRM))
    finally:
        signal.setitimer(signal.ITIMER_REAL, *kept)
        signal.signal(signal.SIGALRM, before)
