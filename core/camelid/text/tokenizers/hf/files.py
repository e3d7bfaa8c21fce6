"""The parsed files of a Hugging Face tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from camelid.text.tokenizers.hf.values import Json


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """tokenizer.json and the files beside it, empty if missing; chat templates are by name."""

    tokenizer: Json
    tokenizer_config: Json = field(default_factory=dict[str, object])
    special_tokens: Json = field(default_factory=dict[str, object])
    config: Json = field(default_factory=dict[str, object])
    generation: Json = field(default_factory=dict[str, object])
    chat_templates: Mapping[str, str] = field(default_factory=dict[str, str])
