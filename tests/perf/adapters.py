"""Decode with adapters: 8 streams with 8 different adapters beside 8 streams without.

`python -m tests.perf.adapters MODEL [--rank 16] [--streams 8] [--tokens 32] [--runs 5] [--backend cpu]`, runs
alternate; the adapters are random and change every linear map of the layers, or those of attention alone. A
step reads all weights, and all values of the adapters: float16 on cpu, else float32.
"""

from __future__ import annotations

import argparse
import asyncio
from statistics import median
from time import perf_counter

from tests.support.random_adapters import random_adapter

import camelid
from camelid import LLM
from camelid.api.streams import read
from camelid.model.adapter import Adapter

KINDS = {
    "all": ("",),
    "attention": ("attn_q", "attn_k", "attn_v", "attn_output"),
}  # names of changed matrices


def main() -> None:
    """Prints tokens a second of each kind, and the median of ratios to the run without adapters beside it."""
    how = _arguments()
    n, rank = how.streams, how.rank
    options = {"context": 256, "parallel": n, "adapter_rank": rank}
    with camelid.load(how.model, backend=how.backend, **options) as llm:
        full = [_of_layers(llm, seed, rank) for seed in range(n)]
        names = {"": [""] * n}
        names |= {kind: [llm.load_adapter(_part(each, kind)) for each in full] for kind in KINDS}
        rates = {kind: list[float]() for kind in names}
        for _ in range(how.runs + 1):
            for kind, own in names.items():
                rates[kind].append(rate_of(llm, own, how.tokens))
        bare = rates.pop("")[1:]
        size = f"{llm.weight_bytes / 1e6:.1f} MB of weights"
        print(f"{n} streams, rank {rank}: {median(bare):.1f} tok/s bare, {size}")
        for kind, each in rates.items():
            ratio = median(a / b for a, b in zip(each[1:], bare, strict=True))
            values = sum(len(t.a) + len(t.b) for a in full for t in _part(a, kind).terms.values())
            print(f"{kind}: {median(each[1:]):.1f} tok/s, {ratio:.2f} of bare, {values / 1e6:.1f} M values")


def _of_layers(llm: LLM, seed: int, rank: int) -> Adapter:
    full = random_adapter(llm, seed, rank=rank)
    terms = {name: term for name, term in full.terms.items() if name.startswith("blk.")}
    return Adapter(name=full.name, terms=terms)


def _part(adapter: Adapter, kind: str) -> Adapter:
    """The adapter's terms of a kind, under a name of their own."""
    chosen = {name: t for name, t in adapter.terms.items() if any(word in name for word in KINDS[kind])}
    return Adapter(name=f"{adapter.name}-{kind}", terms=chosen)


def rate_of(llm: LLM, names: list[str], n_tokens: int) -> float:
    """Tokens a second of one stream for each name, after all prompts."""

    async def run() -> float:
        options = {"max_tokens": n_tokens, "temperature": 0.0, "ignore_eos": True, "cache_prompt": False}
        streams = [llm.submit([1, 2, 3, 4], adapter=name, **options) for name in names]
        for stream in streams:
            await anext(stream, None)
        start = perf_counter()
        done = [await read(stream) for stream in streams]
        return sum(len(each.token_ids) - 1 for each in done) / (perf_counter() - start)

    return asyncio.run(run())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--backend", default="cpu")
    for name, value in (("rank", 16), ("streams", 8), ("tokens", 32), ("runs", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


if __name__ == "__main__":
    main()
