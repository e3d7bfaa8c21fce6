"""Tokens a second of several streams beside one: `python -m tests.perf.streams [--backend webgpu]`.

Greedy decoding on cria, or on a random llama with `--hidden`. Each row counts the reads of all weights per
step, which streams share: the reference's store counts decoded values, webgpu counts the workgroups of the
products' grids.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

from tests.support.gguf_files import write_tiny_llama
from tests.support.parity.adapters import show_drivers

import camelid
from camelid.api.llm import LLM
from camelid.backends.reference import store
from camelid.backends.webgpu.kernel import Context
from camelid.backends.webgpu.kernels import KERNELS
from camelid.engine.programs import DECODE
from camelid.plan.plan import Plan

PROMPT = tuple(range(40, 72))
SOFTWARE = "llvmpipe"
PRODUCTS = ("linear", "linear_glu")


async def tokens_per_second(llm: LLM, n_streams: int, n_tokens: int) -> float:
    """Rate of all streams together, from the last stream's first token to the end."""

    async def stream(i: int) -> list[float]:
        prompt = [PROMPT[(i + j) % len(PROMPT)] for j in range(len(PROMPT))]
        options: dict[str, Any] = {"max_tokens": n_tokens, "temperature": 0.0, "ignore_eos": True}
        return [perf_counter() async for _ in llm.astream(prompt, **options)]

    times = await asyncio.gather(*(stream(i) for i in range(n_streams)))
    start, end = max(t[0] for t in times), max(t[-1] for t in times)
    return sum(t > start for one in times for t in one) / (end - start)


@contextmanager
def counted_values() -> Iterator[list[int]]:
    """Counts the weight values that the reference decodes for products."""
    values, products = [0], store.products

    def counting(tiles: Iterable[store.Tile], *args: Any) -> Any:
        def counted() -> Iterator[store.Tile]:
            for tile in tiles:
                values[0] += tile[1].size
                yield tile

        return products(counted(), *args)

    with patch.object(store, "products", counting):
        yield values


async def reference_reads(llm: LLM, run: Callable[[], Awaitable[object]]) -> float:
    """Reads of all weights per step, counted over a run of decode steps."""
    weights = {w.name: w for op in llm.plan(DECODE).ops for w in op.weights()}
    size = sum(w.rows * w.cols for w in weights.values() if len(w.shape) > 1 and "rope" not in w.name)
    before = llm.counters.steps_submitted
    with counted_values() as values:
        await run()
    return values[0] / size / (llm.counters.steps_submitted - before)


def webgpu_reads(plan: Plan, n_rows: int) -> float:
    """Reads of each matrix in a step of `n_rows`: a grid's workgroups along the token rows."""
    products = [op for op in plan.ops if op.name in PRODUCTS]
    grids = [KERNELS[op.name].grid(op, Context(plan, {}))[1] for op in products]
    return sum(-(-n_rows // (entry[1] if isinstance(entry, tuple) else 1)) for entry in grids) / len(grids)


async def measured(model: str, backend: str, n_streams: int, n_tokens: int) -> dict[str, Any]:
    """One row: streams, tokens a second, reads of the weights per step."""
    adapter = SOFTWARE if backend == "webgpu" else ""
    async with await camelid.aload(
        model, backend=backend, adapter=adapter, context=256, parallel=n_streams
    ) as llm:
        await tokens_per_second(llm, n_streams, 4)  # the first run completes pipelines and fills caches
        rate = max([await tokens_per_second(llm, n_streams, n_tokens) for _ in range(3)])
        if backend == "reference":
            reads = await reference_reads(llm, lambda: tokens_per_second(llm, n_streams, n_tokens))
        else:
            reads = webgpu_reads(llm.plan(DECODE), n_streams)
        row = {"backend": backend, "device": llm.capabilities.device, "streams": n_streams}
        return row | {"tok/s": round(rate, 1), "weight reads a step": round(reads, 2)}


async def compare(model: str, options: argparse.Namespace) -> None:
    for backend in options.backend:
        alone = 0.0
        for n in options.streams:
            row = await measured(model, backend, n, options.tokens)
            alone = alone or row["tok/s"] / n
            print(json.dumps(row | {"against one": round(row["tok/s"] / alone, 2)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", nargs="+", default=["reference", "webgpu"])
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument(
        "--hidden", type=int, help="a random llama of this hidden size and 8 layers instead of cria"
    )
    options = parser.parse_args()
    show_drivers()
    with tempfile.TemporaryDirectory() as folder:
        model = "cria"
        if options.hidden:
            model = str(Path(folder) / "random.gguf")
            sizes = {"hidden": options.hidden, "ffn": 3 * options.hidden, "n_heads": options.hidden // 64}
            write_tiny_llama(model, seed=1, n_layers=8, **sizes)
        asyncio.run(compare(model, options))


if __name__ == "__main__":
    main()
