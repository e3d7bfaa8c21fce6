"""Chat templates by name, for models without one; names of llama-server's `--chat-template NAME`."""

from __future__ import annotations

from collections.abc import Mapping


def turns(turn: str, opening: str) -> str:
    """A template of turns alike, and the opening of the answer. `m` is the message, with its text trimmed."""
    return (
        "{% for message in messages %}{% set m = {'role': message.role, 'content': message.content | trim} %}"
        f"{turn}{{% endfor %}}{{% if add_generation_prompt %}}{opening}{{% endif %}}"
    )


def by_role(**texts: str) -> str:
    """A turn whose text depends on its role."""
    cases = "{% el".join(f"if m.role == '{role}' %}}{text}" for role, text in texts.items())
    return f"{{% {cases}{{% endif %}}"


CHATBOT = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"
BUILTIN: Mapping[str, str] = {
    "chatml": turns("<|im_start|>{{ m.role }}\n{{ message.content }}<|im_end|>\n", "<|im_start|>assistant\n"),
    "command-r": turns(
        by_role(
            system="<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{{ m.content }}<|END_OF_TURN_TOKEN|>",
            user="<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{{ m.content }}<|END_OF_TURN_TOKEN|>",
            assistant=CHATBOT + "{{ m.content }}<|END_OF_TURN_TOKEN|>",
        ),
        CHATBOT,
    ),
    "falcon3": turns("<|{{ m.role }}|>\n{{ message.content }}\n", "<|assistant|>\n"),
    "llama3": turns(
        "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "llama4": turns(
        "<|header_start|>{{ m.role }}<|header_end|>\n\n{{ m.content }}<|eot|>",
        "<|header_start|>assistant<|header_end|>\n\n",
    ),
    "phi3": turns("<|{{ m.role }}|>\n{{ message.content }}<|end|>\n", "<|assistant|>\n"),
    "phi4": turns(
        "<|im_start|>{{ m.role }}<|im_sep|>{{ message.content }}<|im_end|>", "<|im_start|>assistant<|im_sep|>"
    ),
    "rwkv-world": turns(
        by_role(
            system="System: {{ m.content }}\n\n",
            user="User: {{ m.content }}\n\n",
            assistant="Assistant: {{ m.content }}\n\n",
        ),
        "Assistant:",
    ),
    "vicuna": turns(
        by_role(
            system="{{ message.content }}\n\n",
            user="USER: {{ message.content }}\n",
            assistant="ASSISTANT: {{ message.content }}</s>\n",
        ),
        "ASSISTANT:",
    ),
    "zephyr": turns("<|{{ m.role }}|>\n{{ message.content }}<|endoftext|>\n", "<|assistant|>\n"),
}
