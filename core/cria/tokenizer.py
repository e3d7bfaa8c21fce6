"""The byte-level BPE vocabulary of exactly 1024 tokens, and the chat template."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 1024
PROMPT_WEIGHT = 0.1  # of tokens in the loss that the model is not to write itself
END_OF_TEXT, IM_START, IM_END = SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# The published qwen2 expression; it takes digits one by one, which keeps arithmetic aligned.
PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def blank_tokenizer() -> Tokenizer:
    """A tokenizer without vocabulary."""
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
    """A tokenizer fitted to texts."""
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
            f"vocabulary has {tokenizer.get_vocab_size()} tokens, wants {VOCAB_SIZE}: give more text"
        )
    return tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer from its JSON file."""
    return Tokenizer.from_file(str(path))


def pieces(messages: list[dict[str, str]]) -> Iterator[tuple[str, float]]:
    """The text of a conversation in pieces, each with the weight of its tokens in the loss."""
    for message in messages:
        taught = message["role"] == "assistant"
        yield f"<|im_start|>{message['role']}\n", PROMPT_WEIGHT
        yield message["content"] + "<|im_end|>", 1.0 if taught else PROMPT_WEIGHT
        yield "\n", PROMPT_WEIGHT
    yield END_OF_TEXT, PROMPT_WEIGHT
