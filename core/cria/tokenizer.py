"""The byte-level BPE tokenizer and the chat template."""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import gguf
from jinja2 import Environment, Template
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from cria.talk import Message, Talk

FIRST_SIZE, VOCAB_SIZE = 1024, 1088  # of the first edition, whose ids stay, and of the full one
END_OF_TEXT, IM_START, IM_END = SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# The published qwen2 expression; it splits digits one by one, which keeps arithmetic aligned.
PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TAGS = ("<tools>", "</tools>", "<tool_call>", "</tool_call>")
# Tools and calls in Hermes format; results are turns of role tool.
CHAT_TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>system\\n' }}"
    "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] + '\\n' }}{% endif %}"
    "{{ '<tools>' }}{% for tool in tools %}{{ '\\n' + tool['function'] | tojson }}{% endfor %}"
    "{{ '\\n</tools><|im_end|>' + '\\n' }}{% endif %}"
    "{% for message in messages %}{% if not (tools and loop.first and message['role'] == 'system') %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') }}"
    "{% for call in message['tool_calls'] or [] %}{{ '<tool_call>{\"name\": ' + call['function']['name'] | tojson }}"
    "{{ ', \"arguments\": ' + call['function']['arguments'] | tojson + '}</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>' + '\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def blank_tokenizer() -> Tokenizer:
    """The pre-tokenizer and decoder, without a vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Trains a tokenizer on texts. Raises ValueError if they yield too few tokens."""
    tokenizer = blank_tokenizer()
    specials = [AddedToken(token, special=True, normalized=False) for token in SPECIALS]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=specials,
        initial_alphabet=alphabet,
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise ValueError(
            f"vocabulary has {tokenizer.get_vocab_size()} tokens, expected {VOCAB_SIZE}: give more text"
        )
    return tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    """Loads a tokenizer from its JSON file."""
    return Tokenizer.from_file(str(path))


def to_json(value: object) -> str:
    """JSON text as the chat template's `tojson` writes it."""
    return json.dumps(value, ensure_ascii=False)


@cache
def chat_template() -> Template:
    """The compiled chat template."""
    environment = Environment(keep_trailing_newline=True)
    environment.filters["tojson"] = to_json
    return environment.from_string(CHAT_TEMPLATE)


def render(talk: Talk) -> str:
    """The prompt of a conversation, with the generation prompt."""
    return chat_template().render(messages=talk.messages, tools=talk.tools, add_generation_prompt=True)


def written(message: Message) -> str:
    """The body of a message: its text, then its tool calls."""
    calls = (call["function"] for call in message.get("tool_calls", ()))
    return message["content"] + "".join(called(call["name"], call["arguments"]) for call in calls)


def called(name: str, arguments: object) -> str:
    """A tool call in the template's format."""
    return f'<tool_call>{{"name": {to_json(name)}, "arguments": {to_json(arguments)}}}</tool_call>'


def offered(talk: Talk) -> Iterator[Message]:
    """The messages, with the tools merged into the system message."""
    messages = talk.messages
    if talk.tools:
        has_system = messages[0]["role"] == "system"
        head = messages[0]["content"] + "\n" if has_system else ""
        lines = "".join("\n" + to_json(tool["function"]) for tool in talk.tools)
        yield {"role": "system", "content": f"{head}<tools>{lines}\n</tools>"}
        messages = messages[1:] if has_system else messages
    yield from messages


def pieces(talk: Talk) -> Iterator[tuple[str, bool]]:
    """The text of a conversation in pieces, each with True if the loss covers it."""
    for message in offered(talk):
        yield f"<|im_start|>{message['role']}\n", False
        yield written(message) + "<|im_end|>", message["role"] == "assistant"
        yield "\n", False
    yield END_OF_TEXT, False


def gguf_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a GGUF file."""
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = blank_tokenizer()
    tokenizer.model = models.BPE({token: i for i, token in enumerate(tokens)}, merges)
    kinds = list(zip(tokens, fields["tokenizer.ggml.token_type"].contents(), strict=True))
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True) for t, kind in kinds if kind == gguf.TokenType.CONTROL]
    )
    tokenizer.add_tokens(
        [AddedToken(t, normalized=False) for t, kind in kinds if kind == gguf.TokenType.USER_DEFINED]
    )
    return tokenizer
