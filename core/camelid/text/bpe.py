"""Byte-level BPE: words as bytes, joined pair by pair in the order of the merges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import pairwise
from typing import cast

from camelid.errors import ModelFormatError, RequestError
from camelid.text.pretokenize import Splitter, splitter
from camelid.text.vocab import ALPHABET, CONTROL, NORMAL, STEERING, Run, Vocab

CACHED_WORDS = 16_384  # at most CACHED_WORDS * CACHED_CHARS characters of text are kept
CACHED_CHARS = 64

# Keys of the ids that end a text or a turn.
EOS_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Control tokens that end a turn although many files name only one of theirs (llama.cpp src/llama-vocab.cpp).
EOS_NAMES = {
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>",
    "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>", "<｜end▁of▁sentence｜>", "<end_of_utterance>",
}  # fmt: skip


class ByteLevelBpe:
    """A byte-level BPE tokenizer: the `Tokenizer` of GPT-2, Llama 3, Qwen and most others.

    Raises ModelFormatError when tokens, types and merges contradict each other.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Sequence[str],
        *,
        splitter: Splitter,
        token_types: Sequence[int] | None = None,
        eos_ids: Iterable[int] = (),
        bos_id: int | None = None,
        eos_id: int | None = None,
        add_bos: bool = False,
        add_eos: bool = False,
    ) -> None:
        self.vocab = Vocab(tokens, token_types or [NORMAL] * len(tokens))
        self.eos_ids = frozenset(eos_ids)
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.add_bos = add_bos
        self.add_eos = add_eos
        self._splitter = splitter
        # Steering tokens are left out: no merge and no whole word may make one out of ordinary text.
        text_tokens = [i for i, kind in enumerate(self.vocab.types) if kind not in STEERING]
        self._ids = {tokens[i]: i for i in reversed(text_tokens) if tokens[i]}
        self._byte_ids = [self._ids.get(char, -1) for char in ALPHABET]
        self._whole = {self.vocab.pieces[i]: i for i in text_tokens} if splitter.ignore_merges else {}
        self._ranks: dict[int, int] = {}
        self._merged: list[int] = []
        for merge in merges:
            self._add_merge(merge)
        self._cached_word = lru_cache(CACHED_WORDS)(self._word)

    @property
    def vocab_size(self) -> int:
        return len(self.vocab)

    def token_bytes(self, token_id: int) -> bytes:
        """What the token stands for. Raises RequestError for an id out of range."""
        return self.vocab.token_bytes(token_id)

    def is_control(self, token_id: int) -> bool:
        """Whether the token steers the model instead of standing for text. Raises RequestError."""
        return self.vocab.is_control(token_id)

    def decode(self, token_ids: Iterable[int], *, special: bool = False) -> str:
        """The text of `token_ids`, U+FFFD for what is not UTF-8. Raises RequestError."""
        return self.vocab.decode(token_ids, special)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Token ids of `text`; with `special`, control tokens that it names are recognised.

        Raises RequestError for a lone surrogate.
        """
        return self.encode_spans([(text, special)])

    def encode_spans(self, spans: Iterable[tuple[str, bool]]) -> list[int]:
        """Token ids of the joined (text, trusted) spans; control tokens count in trusted text only.

        Borders of spans leave no trace: words run across them, as if one string had been encoded.
        """
        text, trusted = join(spans)
        check_surrogates(text)
        token_ids: list[int] = []
        for part in self.vocab.specials.partition(text, trusted):
            if isinstance(part, int):
                token_ids.append(part)
                continue
            for word in self._splitter.split(part):
                token_ids += self._cached_word(word) if len(word) <= CACHED_CHARS else self._word(word)
        return token_ids

    def _add_merge(self, merge: str) -> None:
        border = merge.find(" ", 1)  # a token is never empty
        left, right = merge[:border], merge[border + 1 :]
        parts = [self._ids.get(token) for token in (left, right, left + right)] if border > 0 else [None]
        rank = len(self._merged)
        if None in parts:
            unknown = (left, right, left + right)[parts.index(None)]
            raise ModelFormatError(
                f"tokenizer: merge {rank} is {merge!r:.80}, but {unknown!r:.80} is no text token of the "
                "vocabulary",
                merge=merge,
                token=unknown,
            )
        left_id, right_id, merged_id = cast(list[int], parts)
        if self._ranks.setdefault(left_id * len(self.vocab) + right_id, rank) != rank:
            raise ModelFormatError(f"tokenizer: merge {rank}, {merge!r:.80}, is listed twice", merge=merge)
        self._merged.append(merged_id)

    def _word(self, word: str) -> Sequence[int]:
        data = word.encode()
        whole = self._whole.get(data)
        if whole is not None:
            return (whole,)
        token_ids = [self._byte_ids[byte] for byte in data]
        if -1 in token_ids:
            byte = data[token_ids.index(-1)]
            raise RequestError(
                f"the vocabulary has no token for byte 0x{byte:02x}, in {word[:20]!r}",
                field="text",
                byte=byte,
            )
        return tuple(self._merge(token_ids))

    def _merge(self, token_ids: list[int]) -> list[int]:
        """Join the pair of lowest rank, leftmost first, until none is left. O(n log n).

        Places wait in one heap a rank; a place counts only while it still begins a pair of that rank.
        """
        n, size, rank_of = len(token_ids), len(self.vocab), self._ranks.get
        after, before = list(range(1, n + 1)), list(range(-1, n - 1))
        waiting: dict[int, list[int]] = {}
        for i, (left_id, right_id) in enumerate(pairwise(token_ids)):
            if (rank := rank_of(left_id * size + right_id)) is not None:
                waiting.setdefault(rank, []).append(i)
        queue = sorted(waiting)
        while queue:
            rank = queue[0]
            if not waiting[rank]:
                del waiting[heappop(queue)]
                continue
            left = heappop(waiting[rank])
            right = after[left]
            if right >= n or rank_of(token_ids[left] * size + token_ids[right]) != rank:
                continue
            token_ids[left], token_ids[right] = self._merged[rank], -1
            after[left] = after[right]
            for i, j in ((before[left], left), (left, after[left])):
                if i >= 0 and j < n:
                    before[j] = i
                    if (rank := rank_of(token_ids[i] * size + token_ids[j])) is not None:
                        if rank not in waiting:
                            waiting[rank] = []
                            heappush(queue, rank)
                        heappush(waiting[rank], i)
        return [token_id for token_id in token_ids if token_id >= 0]


def join(spans: Iterable[tuple[str, bool]]) -> tuple[str, list[Run]]:
    """The text of all spans, and where it is trusted: sorted runs that do not touch."""
    texts: list[str] = []
    runs: list[Run] = []
    end = 0
    for text, trusted in spans:
        start, end = end, end + len(text)
        texts.append(text)
        if trusted and runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], end)
        elif trusted:
            runs.append((start, end))
    return "".join(texts), runs


def check_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code_point = ord(text[error.start])
        raise RequestError(
            f"the text has a lone surrogate, U+{code_point:04X}, at character {error.start}; "
            "it is not valid Unicode, so no model can read it",
            field="text",
            code_point=code_point,
            offset=error.start,
        ) from None


def bpe_from_gguf(metadata: Mapping[str, object]) -> ByteLevelBpe:
    """Build the tokenizer from `tokenizer.ggml.*`. Raises ModelFormatError, UnsupportedModelError."""
    tokens = cast("list[str]", array(metadata, "tokens", str))
    merges = cast("list[str]", array(metadata, "merges", str))
    types = cast("list[int]", array(metadata, "token_type", int)) if key("token_type") in metadata else None
    check_vocab_size(metadata, len(tokens))
    name = metadata.get(key("pre"), "default")
    row = splitter(name if isinstance(name, str) else repr(name))
    bos_id, add_bos = framing(metadata, "bos", len(tokens), default=row.add_bos)
    eos_id, add_eos = framing(metadata, "eos", len(tokens))
    tokenizer = ByteLevelBpe(
        tokens, merges, splitter=row, token_types=types,
        bos_id=bos_id, eos_id=eos_id, add_bos=add_bos, add_eos=add_eos,
    )  # fmt: skip
    tokenizer.eos_ids = eos_ids(metadata, tokenizer.vocab)
    return tokenizer


def key(name: str) -> str:
    return f"tokenizer.ggml.{name}"


def array(metadata: Mapping[str, object], name: str, kind: type) -> list[object]:
    """An array of the metadata whose items are all of one kind."""
    value = metadata.get(key(name))
    if not isinstance(value, list):
        raise ModelFormatError(f"{key(name)} is {type(value).__name__}, want an array", key=key(name))
    items = cast("list[object]", value)
    for i, item in enumerate(items):
        if type(item) is not kind:
            raise ModelFormatError(f"{key(name)}[{i}] is {item!r:.40}, want {kind.__name__}", key=key(name))
    return items


def check_vocab_size(metadata: Mapping[str, object], n_tokens: int) -> None:
    """The architecture's own count, where the file has one, must be the number of tokens."""
    size = metadata.get(f"{metadata.get('general.architecture')}.vocab_size", n_tokens)
    if size != n_tokens or n_tokens == 0:
        raise ModelFormatError(
            f"tokenizer: {n_tokens} tokens, but vocab_size is {size!r:.80}; the file is damaged",
            got=n_tokens,
            want=size,
        )


