"""A model's named chat templates and the choice among them.

GGUF stores the default template in `tokenizer.chat_template`; further templates are listed by name in
`tokenizer.chat_templates` and stored in `tokenizer.chat_template.NAME`. Hugging Face stores a list of names
and templates, which `model.hf` converts to the same keys.
"""

from __future__ import annotations

from collections.abc import Mapping

from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.text.templates.builtin import BUILTIN

KEY = "tokenizer.chat_template"
DEFAULT = "default"
TOOLS = "tool_use"
RERANK = f"{KEY}.rerank"  # of a causal model that ranks by its answer; not Jinja, but a text with these marks
QUERY, DOCUMENT = "{query}", "{document}"


def named_templates(metadata: Mapping[str, object]) -> dict[str, str]:
    """The sources of a GGUF file's chat templates by name, the default first, the others sorted by name.

    A template counts whether or not `tokenizer.chat_templates` lists its name. Raises ModelFormatError for a
    template that is not text.
    """
    keys = sorted(key for key in metadata if key.startswith(f"{KEY}."))
    default = {DEFAULT: source(metadata, KEY)} if KEY in metadata else {}
    return {**default, **{key.removeprefix(f"{KEY}."): source(metadata, key) for key in keys}, **default}


def source(metadata: Mapping[str, object], key: str) -> str:
    """The text of a template; files of RWKV have a name of llama.cpp's in its place."""
    value = metadata[key]
    if not isinstance(value, str):
        raise ModelFormatError(
            f"{key} is a {type(value).__name__}, but a chat template is text",
            key=key,
            got=type(value).__name__,
        )
    return BUILTIN.get(value, value)


def chosen_template(templates: Mapping[str, str], *, tools: bool, name: str | None = None) -> str:
    """The source of the template `name`; without a name `tool_use` if there are tools, else the default.

    transformers makes the same choice. Raises UnsupportedModelError, with the available names, for a missing
    template.
    """
    chosen = name or (TOOLS if tools and TOOLS in templates else DEFAULT)
    if chosen not in templates:
        raise UnsupportedModelError(
            f"this model has no chat template {chosen!r}; available: {', '.join(templates) or 'none'}; "
            "choose one of them, or give the prompt as text",
            kind="chat template", name=chosen,
        )  # fmt: skip
    return templates[chosen]
