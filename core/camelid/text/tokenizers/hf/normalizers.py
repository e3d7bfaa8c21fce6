"""Normalizers of a tokenizer.json: text to text, before it is cut.

Source: huggingface/tokenizers, docs of `normalizers`.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from functools import partial

from camelid.errors import ModelFormatError
from camelid.text.tokenizers import normalize as forms
from camelid.text.tokenizers.charsmap import Charsmap
from camelid.text.tokenizers.graphemes import clusters
from camelid.text.tokenizers.hf.regexes import read_pattern, replace
from camelid.text.tokenizers.hf.values import Json, flag, row, steps, text
from camelid.text.tokenizers.specials import Normalize


def read_normalizer(tokenizer: Json) -> Normalize | None:
    """All steps as one function; None without steps. Raises ModelFormatError, UnsupportedModelError."""
    found = [
        row(NORMALIZERS, kind, "normalizer")(step)
        for kind, step in steps(tokenizer, "normalizer", "normalizers")
    ]
    if len(found) < 2:
        return next(iter(found), None)

    def normalize(text: str) -> str:
        for step in found:
            text = step(text)
        return text

    return normalize


def _prepend(step: Json) -> Normalize:
    prefix = text(step, "prepend")
    return lambda text: prefix + text if text else text


def _replace(step: Json) -> Normalize:
    new = text(step, "content")
    spans = read_pattern(step.get("pattern"), "normalizer.pattern")
    return lambda text: replace(text, spans(text), new)


def _strip(step: Json) -> Normalize:
    left, right = flag(step, "strip_left"), flag(step, "strip_right")
    return partial(forms.strip, left=left, right=right)


def _bert(step: Json) -> Normalize:
    strip_accents = None if step.get("strip_accents") is None else flag(step, "strip_accents")
    return partial(
        forms.bert,
        clean_text=flag(step, "clean_text", default=True),
        handle_chinese_chars=flag(step, "handle_chinese_chars", default=True),
        strip_accents=strip_accents,
        lowercase=flag(step, "lowercase", default=True),
    )


def charsmap_bytes(step: Json) -> bytes:
    """The data of a Precompiled step; empty without data. Raises ModelFormatError."""
    try:
        return binascii.a2b_base64(text(step, "precompiled_charsmap", "").encode())
    except binascii.Error as error:
        raise ModelFormatError(f"tokenizer: precompiled_charsmap is not base64: {error}") from None


def _precompiled(step: Json) -> Normalize:
    if not step.get("precompiled_charsmap"):
        return lambda text: text
    charsmap = Charsmap(charsmap_bytes(step))
    return lambda text: charsmap.normalize_clusters(clusters(text))


def _always(form: Normalize) -> Callable[[Json], Normalize]:
    """A reader of a step without fields."""
    return lambda _: form


NORMALIZERS: Mapping[str, Callable[[Json], Normalize]] = {
    **{kind: _always(form) for kind, form in forms.NORMALIZERS.items()},
    "BertNormalizer": _bert,
    "Precompiled": _precompiled,
    "Prepend": _prepend,
    "Replace": _replace,
    "Strip": _strip,
}
