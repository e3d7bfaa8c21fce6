"""`camelid chat --server`: conversations through OpenAI's API, in the form that `camelid chat` drives.

A conversation is a list of messages, sent whole with each turn; the server's prefix cache knows most of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NoReturn

from camelid.api.sessions.turns import content_text, n_system, text_messages
from camelid.api.thread import EngineThread
from camelid.cli.chat_conversation import Conversation
from camelid.cli.chat_model import Talk
from camelid.cli.chat_screen import Screen
from camelid.cli.chat_server_answer import ServerAnswer
from camelid.cli.http_client import Client, Json
from camelid.cli.lora_flags import LORA_NAMES
from camelid.cli.server_flags import choose_model, open_client
from camelid.errors import RequestError
from camelid.requests.options import Message
from camelid.requests.output_text import Completion, answer_message

# Flags of `camelid chat` that concern a model loaded here.
NOT_THERE = (
    "model", "session_file", "ctx_size", "kv_type", "mmproj", "mmproj_auto", "backend", "adapter", "threads",
    "gpu_layers", "tensor_parallel", "pipeline_parallel", "collective", "activations", "context_shift",
    "n_keep", "lookup", "learn", "learn_checks", "learn_user", *LORA_NAMES,
)  # fmt: skip
PATH = "/v1/chat/completions"
# Options of the Python API that servers take under the same name.
SAME = (
    "temperature", "top_p", "top_k", "min_p", "typical_p", "top_n_sigma", "min_keep", "repeat_penalty",
    "repeat_last_n", "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base",
    "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "xtc_probability", "xtc_threshold",
    "dynatemp_range", "dynatemp_exponent", "mirostat", "mirostat_eta", "mirostat_tau", "seed", "max_tokens",
    "stop", "ignore_eos", "cache_prompt", "cache_salt", "grammar", "json_schema", "response_format", "tools",
    "tool_choice", "parallel_tool_calls",
)  # fmt: skip
Read = Callable[[Any], Any]


def bias_field(pairs: Sequence[tuple[int, float]]) -> Json:
    """OpenAI's map of token ids to biases, where -100 bans a token."""
    return {str(token_id): -100 if bias == -inf else bias for token_id, bias in pairs}


# Option -> field of the request, and its value there.
FIELDS: Mapping[str, tuple[str, Read]] = {
    **{name: (name, lambda value: value) for name in SAME},
    "logit_bias": ("logit_bias", bias_field),
    "variables": ("chat_template_kwargs", lambda value: value),
    "priority": ("priority", lambda value: -value),  # lower is earlier, as in vLLM
}


def request_fields(options: Mapping[str, Any]) -> Json:
    """The options as fields of a request. Raises RequestError for one that only a loaded model has."""
    for name in options:
        if name not in FIELDS:
            raise RequestError(
                f"the option {name!r} has no meaning with --server; /set {name} default unsets it", field=name
            )
    return {FIELDS[name][0]: FIELDS[name][1](value) for name, value in options.items()}


@dataclass(slots=True)
class ServerTalk:
    """One conversation with a server's model."""

    client: Client
    model: str
    id: str = "main"
    messages: list[Message] = field(default_factory=list[Message])
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    note: str = ""

    @property
    def system(self) -> str | None:
        """The text of a leading system message, or None."""
        return content_text(self.messages[0]) if n_system(self.messages) else None

    @system.setter
    def system(self, text: str | None) -> None:
        self.messages = [*text_messages("system", text), *self.messages[n_system(self.messages) :]]

    def reset(self) -> None:
        """Clears the conversation; the system message and the options stay."""
        self.messages = [*text_messages("system", self.system)]

    def fork(self, id: str | None = None) -> ServerTalk:
        """A copy."""
        name = id or f"{self.id}-copy"
        return ServerTalk(self.client, self.model, name, deepcopy(self.messages), deepcopy(self.options))

    async def start(self, text: str | None = None) -> ServerAnswer:
        """Begins a turn; a failed turn leaves the conversation unchanged."""
        new = text_messages("user", text)
        body = {
            "model": self.model,
            "messages": [*self.messages, *new],
            "stream": True,
            "stream_options": {"include_usage": True},
            **request_fields(self.options),
        }

        def finish(done: Completion) -> None:
            self.messages = [*self.messages, *new, answer_message(done)]

        return ServerAnswer(self.client.stream(PATH, body), finish)


@dataclass(frozen=True, slots=True)
class ServerModel:
    """A model behind a server, as the slash commands see it."""

    client: Client
    name: str

    async def save(self, talk: Talk, path: Path) -> None:  # noqa: ARG002 - the signature of every model
        """Refused: the state is the server's."""
        _refuse("/save")

    async def restore(self, path: Path) -> Talk:  # noqa: ARG002 - the signature of every model
        """Refused: the state is the server's."""
        _refuse("/load")

    async def feedback(self, done: Completion, rating: int, correction: str | None) -> int:
        """Sends feedback to the server, which learns if it was started so. Raises ServerError."""
        body: Json = {"completion_id": done.id, "rating": rating, "model": self.name}
        reply = await self.client.post(
            "/v1/feedback", body | ({"correction": correction} if correction else {})
        )
        return int(reply.get("id", 0))

    def size(self, talk: Talk) -> str:
        """Messages; only the server knows tokens."""
        return f"{len(talk.messages)} messages"

    def adapters(self, talk: Talk) -> list[str]:  # noqa: ARG002 - the signature of every model
        """Refused: a server's adapter is a model of its own name."""
        _refuse("/adapter")

    def choose(self, talk: Talk, words: str) -> None:  # noqa: ARG002 - the signature of every model
        """Refused: a server's adapter is a model of its own name."""
        _refuse("/adapter")

    def stats(self, talk: Talk) -> list[str]:
        """The conversation, and who answers."""
        return [f"{talk.id}: {self.size(talk)}, {self}"]

    def __str__(self) -> str:
        return f"{self.name} at {self.client.address.host}:{self.client.address.port}"


def _refuse(command: str) -> NoReturn:
    raise RequestError(
        f"{command} has no meaning with --server: a session file holds the model's state, which the server "
        "keeps to itself",
        field="command",
    )


@contextmanager
def server_talk(
    thread: EngineThread, server: str, key: str | None, model: str | None, options: Mapping[str, Any]
) -> Generator[Conversation]:
    """A conversation with a server. Raises ServerError if it does not answer."""
    request_fields(options)
    client = open_client(server, key)
    try:
        name = thread.run(choose_model(client, model))
        talk = ServerTalk(client, name, options=dict(options))
        yield Conversation(ServerModel(client, name), thread, Screen(), talk)
    finally:
        thread.run(client.aclose())
