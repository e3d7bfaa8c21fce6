"""Post-processors of a tokenizer.json: the tokens around every text.

They alone count: transformers 5 leaves add_bos_token and add_eos_token of tokenizer_config.json aside where
there is a tokenizer.json. Source: huggingface/tokenizers, docs of `processors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from camelid.errors import ModelFormatError
from camelid.text.tokenizers.hf.values import Json, array, mapping, refuse, row, shown, steps, typed


@dataclass(frozen=True, slots=True)
class Around:
    """Names of the tokens before and after a text."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def ids(self, known: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Their ids. Raises ModelFormatError for a name without one."""
        for name in (*self.before, *self.after):
            if name not in known:
                raise ModelFormatError(
                    f"tokenizer: the post-processor adds {shown(name)}, which is not in the vocabulary",
                    token=name,
                )
        return tuple(known[name] for name in self.before), tuple(known[name] for name in self.after)


def read_processor(tokenizer: Json) -> Around:
    """What goes around a single text; of several steps each goes around what the ones before it made.

    Behind a template there can be no other: `tokenizers` then takes the template's pieces for two texts.
    """
    around, ended = Around(), False
    for kind, step in steps(tokenizer, "post_processor", "processors"):
        found = row(PROCESSORS, kind, "post-processor")(step)
        if found != Around() and ended:
            refuse("post-processor", "frames a text that a template has framed", step)
        around = Around((*found.before, *around.before), (*around.after, *found.after))
        ended = ended or (kind == "TemplateProcessing" and found != Around())
    return around


def _cls_and_sep(step: Json) -> Around:
    return Around((_name(step.get("cls"), "cls"),), (_name(step.get("sep"), "sep"),))


def _name(value: object, key: str) -> str:
    pair = array(value, f"post_processor.{key}")
    return typed(pair[0] if pair else None, str, f"post_processor.{key}[0]")


def _template(step: Json) -> Around:
    """The special tokens on both sides of the text, which must be there once."""
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
        refuse("post-processor", f"has the text {seen} times, want once", step)
    return Around(tuple(sides[0]), tuple(sides[1]))


# ByteLevel only moves offsets, which nothing here asks for.
PROCESSORS: Mapping[str, Callable[[Json], Around]] = {
    "BertProcessing": _cls_and_sep,
    "ByteLevel": lambda _: Around(),
    "RobertaProcessing": _cls_and_sep,
    "TemplateProcessing": _template,
}
