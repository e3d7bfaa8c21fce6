"""`camelid chat`: a conversation in the terminal, or line by line through a pipe."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from camelid.api.llm import LLM
from camelid.api.load import aload
from camelid.api.sessions.session import Session
from camelid.api.thread import EngineThread
from camelid.cli.chat_commands import ALIASES, COMMANDS, execute
from camelid.cli.chat_conversation import Conversation
from camelid.cli.chat_model import LocalModel
from camelid.cli.chat_reader import Reader, default_history, open_reader
from camelid.cli.chat_screen import Screen
from camelid.cli.chat_server import NOT_THERE, server_talk
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
from camelid.cli.hub_download import local_model
from camelid.cli.kv_flag import kv_type_option
from camelid.cli.lora_flags import lora_options, read_lora
from camelid.cli.mmproj_flag import mmproj_option
from camelid.cli.sampling_flags import read_sampling, sampling_options
from camelid.cli.server_flags import NAMES, check_flags, server_flags
from camelid.errors import CamelidError
from camelid.loading.options import LEARN

NO_TEMPLATE = "this model has no chat template: it continues the conversation as plain text"
FILE = click.Path(dir_okay=False, path_type=Path)


@subcommand
@model_argument
@click.option("--system", help="System message.")
@click.option("--session", "session_file", type=FILE,
              help="Restore this session if the file exists, and save it at the end.")  # fmt: skip
@click.option("-n", "--n-predict", type=click.IntRange(1),
              help="Maximum number of tokens per answer. Default: the rest of the context.")  # fmt: skip
@click.option("-c", "--ctx-size", type=click.IntRange(1),
              help="Context length in tokens. Default: the model's, at most 4096.")  # fmt: skip
@sampling_options
@engine_flags
@server_flags
@backend_options
@kv_type_option
@mmproj_option
@click.option("--learn", type=click.Choice(LEARN), default="off", show_default=True,
              help="Learn from /good, /bad and /fix: as memory, or also by training when idle.")  # fmt: skip
@click.option("--learn-checks", type=click.Path(dir_okay=False), metavar="FILE",
              help="Questions with right answers, which count as past requests at the gate.")  # fmt: skip
@click.option("--learn-user", default="local", show_default=True, metavar="NAME", help="The user's space.")
@lora_options
@click.option("--history", type=FILE, default=default_history, show_default="in the user's state directory",
              help="File of the input history.")  # fmt: skip
@click.option("--no-history", is_flag=True, help="Save no input history.")
def command(
    model: str, system: str | None, session_file: Path | None, n_predict: int | None, ctx_size: int | None,
    kv_type: str, mmproj: str | None, mmproj_auto: bool, history: Path, no_history: bool, server: str | None,
    api_key: str | None, model_name: str | None, learn: str, learn_checks: str | None, learn_user: str,
    verbose: bool, **others: Any,
) -> None:  # fmt: skip
    """Chat with a model in the terminal, or with a server that has OpenAI's API.

    /help lists the chat's commands. Answers go to stdout, all else to stderr. Without a terminal each line is
    one turn, and the exit code is 1 if any turn failed.
    """
    check_flags(server, NAMES[1:], NOT_THERE)
    options = {
        **({"max_tokens": n_predict} if n_predict else {}),
        **read_sampling(others),
        **read_engine(others),
    }
    words = read_backend(others)
    words |= {"context": ctx_size, "parallel": 1, "kv_type": kv_type, **read_lora(others)}
    words |= {"mmproj": mmproj, "mmproj_auto": mmproj_auto, "learn": learn, "learn_user": learn_user}
    words["learn_checks"] = learn_checks
    check_folder(session_file)
    kept = None if no_history else history
    with EngineThread() as thread:
        if server:
            with server_talk(thread, server, api_key, model_name, options) as talk:
                talk.is_verbose = verbose
                begin(talk, system, str(talk.model))
                converse_to_the_end(talk, kept, None)
            return
        path, words = local_model(model, words)
        with loaded(thread, path, words) as llm:
            llm.on_recovery(say)
            if names_backend(words, verbose):
                say(llm.backend_note)
            session = open_session(thread, llm, session_file)
            session.options.update(options)
            talk = Conversation(LocalModel(llm), thread, Screen(), session, is_verbose=verbose)
            if not llm.has_template:
                talk.screen.note(NO_TEMPLATE)
            begin(talk, system, model)
            for line in talk.model.adapters(talk.session) if llm.adapters else ():
                talk.screen.note(line)
            converse_to_the_end(talk, kept, session_file)


def check_folder(file: Path | None) -> None:
    """Raises a usage error if the session file's folder does not exist: the save at the end would fail."""
    if file and not file.absolute().parent.is_dir():
        raise click.UsageError(f"--session {file}: folder {file.parent} does not exist")


@contextmanager
def loaded(thread: EngineThread, path: str, words: dict[str, Any]) -> Generator[LLM]:
    """A model loaded on the engine's thread, closed on exit."""
    with loading_bar() as progress:
        llm = thread.run(aload(path, progress=progress, **words))
    try:
        yield llm
    finally:
        thread.run(llm.aclose())


def open_session(thread: EngineThread, llm: LLM, file: Path | None) -> Session:
    """The file's session, or a new one if the file does not exist."""
    if file and file.exists():
        return thread.run(llm.arestore(file))
    return llm.session("main")


@contextmanager
def saved(talk: Conversation, file: Path | None) -> Generator[None]:
    """Saves the session on exit, also after an error; the first session, if the current one is foreign."""
    first = talk.session
    try:
        yield
    finally:
        if file:
            last = first if talk.session.id in talk.foreign else talk.session
            talk.thread.run(talk.model.save(last, file))


def begin(talk: Conversation, system: str | None, name: str) -> None:
    """Sets the system message, and prints notes before the first line."""
    if system is not None:
        talk.session.system = system
    if talk.session.note:
        talk.screen.note(talk.session.note)
    if sys.stdin.isatty():
        talk.screen.note(f"{name}; /help lists the commands")


def converse_to_the_end(talk: Conversation, history: Path | None, file: Path | None) -> None:
    """The conversation, saved to a session file at its end. Exits with 1 if a turn of a pipe failed."""
    reader = open_reader([f"/{name}" for name in (*COMMANDS, *ALIASES)], history, say)
    with saved(talk, file):
        n_errors = converse(talk, reader)
    if n_errors and not sys.stdin.isatty():
        raise click.exceptions.Exit(1)


def converse(talk: Conversation, reader: Reader) -> int:
    """Reads and answers lines up to the end of input; returns the number of failed turns, each printed."""
    n_errors = 0
    while True:
        try:
            text = reader.read()
            if text.strip():
                execute(talk, text)
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
