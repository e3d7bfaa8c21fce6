"""Post-processors of a tokenizer.json: the tokens put around every text.

add_bos_token and add_eos_token of tokenizer_config.json have no effect, as in transformers 5 for models with
a tokenizer.json. Source: huggingface/tokenizers, docs of `processors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from camelid.errors import ModelFormatError
from camelid.text.tokenizers.hf.values import Json, array, mapping, refuse, row, shown, steps, typed


@dataclass(frozen=True, slots=True)
class TokensAround:
    """Names of the tokens before and after a text."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def ids(self, known: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids of the tokens before and after. Raises ModelFormatError for a name without an id."""
        for name in (*self.before, *self.after):
            if name not in known:
                raise ModelFormatError(
                    f"tokenizer: the post-processor adds {shown(name)}, which is not in the vocabulary",
                    token=name,
                )
        return tuple(known[name] for name in self.before), tuple(known[name] for name in self.after)


def read_processor(tokenizer: Json) -> TokensAround:
    """The tokens around a single text; each step goes around the result of the previous steps.

    No step may follow a template: `tokenizers` would treat the template's pieces as two texts.
    """
    around, ended = TokensAround(), False
    for kind, step in steps(tokenizer, "post_processor", "processors"):
        found = row(PROCESSORS, kind, "post-processor")(step)
        if found != TokensAround() and ended:
            refuse("post-processor", "follows a template", step)
        around = TokensAround((*found.before, *around.before), (*around.after, *found.after))
        ended = ended or (kind == "TemplateProcessing" and found != TokensAround())
    return around


def doubles_separator(tokenizer: Json) -> bool:
    """True if two tokens separate the texts of a pair, as in RoBERTa."""
    return any(_has_two(kind, step) for kind, step in steps(tokenizer, "post_processor", "processors"))


def _has_two(kind: str, step: Json) -> bool:
    if kind != "TemplateProcessing":
        return kind == "RobertaProcessing"
    pieces = [mapping(piece, "post_processor.pair") for piece in array(step.get("pair") or [], "pair")]
    texts = [i for i, piece in enumerate(pieces) if "Sequence" in piece]
    return len(texts) == 2 and texts[1] - texts[0] > 2


def _cls_and_sep(step: Json) -> TokensAround:
    return TokensAround((_name(step.get("cls"), "cls"),), (_name(step.get("sep"), "sep"),))


def _name(value: object, key: str) -> str:
    pair = array(value, f"post_processor.{key}")
    return typed(pair[0] if pair else None, str, f"post_processor.{key}[0]")


def _template(step: Json) -> TokensAround:
    """The special tokens on both sides of the text, which must occur once."""
    sides: tuple[list[str], list[str]] = ([], [])
    seen = 0
    for piece in array(step.get("single"), "post_processor.single"):
        item = mapping(piece, "post_processor.single")
        if "SpecialToken" in item:
            token = mapping(item["SpecialToken"], "post_processor.single")
            sides[min(seen, 1)].append(typed(token.get("id"), str, "SpecialToken.id"))
        else:
            seen += 1
    if seen != 1:
        refuse("post-processor", f"has the text {seen} times, expected once", step)
    return TokensAround(tuple(sides[0]), tuple(sides[1]))


# ByteLevel only changes offsets, which are not computed here.
PROCESSORS: Mapping[str, Callable[[Json], TokensAround]] = {
    "BertProcessing": _cls_and_sep,
    "ByteLevel": lambda _: TokensAround(),
    "RobertaProcessing": _cls_and_sep,
    "TemplateProcessing": _template,
}
