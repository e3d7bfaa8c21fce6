"""`camelid chat`: a conversation on the terminal, or line by line through a pipe."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from camelid.api.llm import LLM, aload
from camelid.api.sessions.session import Session
from camelid.api.thread import EngineThread
from camelid.cli.chat_commands import ALIASES, COMMANDS, obey
from camelid.cli.chat_conversation import Conversation
from camelid.cli.chat_reader import Reader, default_history, open_reader
from camelid.cli.chat_screen import Screen
from camelid.cli.command import (
    Terminated,
    backend_options,
    loading_bar,
    model_argument,
    names_backend,
    one_line,
    read_backend,
    say,
    subcommand,
)
from camelid.cli.engine_flags import engine_flags, read_engine
from camelid.cli.hub_download import local_path
from camelid.cli.kv_flag import kv_type_option
from camelid.cli.sampling_flags import read_sampling, sampling_options
from camelid.errors import CamelidError
from camelid.requests.options import LoadWords

FILE = click.Path(dir_okay=False, path_type=Path)


@subcommand
@model_argument
@click.option("--system", help="A system message before the conversation.")
@click.option("--session", "session_file", type=FILE,
              help="Go on with this session if the file is there; it is written at the end.")  # fmt: skip
@click.option("-n", "--n-predict", type=click.IntRange(1),
              help="At most this many tokens an answer. Default: what the context holds.")  # fmt: skip
@click.option("-c", "--ctx-size", type=click.IntRange(1),
              help="Tokens of the whole conversation. Default: the model's, at most 4096.")  # fmt: skip
@sampling_options
@engine_flags
@backend_options
@kv_type_option
@click.option("--history", type=FILE, default=default_history, show_default="in the user's state folder",
              help="Where typed lines are kept for the next chat.")  # fmt: skip
@click.option("--no-history", is_flag=True, help="Keep no typed lines.")
def command(
    model: str, system: str | None, session_file: Path | None, n_predict: int | None, ctx_size: int | None,
    kv_type: str, history: Path, no_history: bool, verbose: bool, **others: Any,
) -> None:  # fmt: skip
    """Conversation with a model.

    /help lists what can be said to the chat itself. Answers go to stdout, all else to stderr; without a
    terminal each line is a turn, and any failure makes the exit code 1.
    """
    options = {
        **({"max_tokens": n_predict} if n_predict else {}),
        **read_sampling(others),
        **read_engine(others),
    }
    words = read_backend(others)
    words |= {"context": ctx_size, "parallel": 1, "kv_type": kv_type}
    check_folder(session_file)
    path = local_path(model)
    with EngineThread() as thread, loaded(thread, path, words) as llm:
        if names_backend(words, verbose):
            say(llm.backend_note)
        session = open_session(thread, llm, session_file)
        session.options.update(options)
        if system is not None:
            session.system = system
        talk = Conversation(llm, thread, Screen(), session, is_verbose=verbose)
        greet(talk, model)
        names = [f"/{name}" for name in (*COMMANDS, *ALIASES)]
        reader = open_reader(names, None if no_history else history, say)
        with saved(talk, session_file):
            n_errors = converse(talk, reader)
    if n_errors and not sys.stdin.isatty():
        raise click.exceptions.Exit(1)


def check_folder(file: Path | None) -> None:
    """A usage error if the file's folder is not there, now and not when all has been said."""
    if file and not file.absolute().parent.is_dir():
        raise click.UsageError(f"--session {file}: there is no folder {file.parent}")


@contextmanager
def loaded(thread: EngineThread, path: str, words: LoadWords) -> Generator[LLM]:
    """A model on the engine's thread."""
    with loading_bar() as progress:
        llm = thread.run(aload(path, progress=progress, **words))
    try:
        yield llm
    finally:
        thread.run(llm.aclose())


def open_session(thread: EngineThread, llm: LLM, file: Path | None) -> Session:
    """The file's session if there is one, else a new one."""
    if file and file.exists():
        return thread.run(llm.arestore(file))
    return llm.session("main")


@contextmanager
def saved(talk: Conversation, file: Path | None) -> Generator[None]:
    """Writes the session at the end, however it comes; the first one, if the talk has gone to another's."""
    first = talk.session
    try:
        yield
    finally:
        if file:
            last = first if talk.session.id in talk.foreign else talk.session
            talk.thread.run(last.asave(file))


def greet(talk: Conversation, model: str) -> None:
    """What is worth knowing before the first line."""
    if not talk.llm.has_template:
        talk.screen.note("this model has no chat template: it goes on with the conversation as plain text")
    if talk.session.note:
        talk.screen.note(talk.session.note)
    if sys.stdin.isatty():
        talk.screen.note(f"{model}; /help lists what else can be said")


def converse(talk: Conversation, reader: Reader) -> int:
    """Reads and answers to the end. A failure is a line, and the chat goes on; how many there were."""
    n_errors = 0
    while True:
        try:
            text = reader.read()
            if text.strip():
                obey(talk, text)
        except EOFError:
            return n_errors
        except KeyboardInterrupt as interrupt:
            if isinstance(interrupt, Terminated) or not sys.stdin.isatty():
                raise
            talk.screen.note("/quit or Ctrl-D ends the chat")
        except BrokenPipeError:
            raise
        except Exception as error:
            n_errors += 1
            if talk.is_verbose and not isinstance(error, CamelidError):
                traceback.print_exc(file=sys.stderr)
            talk.screen.error(one_line(error))
