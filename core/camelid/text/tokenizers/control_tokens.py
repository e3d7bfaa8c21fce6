"""Control tokens, whatever type a file states: one table of rules for GGUF and tokenizer.json.

A token is a control token by one of four rules: a role's key has its id, ROLES has its text, SHAPES matches
its text, or a chat template writes its text. Its type is then CONTROL, and untrusted text never becomes it.
Ordinary text keeps its ids: one character, whitespace, a byte and a model's own word are no control tokens.
Source: ggml-org/llama.cpp src/llama-vocab.cpp, where a published text overrides the file's type too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from camelid.text.tokenizers.specials import MAX_NAME, Finder, Named
from camelid.text.tokenizers.vocab import CONTROL, NORMAL, UNUSED, USER_DEFINED


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A row of the table.

    `keys`: ids in GGUF, after tokenizer.ggml.; `fields`: tokens and ids in Hugging Face's files, before
    _token and _token_id; `ends`: published texts that end a turn; `texts`: the other published texts;
    `prose`: published texts that occur in prose too, so that a NORMAL token may be an ordinary word.
    """

    keys: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    prose: tuple[str, ...] = ()


ROLES: Mapping[str, Role] = {
    "bos": Role(
        keys=("bos_token_id", "cls_token_id"), fields=("bos", "cls"),
        texts=("<bos>", "[BOS]", "[CLS]", "<BOS_TOKEN>", "<seed:bos>", "[@BOS@]", "<sop>", "[gMASK]"),
        prose=("<s>",),
    ),
    "eos": Role(
        keys=("eos_token_id",), fields=("eos",),
        ends=("<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>"),
        texts=("<eos>", "[EOS]", "<EOS_TOKEN>", "<seed:eos>", "<eop>", "[e~["),
        prose=("</s>",),
    ),
    "eot": Role(
        keys=("eot_token_id",), fields=("eot",),
        ends=(
            "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<EOT>",
            "_<EOT>", "<end_of_utterance>",
        ),
        texts=("▁<EOT>", "[EOT]", "<turn|>", "[|endofturn|]"),
    ),
    "eom": Role(keys=("eom_token_id",), fields=("eom",), ends=("<|eom_id|>",)),
    "sep": Role(
        keys=("seperator_token_id", "separator_token_id"), fields=("sep",), texts=("[SEP]", "<sep>")
    ),
    "pad": Role(keys=("padding_token_id",), fields=("pad",), texts=("<pad>", "[PAD]", "<PAD>", "<fim_pad>")),
    "mask": Role(keys=("mask_token_id",), fields=("mask",), texts=("<mask>", "[MASK]", "<2mass>")),
    "fim prefix": Role(
        keys=("fim_pre_token_id", "prefix_token_id"), fields=("prefix", "fim_prefix"),
        texts=("<fim_prefix>", "<fim-prefix>", "<PRE>", "▁<PRE>", "[PREFIX]", ">>PREFIX<<"),
    ),
    "fim suffix": Role(
        keys=("fim_suf_token_id", "suffix_token_id"), fields=("suffix", "fim_suffix"),
        texts=("<fim_suffix>", "<fim-suffix>", "<SUF>", "▁<SUF>", "[SUFFIX]", ">>SUFFIX<<"),
    ),
    "fim middle": Role(
        keys=("fim_mid_token_id", "middle_token_id"), fields=("middle", "fim_middle"),
        texts=("<fim_middle>", "<fim-middle>", "<MID>", "▁<MID>", "[MIDDLE]", ">>MIDDLE<<"),
    ),
    "fim files": Role(
        keys=("fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id"),
        fields=("fim_pad", "fim_repo", "fim_sep"),
        texts=("<fim-pad>", "<fim-repo>", "<REPO>", "<reponame>", "<repo_name>", "<file_sep>"),
    ),
    "chat": Role(
        texts=(
            "<start_of_turn>", "<|turn>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]",
            "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[|user|]",
            "[|assistant|]", "[|system|]", "[|tool|]",
        ),
        prose=("[INST]", "[/INST]"),
    ),
}  # fmt: skip

