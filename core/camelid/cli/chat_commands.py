"""The slash commands of `camelid chat`: one table row each."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from mimetypes import guess_type
from pathlib import Path

from camelid.cli.chat_conversation import Conversation, figures
from camelid.cli.chat_reader import unquoted
from camelid.cli.chat_settings import NAMES, UNSET, read_setting
from camelid.cli.format import human, printable
from camelid.errors import RequestError
from camelid.images.decode import image_file

NONE = "-"  # the value that removes a setting


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command: its arguments and help in words, and its function."""

    arguments: str
    help: str
    run: Callable[[Conversation, str], object]


def execute(conversation: Conversation, text: str) -> None:
    """Runs a slash command, or sends the text to the model. Raises EOFError at the end of the chat."""
    if not text.startswith("/"):
        conversation.send(unquoted(text))
    elif text.startswith("//"):
        conversation.send(text[1:])
    else:
        name, _, rest = text[1:].partition(" ")
        find(name).run(conversation, rest.strip())


def find(name: str) -> Command:
    """The command of a name or an alias. Raises RequestError with the nearest name for an unknown one."""
    command = COMMANDS.get(ALIASES.get(name, name))
    if command is None:
        near = get_close_matches(name, [*COMMANDS, *ALIASES], n=1)
        hint = f"did you mean /{near[0]}?" if near else "/help lists the commands"
        raise RequestError(
            f"unknown command /{printable(name)[:80]}; {hint} (// starts a message with a slash)",
            field="command",
        )
    return command


def show_help(conversation: Conversation, rest: str) -> None:  # noqa: ARG001 - the signature of every command
    """Lists the commands and keys."""
    for name, command in COMMANDS.items():
        conversation.screen.note(f"{f'/{name} {command.arguments}':<20} {command.help}")
    conversation.screen.note(
        '""" begins and ends a message of several lines; on a terminal Alt-Enter inserts a line break'
    )
    conversation.screen.note("Ctrl-C stops an answer; Ctrl-D ends the chat; // starts a message with a slash")


def reset(conversation: Conversation, rest: str) -> None:  # noqa: ARG001 - the signature of every command
    """Starts an empty conversation."""
    conversation.session.reset()
    conversation.screen.note("new conversation; system message and options unchanged")


def system(conversation: Conversation, rest: str) -> None:
    """Shows, sets or removes the system message."""
    if rest:
        conversation.session.system = None if rest == NONE else unquoted(rest)
    now = conversation.session.system
    conversation.screen.note("no system message" if now is None else f"system message: {now}")


def save(conversation: Conversation, rest: str) -> None:
    """Writes the session file."""
    path = _path(rest)
    conversation.thread.run(conversation.model.save(conversation.session, path))
    conversation.screen.note(f"saved {_size(conversation)} to {path}: {human(path.stat().st_size)}")


def load(conversation: Conversation, rest: str) -> None:
    """Restores a file's session and switches to it."""
    session = conversation.thread.run(conversation.model.restore(_path(rest)))
    conversation.adopt(session)
    conversation.screen.note(f"loaded {session.id}: {_size(conversation)}")
    if session.note:
        conversation.screen.note(session.note)


def fork(conversation: Conversation, rest: str) -> None:
    """Copies the conversation and switches to the copy."""
    if rest in conversation.sessions:
        raise RequestError(f"conversation {rest!r} already exists; /switch {rest} selects it", field="id")
    origin = conversation.session.id
    conversation.fork(rest or None)
    conversation.screen.note(f"now in {conversation.session.id}; /switch {origin} returns")


def switch(conversation: Conversation, rest: str) -> None:
    """Switches to another conversation, and lists them all."""
    if rest:
        session = conversation.sessions.get(rest)
        if session is None:
            raise RequestError(
                f"unknown conversation {rest!r}; known: {', '.join(conversation.sessions)}", field="id"
            )
        conversation.switch_to(session)
    for name, session in conversation.sessions.items():
        mark = "*" if session is conversation.session else " "
        conversation.screen.note(f"{mark} {name}: {len(session.messages)} messages")


def undo(conversation: Conversation, rest: str) -> None:  # noqa: ARG001 - the signature of every command
    """Removes the last turn."""
    conversation.screen.note(f"undone: {conversation.undo()}")


def regenerate(conversation: Conversation, rest: str) -> None:  # noqa: ARG001 - the signature of every command
    """Replaces the last answer by a new one."""
    conversation.regenerate()


