"""A Llama-architecture decoder in PyTorch, with GGUF's weight names."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Architecture facts of cria."""

    vocab_size: int = 1088
    hidden_size: int = 256
    n_layers: int = 4
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 64
    ffn_size: int = 768
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    context_length: int = 1024


def rope_table(spec: Spec) -> tuple[Tensor, Tensor]:
    """RoPE cosines and sines of every position, [T, D/2] each."""
    inverse = spec.rope_theta ** (-torch.arange(0, spec.head_dim, 2, dtype=torch.float32) / spec.head_dim)
    angles = torch.arange(spec.context_length, dtype=torch.float32)[:, None] * inverse
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates adjacent pairs (0,1), (2,3), ...: the order of GGUF's llama, so export needs no permutation."""
    even, odd = x[..., 0::2], x[..., 1::2]  # [B, H, T, D/2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Layer(nn.Module):
    """One transformer layer: attention, then SwiGLU."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        width = spec.hidden_size
        q_size, kv_size = spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim
        self.attn_norm = nn.RMSNorm(width, spec.norm_eps)
        self.attn_q = nn.Linear(width, q_size, bias=False)
        self.attn_k = nn.Linear(width, kv_size, bias=False)
        self.attn_v = nn.Linear(width, kv_size, bias=False)
        self.attn_output = nn.Linear(q_size, width, bias=False)
        self.ffn_norm = nn.RMSNorm(width, spec.norm_eps)
        self.ffn_gate = nn.Linear(width, spec.ffn_size, bias=False)
        self.ffn_up = nn.Linear(width, spec.ffn_size, bias=False)
        self.ffn_down = nn.Linear(spec.ffn_size, width, bias=False)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [B, H, T, D] each, of x [B, T, C]; queries and keys are rotated."""
        b, t, _ = x.shape
        h = self.attn_norm(x)
        q, k, v = (
            w(h).view(b, t, -1, self.spec.head_dim).transpose(1, 2)
            for w in (self.attn_q, self.attn_k, self.attn_v)
        )
        return rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype), v

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
        """Grouped-query attention, [B, T, H*D]: causal, or under the mask `seen` [B, 1, T, T]."""
        repeat = self.spec.n_heads // self.spec.n_kv_heads
        k, v = (kv.repeat_interleave(repeat, 1) for kv in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=seen is None)
        return y.transpose(1, 2).flatten(2)

    def finish(self, x: Tensor, heads: Tensor) -> Tensor:
        """Adds the attention output and the feed-forward half to the residual stream."""
        x = x + self.attn_output(heads)
        return x + self.feed(x)

    def feed(self, x: Tensor) -> Tensor:
        """SwiGLU over [B, T, C]."""
        h = self.ffn_norm(x)
        return self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, seen: Tensor | None) -> Tensor:
        """Runs the layer: x [B, T, C] plus attention and feed-forward."""
        return self.finish(x, self.attend(*self.project(x, cos, sin), seen))


class Cria(nn.Module):
    """The whole model; the output matrix is tied to the embedding."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.token_embd = nn.Embedding(spec.vocab_size, spec.hidden_size)
        self.blk = nn.ModuleList(Layer(spec) for _ in range(spec.n_layers))
        self.output_norm = nn.RMSNorm(spec.hidden_size, spec.norm_eps)
        cos, sin = rope_table(spec)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.apply(self._init)

    def _init(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.03)

    def forward(self, token_ids: Tensor, seen: Tensor | None = None, places: Tensor | None = None) -> Tensor:
        """Logits, [B, T, V]; or [N, V] at N positions of the flattened batch, which skips most of the last layer."""
        t = token_ids.shape[1]
        cos, sin = self.cos[:t], self.sin[:t]
        x = self.token_embd(token_ids)
        for layer in self.blk[:-1]:
            x = layer(x, cos, sin, seen)
        heads = self.blk[-1].attend(*self.blk[-1].project(x, cos, sin), seen)
        if places is not None:
            x, heads = x.flatten(0, 1)[places], heads.flatten(0, 1)[places]
        return F.linear(self.output_norm(self.blk[-1].finish(x, heads)), self.token_embd.weight)
