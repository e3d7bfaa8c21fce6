"""The stress shapes without an encoder."""

from __future__ import annotations

from tests.support.model.stress.deepseek2 import DEEPSEEK2, DEEPSEEK2_LITE
from tests.support.model.stress.gemma3n import GEMMA3N
from tests.support.model.stress.gpt_oss import GPT_OSS
from tests.support.model.stress.mamba2 import MAMBA2
from tests.support.model.stress.qwen3next import QWEN3NEXT
from tests.support.model.stress.shape import Shape

SHAPES: dict[str, Shape] = {
    "deepseek2": DEEPSEEK2,
    "deepseek2_lite": DEEPSEEK2_LITE,
    "gpt_oss": GPT_OSS,
    "gemma3n": GEMMA3N,
    "mamba2": MAMBA2,
    "qwen3next": QWEN3NEXT,
}
