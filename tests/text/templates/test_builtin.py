"""Chat templates by name: the prompts of llama.cpp's templates of these names, written by hand."""

from __future__ import annotations

import pytest

from camelid.text.templates.builtin import BUILTIN
from camelid.text.templates.template import compile_template

TALK = [
    {"role": "system", "content": " Be brief.\n"},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes? "},
]
PROMPTS = {
    "chatml": "<|im_start|>system\n Be brief.\n<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    "<|im_start|>assistant\nYes? <|im_end|>\n<|im_start|>assistant\n",
    "command-r": "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be brief.<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Yes?<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    "falcon3": "<|system|>\n Be brief.\n\n<|user|>\nHi\n<|assistant|>\nYes? \n<|assistant|>\n",
    "llama3": "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nYes?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "llama4": "<|header_start|>system<|header_end|>\n\nBe brief.<|eot|>"
    "<|header_start|>user<|header_end|>\n\nHi<|eot|><|header_start|>assistant<|header_end|>\n\nYes?<|eot|>"
    "<|header_start|>assistant<|header_end|>\n\n",
    "phi3": "<|system|>\n Be brief.\n<|end|>\n<|user|>\nHi<|end|>\n"
    "<|assistant|>\nYes? <|end|>\n<|assistant|>\n",
    "phi4": "<|im_start|>system<|im_sep|> Be brief.\n<|im_end|><|im_start|>user<|im_sep|>Hi<|im_end|>"
    "<|im_start|>assistant<|im_sep|>Yes? <|im_end|><|im_start|>assistant<|im_sep|>",
    "rwkv-world": "System: Be brief.\n\nUser: Hi\n\nAssistant: Yes?\n\nAssistant:",
    "vicuna": " Be brief.\n\n\nUSER: Hi\nASSISTANT: Yes? </s>\nASSISTANT:",
    "zephyr": "<|system|>\n Be brief.\n<|endoftext|>\n<|user|>\nHi<|endoftext|>\n"
    "<|assistant|>\nYes? <|endoftext|>\n<|assistant|>\n",
}


def test_every_name_has_its_prompt() -> None:
    assert BUILTIN.keys() == PROMPTS.keys()


def prompt_of(name: str, *, opens: bool) -> str:
    """The talk as a prompt, with the opening of an answer if it `opens`."""
    spans = compile_template(BUILTIN[name]).render(TALK, add_generation_prompt=opens)
    return "".join(text for text, _ in spans)


@pytest.mark.parametrize("name", PROMPTS)
def test_a_template_renders_turns_and_the_opening(name: str) -> None:
    assert prompt_of(name, opens=True) == PROMPTS[name]
    opening = PROMPTS[name].removeprefix(prompt_of(name, opens=False))
    assert 0 < len(opening) < 50
