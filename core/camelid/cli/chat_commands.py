"""What a chat obeys: a line that begins with a slash names a row of this table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from camelid.cli.chat_conversation import Conversation, figures
from camelid.cli.chat_reader import unquoted
from camelid.cli.chat_settings import NAMES, UNSET, read_setting
from camelid.cli.format import human, printable
from camelid.errors import RequestError

NONE = "-"  # as a value: nothing


@dataclass(frozen=True, slots=True)
class Command:
    """What a command takes, what it does in words, and what does it."""

    takes: str
    help: str
    obey: Callable[[Conversation, str], object]


def obey(talk: Conversation, text: str) -> None:
    """Does what a command says, or gives the text to the model. EOFError ends the chat."""
    if not text.startswith("/"):
        talk.say(unquoted(text))
    elif text.startswith("//"):
        talk.say(text[1:])
    else:
        name, _, rest = text[1:].partition(" ")
        find(name).obey(talk, rest.strip())


def find(name: str) -> Command:
    """The command of that name, or of another name for it. RequestError says what there is."""
    command = COMMANDS.get(ALIASES.get(name, name))
    if command is None:
        near = get_close_matches(name, [*COMMANDS, *ALIASES], n=1)
        hint = f"did you mean /{near[0]}?" if near else "/help lists them"
        raise RequestError(
            f"there is no command /{printable(name)[:80]}; {hint} (// begins a text with a slash)",
            field="command",
        )
    return command


def show_help(talk: Conversation, rest: str) -> None:  # noqa: ARG001
    """The table."""
    for name, command in COMMANDS.items():
        talk.screen.note(f"{f'/{name} {command.takes}':<20} {command.help}")
    talk.screen.note(
        '""" begins and ends a text of several lines; on a terminal Alt-Enter begins a line, too'
    )
    talk.screen.note("Ctrl-C stops an answer; Ctrl-D ends the chat; // begins a text with a slash")


def reset(talk: Conversation, rest: str) -> None:  # noqa: ARG001
    """Forgets the conversation."""
    talk.session.reset()
    talk.screen.note("a new conversation begins; the system message and the options stay")


def system(talk: Conversation, rest: str) -> None:
    """Shows, sets or removes the system message."""
    if rest:
        talk.session.system = None if rest == NONE else unquoted(rest)
    now = talk.session.system
    talk.screen.note("there is no system message" if now is None else f"system message: {now}")


def save(talk: Conversation, rest: str) -> None:
    """Writes the session file."""
    path = _path(rest)
    talk.thread.run(talk.session.asave(path))
    talk.screen.note(f"saved {_size(talk)} to {path}: {human(path.stat().st_size)}")


def load(talk: Conversation, rest: str) -> None:
    """Goes on with a file's session."""
    session = talk.thread.run(talk.llm.arestore(_path(rest)))
    talk.adopt(session)
    talk.screen.note(f"going on with {session.id}: {_size(talk)}")
    if session.note:
        talk.screen.note(session.note)


def fork(talk: Conversation, rest: str) -> None:
    """Goes on in a copy."""
    if rest in talk.sessions:
        raise RequestError(f"there is a conversation {rest!r} already; /switch {rest} goes there", field="id")
    origin = talk.session.id
    talk.fork(rest or None)
    talk.screen.note(f"going on in {talk.session.id}; /switch {origin} goes back")


def switch(talk: Conversation, rest: str) -> None:
    """Goes on in another conversation, or lists them."""
    if rest:
        session = talk.sessions.get(rest)
        if session is None:
            raise RequestError(
                f"there is no conversation {rest!r}; there are {', '.join(talk.sessions)}", field="id"
            )
        talk.take(session)
    for name, session in talk.sessions.items():
        mark = "*" if session is talk.session else " "
        talk.screen.note(f"{mark} {name}: {len(session.messages)} messages")


def undo(talk: Conversation, rest: str) -> None:  # noqa: ARG001
    """Takes the last turn back."""
    talk.screen.note(f"taken back: {talk.undo()}")


def regenerate(talk: Conversation, rest: str) -> None:  # noqa: ARG001
    """Another answer."""
    talk.regenerate()


def stats(talk: Conversation, rest: str) -> None:  # noqa: ARG001
    """Figures of the last answer, of the conversation and of the engine."""
    if talk.last:
        talk.screen.note(figures(talk.last))
    engine, counters = talk.llm.stats(), talk.llm.counters
    talk.screen.note(f"{talk.session.id}: {_size(talk)} of a context of {talk.llm.context}")
    talk.screen.note(f"state: {human(engine.cached_bytes)} kept of {human(engine.total_bytes)}")
    talk.screen.note(
        f"rows: {counters.prefill_rows:,} of prompts computed and {counters.cached_rows:,} found, "
        f"{counters.decode_rows:,} of answers"
    )


def settings(talk: Conversation, rest: str) -> None:
    """Lists, shows, sets or unsets options."""
    name, _, text = (part.strip() for part in rest.partition(" "))
    options = talk.session.options
    if text == UNSET:
        options.pop(name, None)
    elif text:
        options[name] = read_setting(name, text)
    elif name and name not in NAMES:
        read_setting(name, "")
    shown = [name] if name else sorted(options)
    for each in shown:
        talk.screen.note(f"{each} = {options[each]!r}" if each in options else f"{each} is at its default")
    if not name:
        others = ", ".join(n for n in NAMES if n not in options)
        talk.screen.note(f"at their defaults: {others}")


def quit_chat(talk: Conversation, rest: str) -> None:  # noqa: ARG001
    """Ends the chat."""
    raise EOFError


def _path(rest: str) -> Path:
    if not rest:
        raise RequestError("a path is missing; give one, such as talk.session", field="path")
    try:
        return Path(rest).expanduser()
    except RuntimeError as error:  # ~ of nobody
        raise RequestError(f"{rest}: {error}; give the whole path", field="path") from error


def _size(talk: Conversation) -> str:
    session = talk.session
    return f"{len(session.messages)} messages, {len(session.token_ids)} tokens"


COMMANDS: Mapping[str, Command] = {
    "help": Command("", "show this list", show_help),
    "reset": Command("", "forget the conversation; the system message stays", reset),
    "system": Command("[TEXT]", f"set the system message, or show it; {NONE} removes it", system),
    "undo": Command("", "take the last turn back", undo),
    "regenerate": Command("", "answer the last question again", regenerate),
    "save": Command("PATH", "write the conversation and its state to a file", save),
    "load": Command("PATH", "go on with the conversation of a file", load),
    "fork": Command("[NAME]", "go on in a copy; the original stays as it is", fork),
    "switch": Command("[NAME]", "go on in another conversation, or list them", switch),
    "set": Command("[NAME VALUE]", f"set an option of answers, or list them; {UNSET} unsets one", settings),
    "stats": Command("", "show figures of the last answer and the conversation", stats),
    "quit": Command("", "end the chat", quit_chat),
}
ALIASES: Mapping[str, str] = {
    "exit": "quit",
    "bye": "quit",
    "clear": "reset",
    "?": "help",
    "retry": "regenerate",
}