def special_id(metadata: Mapping[str, object], name: str, n_tokens: int) -> int | None:
    token_id = metadata.get(key(name))
    if token_id is None or (type(token_id) is int and 0 <= token_id < n_tokens):
        return token_id
    raise ModelFormatError(
        f"{key(name)} is {token_id!r:.80}, want an id below {n_tokens}",
        key=key(name),
        got=token_id,
        want=n_tokens,
    )


def framing(
    metadata: Mapping[str, object], role: str, n_tokens: int, *, default: bool = False
) -> tuple[int | None, bool]:
    """The id of "bos" or "eos", and whether every text gets it. Raises ModelFormatError."""
    token_id = special_id(metadata, f"{role}_token_id", n_tokens)
    adds = metadata.get(key(f"add_{role}_token"), default)
    if isinstance(adds, bool) and (token_id is not None or not adds):
        return token_id, adds
    raise ModelFormatError(
        f"{key(f'add_{role}_token')} is {adds!r:.80} with {key(f'{role}_token_id')} {token_id}; "
        "want bool and id",
        key=key(f"add_{role}_token"),
    )


def eos_ids(metadata: Mapping[str, object], vocab: Vocab) -> frozenset[int]:
    """The ids that the file names, and control tokens known by name to end a turn."""
    named = {special_id(metadata, name, len(vocab)) for name in EOS_KEYS} - {None}
    known = {t: i for t, i in vocab.specials.ids.items() if t in EOS_NAMES and vocab.types[i] == CONTROL}
    if "<|return|>" in known and "<|call|>" in known:
        known.pop("<|end|>", None)  # gpt-oss: closes a message, not the turn
    return frozenset(cast("set[int]", named)) | frozenset(known.values())