def stats(conversation: Conversation, rest: str) -> None:  # noqa: ARG001 - the signature of every command
    """Prints statistics of the last answer, the conversation and the engine."""
    if conversation.last:
        conversation.screen.note(figures(conversation.last))
    for line in conversation.model.stats(conversation.session):
        conversation.screen.note(line)


def settings(conversation: Conversation, rest: str) -> None:
    """Lists, prints, sets or unsets options."""
    name, _, text = (part.strip() for part in rest.partition(" "))
    options = conversation.session.options
    if text == UNSET:
        options.pop(name, None)
    elif text:
        options[name] = read_setting(name, text)
    elif name and name not in NAMES:
        read_setting(name, "")
    shown = [name] if name else sorted(options)
    for each in shown:
        conversation.screen.note(f"{each} = {options[each]!r}" if each in options else f"{each}: default")
    if not name:
        others = ", ".join(n for n in NAMES if n not in options)
        conversation.screen.note(f"at the default: {others}")


def image(conversation: Conversation, rest: str) -> None:
    """Puts an image before the next message."""
    path = _path(rest)
    kind = guess_type(path.name)[0] or "image/png"
    data = b64encode(image_file(path, "image").data).decode()
    conversation.images.append({"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}})
    conversation.screen.note(f"{len(conversation.images)} images before the next message")


def good(conversation: Conversation, rest: str) -> None:  # noqa: ARG001 - the signature of every command
    """A thumb up for the last answer."""
    _feedback(conversation, 1, None)


def bad(conversation: Conversation, rest: str) -> None:  # noqa: ARG001 - the signature of every command
    """A thumb down for the last answer."""
    _feedback(conversation, -1, None)


def fix(conversation: Conversation, rest: str) -> None:
    """The right answer in place of the last one."""
    if not rest:
        raise RequestError("no text; expected the right answer, such as /fix 42", field="correction")
    _feedback(conversation, -1, unquoted(rest))


def _feedback(conversation: Conversation, rating: int, correction: str | None) -> None:
    if conversation.last is None:
        raise RequestError("no answer to give feedback on", field="completion")
    given = conversation.model.feedback(conversation.last, rating, correction)
    number = conversation.thread.run(given)
    conversation.screen.note(f"item {number} is stored; `camelid learn forget {number}` takes it back")


def adapter(conversation: Conversation, rest: str) -> None:
    """Switches the adapters of the conversation, and lists all."""
    if rest:
        conversation.model.choose(conversation.session, rest)
    lines = conversation.model.adapters(conversation.session)
    for line in lines or ["no adapter is loaded; --lora FILE loads one"]:
        conversation.screen.note(line)


def quit_chat(conversation: Conversation, rest: str) -> None:  # noqa: ARG001 - the signature of every command
    """Ends the chat."""
    raise EOFError


def _path(rest: str) -> Path:
    if not rest:
        raise RequestError("no path; expected one, such as chat.session", field="path")
    try:
        return Path(rest).expanduser()
    except RuntimeError as error:  # ~name of an unknown user
        raise RequestError(f"{rest}: {error}; give an absolute path", field="path") from error


def _size(conversation: Conversation) -> str:
    return conversation.model.size(conversation.session)


COMMANDS: Mapping[str, Command] = {
    "help": Command("", "print this list", show_help),
    "reset": Command("", "start an empty conversation; the system message stays", reset),
    "system": Command("[TEXT]", f"set the system message, or print it; {NONE} removes it", system),
    "undo": Command("", "remove the last turn", undo),
    "good": Command("", "a thumb up for the last answer (--learn)", good),
    "bad": Command("", "a thumb down for the last answer (--learn)", bad),
    "fix": Command("TEXT", "give the right answer in place of the last one (--learn)", fix),
    "regenerate": Command("", "answer the last message again", regenerate),
    "image": Command("PATH", "put an image before the next message", image),
    "save": Command("PATH", "save the conversation and its state to a file", save),
    "load": Command("PATH", "load a conversation from a file", load),
    "fork": Command("[NAME]", "continue in a copy of the conversation", fork),
    "switch": Command("[NAME]", "continue in another conversation, or list them", switch),
    "adapter": Command("[NAME|off]", "answer with an adapter, without any, or list them", adapter),
    "set": Command("[NAME VALUE]", f"set an option of answers, or list them; {UNSET} unsets it", settings),
    "stats": Command("", "print statistics of the last answer and the conversation", stats),
    "quit": Command("", "end the chat", quit_chat),
}
ALIASES: Mapping[str, str] = {
    "exit": "quit",
    "bye": "quit",
    "clear": "reset",
    "?": "help",
    "retry": "regenerate",
}
