"""Memory and error of keys and values by kv_type: `python -m tests.perf.kv_table [--items 20]`.

Bytes are a backend's allocation for one sequence; the error is the NMSE of attention over a model's own
queries, keys and values; the skill is cria's score in its grader.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from tests.support.parity.adapters import show_drivers
from tests.support.parity.compare import nmse

import camelid
from camelid.backends.base import PoolSize
from camelid.backends.common.op_runner import OpCase, run_case
from camelid.backends.reference.backend import ReferenceBackend
from camelid.errors import CamelidError
from camelid.loading.choose import open_named
from camelid.loading.model_file import ModelFile, open_model
from camelid.model.decoder import lower
from camelid.model.kv_types import KV_TYPES
from camelid.plan.plan import Op, Plan
from camelid.plan.step import (
    FROM_ID,
    Capacity,
    ProgramKey,
    Step,
    StepRow,
    StepSampling,
    StepSequence,
    encode_step,
)
from cria.drivers import camelid_answers
from cria.grade import Graded, ask, score
from cria.graded_items import items
from cria.graded_tasks import tasks

CRIA = Path(camelid.__file__).parent / "data" / "cria.gguf"
SOFTWARE = "llvmpipe"
N_QUERIES = 32  # the last rows, which attend to the most keys
HEADER = ("backend", "kv_type", "bytes at {} tokens", "of the first", "attention error", "skill", "by skill")


@dataclass(frozen=True, slots=True)
class Heads:
    """The attention op of one layer, with its float32 queries, keys and values."""

    op: Op
    q: Any
    k: Any
    v: Any

    def case(self, kv_type: str) -> OpCase:
        """Attention of the last rows, with keys and values stored as `kv_type`."""
        n, row = len(self.k), KV_TYPES[kv_type]
        last = range(max(0, n - N_QUERIES), n)
        shape = (len(last), self.op.view("y").cols)
        return OpCase(
            op="attention",
            views={"q": self.q[last.start :], "y": np.zeros(shape, np.float32)},
            attrs=dict(self.op.attrs),
            keys=self.k,
            values=self.v,
            positions=last,
            kv_type=row.kv,
            has_tail=bool(row.tail),
        )


def text_ids(file: ModelFile, n_tokens: int, seed: int) -> list[int]:
    """Token ids of user prompts to cria, concatenated."""
    text = "\n".join(f"{item.prompt}\n{item.want}" for item in items(seed, n_tokens // 10 + 1))
    tokenizer = file.tokenizer()
    assert tokenizer is not None, "the model has no tokenizer"
    return tokenizer.encode(text)[:n_tokens]


async def layers(file: ModelFile, token_ids: Sequence[int]) -> list[Heads]:
    """The attention of each layer in one step over all tokens on the reference."""
    n, pages = len(token_ids), -(-len(token_ids) // 16)
    capacity = Capacity(rows=n, sequences=1, outputs=1, updates=pages)
    plan = lower(file.model, ProgramKey(entry="mixed", capacity=capacity))
    backend = ReferenceBackend()
    await backend.load(list(plan.weights().values()), file.sources)
    await backend.allocate(plan.states, {s.name: PoolSize(pages + 1, 2, pages) for s in plan.states})
    values = backend.run_frame(plan, encode_step(_whole_step(plan, token_ids, pages), plan.layout), {}).values
    written = {op.state("state"): op for op in plan.ops if op.name == "kv_write"}
    attentions = [op for op in plan.ops if op.name == "attention"]
    return [_heads(op, written[op.state("state")], values) for op in attentions]


def _heads(op: Op, write: Op, values: dict[str, Any]) -> Heads:
    q, k, v = (values[view.buffer.name] for view in (op.view("q"), write.view("k"), write.view("v")))
    return Heads(op, q, k, v)


def _whole_step(plan: Plan, token_ids: Sequence[int], pages: int) -> Step:
    n = len(token_ids)
    rows = [
        StepRow(source=FROM_ID, value=token, sequence=0, state_row=i, positions=(i,))
        for i, token in enumerate(token_ids)
    ]
    sequence = StepSequence(first_row=0, rows=n, groups=((1, 0, 0),) * len(plan.states))
    updates = [(plan.group("kv"), 1, page, page + 1) for page in range(pages)]
    how = {"outputs": [(n - 1, 0, n)], "sampling": [StepSampling()], "updates": updates}
    return replace(Step(rows=rows, sequences=[sequence]), **how)


async def attention_error(backend: str, cases: Sequence[OpCase], exact: Sequence[Any]) -> float:
    """NMSE over all layers."""
    found: list[Any] = []
    for case in cases:
        opened = await open_named(backend, SOFTWARE if backend == "webgpu" else "")
        found.append((await run_case(opened, case)).views["y"])
        await opened.close()
    return nmse(np.stack(found), np.stack(exact))


def state_bytes(model: str, **how: Any) -> int:
    with camelid.load(model, parallel=1, **how) as llm:
        return llm.memory().state_bytes


def skill(model: Path, graded: list[Graded], backend: str, **how: Any) -> dict[str, float]:
    """The grader's scores of answers through Camelid."""
    with patch("camelid.load", partial(camelid.load, **how)):
        return score(graded, ask(graded, camelid_answers(model, backend)))


def rows(options: argparse.Namespace, cells: list[Heads], context: int) -> Iterator[tuple[str, ...]]:
    n = options.items
    graded = [*items(options.seed, n), *tasks(options.seed, n)] if n else []
    exact = [asyncio.run(run_case(ReferenceBackend(), heads.case("f32"))).views["y"] for heads in cells]
    for backend in options.backend:
        base = 0
        for kv_type in options.kv_type:
            how = {"kv_type": kv_type, "adapter": SOFTWARE if backend == "webgpu" else ""}
            try:
                n_bytes = state_bytes(str(options.model), backend=backend, context=context, **how)
            except CamelidError as error:
                yield backend, kv_type, error.message
                continue
            base = base or n_bytes
            cases = [heads.case(kv_type) for heads in cells]
            error = asyncio.run(attention_error(backend, cases, exact))
            scores = skill(options.model, graded, backend, **how) if graded else {}
            means = [share for name, share in scores.items() if not name.startswith("refuse_")]
            mean = np.mean(means) if means else np.nan
            each = " ".join(f"{name} {share:.2f}" for name, share in scores.items())
            cost = f"{n_bytes:,}", f"{n_bytes / base:.2f}"
            yield backend, kv_type, *cost, f"{error:.1e}", f"{mean:.3f}", each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=CRIA)
    parser.add_argument("--backend", nargs="+", default=["reference", "webgpu"])
    parser.add_argument("--kv-type", nargs="+", default=list(KV_TYPES))
    parser.add_argument("--items", type=int, default=20, help="graded items of each skill; 0 grades none")
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args()
    show_drivers()
    file = asyncio.run(open_model(str(options.model)))
    token_ids = text_ids(file, min(options.tokens, file.model.spec.context_length), options.seed)
    head = [text.format(f"{len(token_ids):,}") for text in HEADER]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    cells = asyncio.run(layers(file, token_ids))
    for row in rows(options, cells, len(token_ids)):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