# <|im_start|>, <｜User｜>, <|fim_prefix|>: ordinary text has no such word.
SHAPES = re.compile(r"<\|.+\|>|<｜.+｜>|<unused[0-9]+>", re.DOTALL)
# HTML tag -> the token that has its role, if the tag is text: Gemma's vocabularies have both.
HTML = {"<s>": "<bos>", "</s>": "<eos>"}
# A name between brackets: a marker of a chat format.
MARKER = re.compile(r"""[<>\[\]|｜](?=.*[A-Za-z~\u0080-\U0010ffff]).+[<>\[\]|｜]""", re.DOTALL)
# Exceptions: byte tokens, and string literals of a template's code.
NO_MARKER = re.compile("""<0x[0-9A-Fa-f]{2}>|.*['"].*""", re.DOTALL)
SUBSCRIPT = re.compile(r"[A-Za-z0-9_]\[")
BRACKETS = frozenset("<>[]|｜")  # first characters of the tokens that SHAPES and MARKER match
LEAST_WRITTEN = 4  # characters of a token that a template writes; [x] and <b> are prose

PUBLISHED = frozenset(text for role in ROLES.values() for text in (*role.ends, *role.texts))
PROSE = frozenset(text for role in ROLES.values() for text in role.prose)
ENDS = frozenset(text for role in ROLES.values() for text in role.ends)
END_KEYS = tuple(key for role in ROLES.values() if role.ends for key in role.keys)
KEYS = tuple(key for role in ROLES.values() for key in role.keys)
FIELDS = tuple(field for role in ROLES.values() for field in role.fields)
TEXT_KINDS = frozenset({NORMAL, USER_DEFINED, UNUSED})  # bytes stay bytes, and the unknown token unknown


def control_texts(
    tokens: Sequence[str], types: Sequence[int], role_ids: Iterable[int], templates: Iterable[str]
) -> frozenset[str]:
    """Texts of the control tokens that have a text type.

    `role_ids`: the ids of roles in the files; `templates`: sources of the chat templates. A NORMAL token is
    an ordinary word if a token of type CONTROL has the same text.
    """
    kinds = dict(zip(tokens, types, strict=True))
    bracketed = [token for token in kinds if token[:1] in BRACKETS]  # a large vocabulary has few
    shaped = (token for token in bracketed if SHAPES.fullmatch(token))
    control = {*published(kinds), *shaped, *written(bracketed, templates)}
    typed = {pair for pair in zip(tokens, types, strict=True) if pair[1] != NORMAL}
    control -= {text for text, kind in typed if kind == CONTROL and (text, USER_DEFINED) not in typed}
    control |= {tokens[i] for i in role_ids if not is_text(tokens[i], types[i])}
    return frozenset(control)


def overridden(types: Sequence[int], tokens: Sequence[str], control: Collection[str]) -> list[int]:
    """The types, with CONTROL for text tokens whose text is in `control`."""
    found = list(types)
    for i in (i for i, token in enumerate(tokens) if token in control):
        found[i] = CONTROL if found[i] in TEXT_KINDS else found[i]
    return found


def is_text(token: str, kind: int) -> bool:
    """True for ordinary text that a role may have too: "!" as padding, or RWKV's EOT of two line ends."""
    blank = not token.replace("▁", " ").strip()
    return len(token) < 2 or blank or (kind == NORMAL and not is_marker(token))


def published(kinds: Mapping[str, int]) -> Iterator[str]:
    """Yields the texts of ROLES among the tokens; an HTML tag only if no other token has its role."""
    yield from PUBLISHED & kinds.keys()
    for text in PROSE & kinds.keys():
        if kinds[text] != NORMAL and HTML.get(text) not in kinds:
            yield text


def written(tokens: Iterable[str], templates: Iterable[str]) -> Iterator[str]:
    """Yields the tokens that chat templates write outside of comments."""
    sources = [uncommented(source) for source in templates]
    finder = Finder(Named(token, 0) for token in tokens if sources and may_be_written(token))
    for source in sources:
        for at, named in finder.matches(source, ()):
            if not SUBSCRIPT.match(source, at - 1 if at else 0):
                yield named.text


def may_be_written(token: str) -> bool:
    """True for a marker of a chat format, false for a word of a template's prose."""
    return LEAST_WRITTEN <= len(token) <= MAX_NAME and is_marker(token)


def is_marker(token: str) -> bool:
    """True for a name between brackets."""
    return MARKER.fullmatch(token) is not None and not NO_MARKER.fullmatch(token)


def uncommented(source: str) -> str:
    """A template without its comments. The code stays, since its strings contain the markers."""
    first, *rest = source.split("{#")
    return first + "".join(part.partition("#}")[2] if "#}" in part else part for part in rest)
