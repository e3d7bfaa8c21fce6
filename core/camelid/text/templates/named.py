"""A model's named chat templates, and which of them a conversation takes.

GGUF has `tokenizer.chat_template` for the default, and for others `tokenizer.chat_templates`, their names,
beside `tokenizer.chat_template.NAME`. Hugging Face has lists of names and templates, which come to the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from camelid.errors import ModelFormatError, UnsupportedModelError

KEY = "tokenizer.chat_template"
DEFAULT = "default"
TOOLS = "tool_use"


def named_templates(metadata: Mapping[str, object]) -> dict[str, str]:
    """Sources of a GGUF file's chat templates by name, the default first, the others in order of their names.

    A template counts whether or not `tokenizer.chat_templates` lists its name. Raises ModelFormatError for
    one that is no text.
    """
    keys = sorted(key for key in metadata if key.startswith(f"{KEY}."))
    default = {DEFAULT: source(metadata, KEY)} if KEY in metadata else {}
    return {**default, **{key.removeprefix(f"{KEY}."): source(metadata, key) for key in keys}, **default}


def source(metadata: Mapping[str, object], key: str) -> str:
    value = metadata[key]
    if not isinstance(value, str):
        raise ModelFormatError(
            f"{key} is a {type(value).__name__}, but a chat template is text",
            key=key,
            got=type(value).__name__,
        )
    return value


def chosen_template(templates: Mapping[str, str], *, tools: bool, name: str | None = None) -> str:
    """The source of the template asked for, else of that for tools if there are any, else of the default.

    So does transformers. UnsupportedModelError, with the names that there are, for one that the model lacks.
    """
    wanted = name or (TOOLS if tools and TOOLS in templates else DEFAULT)
    if wanted not in templates:
        raise UnsupportedModelError(
            f"this model has no chat template {wanted!r}, it has: {', '.join(templates) or 'none'}; "
            "name one of them, or give the prompt as text",
            kind="chat template", name=wanted,
        )  # fmt: skip
    return templates[wanted]
