"""Three tiny random llamas, each with a feature that another lacks. Shared by the maker and the test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.gguf_files import write_tiny_llama

FILE = Path(__file__).with_name("llama_logits.json")


@dataclass(frozen=True)
class LlamaCase:
    """Sizes of one model. `original_context` > 0 enables Llama 3.1's rope factors."""

    name: str
    seed: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    tied: bool
    rope_theta: float = 10000.0
    original_context: int = 0

    @property
    def hidden(self) -> int:
        return 128

    def write(self, path: Path, rope_factors: list[float] | None) -> dict[str, Any]:
        return write_tiny_llama(
            path,
            seed=self.seed,
            n_layers=2,
            hidden=self.hidden,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            head_dim=self.head_dim,
            ffn=192,
            vocab=320,
            context=128,
            tied=self.tied,
            rope_freqs=rope_factors,
            rope_theta=self.rope_theta,
            type="f32",
        )


CASES = (
    LlamaCase("mha-tied", seed=11, n_heads=4, n_kv_heads=4, head_dim=32, tied=True),
    LlamaCase("gqa-untied", seed=12, n_heads=4, n_kv_heads=2, head_dim=64, tied=False, rope_theta=500000.0),
    LlamaCase(
        "mqa-rope-freqs", seed=13, n_heads=8, n_kv_heads=1, head_dim=32, tied=True, original_context=16
    ),
)
TOKEN_IDS = [(7 * i * i + 3 * i + 1) % 256 for i in range(48)]  # longer than original_context
