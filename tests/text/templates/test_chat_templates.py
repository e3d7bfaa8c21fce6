"""Named chat templates, and the choice of one for a conversation (as in transformers)."""

from __future__ import annotations

import pytest

from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.text.templates.builtin import BUILTIN
from camelid.text.templates.named import chosen_template, named_templates

KEY = "tokenizer.chat_template"
NAMED = {"tokenizer.chat_templates": ["tool_use", "rag"], f"{KEY}.tool_use": "T", f"{KEY}.rag": "R"}


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        ({}, {}),
        ({KEY: "D"}, {"default": "D"}),
        ({**NAMED, KEY: "D"}, {"default": "D", "rag": "R", "tool_use": "T"}),
        ({f"{KEY}.rag": "R"}, {"rag": "R"}),
        ({f"{KEY}.default": "other", KEY: "D"}, {"default": "D"}),
        ({"tokenizer.chat_templates": ["gone"], f"{KEY}_other": "x"}, {}),
    ],
)
def test_templates_are_found_by_name(metadata: dict[str, object], want: dict[str, str]) -> None:
    assert list(named_templates(metadata).items()) == list(want.items())


@pytest.mark.parametrize("key", [KEY, f"{KEY}.rag"])
def test_a_template_that_is_not_text_is_refused(key: str) -> None:
    with pytest.raises(ModelFormatError, match=rf"^{key} is a list, but a chat template is text") as caught:
        named_templates({key: ["x"]})
    assert caught.value.facts["key"] == key


@pytest.mark.parametrize(
    ("names", "tools", "name", "want"),
    [
        ("default", False, None, "default"),
        ("default", True, None, "default"),
        ("default tool_use rag", True, None, "tool_use"),
        ("default tool_use rag", False, None, "default"),
        ("default tool_use rag", True, "rag", "rag"),
        ("default tool_use rag", True, "default", "default"),
        ("tool_use", True, None, "tool_use"),
    ],
)
def test_tools_select_the_tool_template(names: str, tools: bool, name: str | None, want: str) -> None:
    templates = {name: f"<{name}>" for name in names.split()}
    assert chosen_template(templates, tools=tools, name=name) == f"<{want}>"


@pytest.mark.parametrize(
    ("names", "name", "message"),
    [
        ("default rag", "rug", "no chat template 'rug'; available: default, rag; choose one of them"),
        ("tool_use", None, "no chat template 'default'; available: tool_use"),
        ("", None, "no chat template 'default'; available: none"),
    ],
)
def test_a_missing_template_is_named_with_the_existing_ones(
    names: str, name: str | None, message: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        chosen_template(dict.fromkeys(names.split(), "x"), tools=False, name=name)
    assert caught.value.facts["name"] == name or name is None


def test_a_name_in_place_of_a_template_is_that_template() -> None:
    """llama.cpp's converter writes the name `rwkv-world`."""
    metadata = {"tokenizer.chat_template": "rwkv-world", "tokenizer.chat_template.other": "rwkv"}
    assert named_templates(metadata) == {"default": BUILTIN["rwkv-world"], "other": "rwkv"}
