"""WordPiece of a tokenizer.json as GGUF's kind "bert".

Tokens that begin a word are spelled with ▁, tokens within a word without a mark, as in llama.cpp's files.
"""

from __future__ import annotations

from collections.abc import Iterator

from camelid.text.to_gguf.losses import GgufFields, Published, losses_of_added, names, not_in_gguf
from camelid.text.to_gguf.vocab import filled, token_types
from camelid.text.tokenizers.hf.models import MAX_CHARS, unk_token
from camelid.text.tokenizers.hf.processors import read_processor
from camelid.text.tokenizers.hf.roles import role_ids
from camelid.text.tokenizers.hf.values import SPACE, Json, count, flag, steps, text
from camelid.text.tokenizers.vocab import NORMAL


def wordpiece_fields(of: Published) -> GgufFields:
    """The vocabulary and the normalization. Raises UnsupportedModelError, ModelFormatError."""
    prefix = text(of.model, "continuing_subword_prefix", "##")
    if not prefix:
        not_in_gguf("model", "has no mark for tokens within a word", of.model)
    types = token_types(of, [], None, False)
    fields: dict[str, object] = {
        "model": "bert",
        "tokens": [
            respelled(token, prefix) if kind == NORMAL else token
            for token, kind in zip(filled(of.vocab), types, strict=True)
        ],
        "token_type": types,
        "unknown_token_id": of.vocab.ids[unk_token(of.model, of.vocab.ids, "[UNK]") or ""],
        "mask_token_id": next(iter(role_ids(of.settings, of.vocab, "mask")), None),
    }
    return GgufFields(
        fields | _frame_fields(of) | _normalizer_fields(of.tokenizer), list(_losses(of, prefix))
    )


def respelled(token: str, prefix: str) -> str:
    """The GGUF spelling of a text token.

    A token with ▁ after its prefix would begin a word: it keeps the prefix and never matches.
    """
    rest = token.removeprefix(prefix)
    if rest == token:
        return SPACE + token
    return token if rest.startswith(SPACE) else rest


def _frame_fields(of: Published) -> dict[str, object]:
    """The tokens that readers of kind "bert" put around every text."""
    before, after = read_processor(of.tokenizer).ids(of.vocab.ids)
    if len(before) != 1 or len(after) != 1:
        not_in_gguf("post-processor", "is not [CLS] text [SEP], which GGUF's kind 'bert' always has", {})
    frame: dict[str, object] = {"cls_token_id": before[0], "seperator_token_id": after[0]}
    return frame | dict.fromkeys(("bos_token_id", "add_bos_token", "add_eos_token"))


def _normalizer_fields(tokenizer: Json) -> dict[str, object]:
    cuts = [kind for kind, _ in steps(tokenizer, "pre_tokenizer", "pretokenizers")]
    if cuts != ["BertPreTokenizer"]:
        shown = {"type": ", ".join(cuts)}
        not_in_gguf("pre-tokenizer", "is not BertPreTokenizer, which GGUF's kind 'bert' has", shown)
    named = steps(tokenizer, "normalizer", "normalizers")
    bert = [step for kind, step in named if kind == "BertNormalizer"]
    whole = bert and all(flag(bert[0], key, default=True) for key in ("clean_text", "handle_chinese_chars"))
    if not whole or len(named) != 1:
        shown = {"type": ", ".join(kind for kind, _ in named)}
        not_in_gguf("normalizer", "is not the full BertNormalizer, which GGUF's kind 'bert' has", shown)
    lowercase = flag(bert[0], "lowercase", default=True)
    return {
        "normalizer.lowercase": lowercase,
        "normalizer.strip_accents": flag(bert[0], "strip_accents", default=lowercase),
    }


def _losses(of: Published, prefix: str) -> Iterator[str]:
    most = count(of.model, "max_input_chars_per_word", 100, MAX_CHARS)
    yield f"GGUF cannot express that words of more than {most} characters are unknown"
    yield f"readers of GGUF treat {SPACE} within a word of the text as the start of another word"
    yield from losses_of_added(of)
    if tokens := [one for one in of.vocab.added.values() if not one.is_control]:
        yield f"readers of GGUF also match added tokens within words: {names(tokens)}"
    decoders = steps(of.tokenizer, "decoder", "decoders")
    usual = [kind == "WordPiece" and flag(step, "cleanup", default=True) for kind, step in decoders] == [True]
    if not usual or text(decoders[0][1], "prefix", "##") != prefix:
        yield "GGUF cannot express how tokens are joined to text; readers drop spaces before . ? ! and ,"
