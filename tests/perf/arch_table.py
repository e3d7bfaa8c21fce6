"""The table of architectures: lines of rows, NMSE of golden models on three backends, refused settings.

python -m tests.perf.arch_table            prints the table
python -m tests.perf.arch_table --write    replaces the table in ARCHITECTURES.md
python -m tests.perf.arch_table qwen3      measures and prints these rows alone

NMSE of the reference is against the oracle of the golden file; NMSE of cpu and webgpu (Mesa's lavapipe, or
the adapter of this machine) is against the reference. Each figure is the worst of an architecture's cases.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.golden.definitions import DEFINITIONS
from tests.support.arch_rows import row_lines
from tests.support.hf_models import HfCase, load_cases, nmse, write_hf
from tests.support.model.file_runs import (
    Loaded,
    Logits,
    encode_plan,
    load_hf,
    reference_logits,
    run,
)
from tests.support.model.runs import make_plan

from camelid.backends.base import Backend, check_plan
from camelid.backends.registry import open_backend
from camelid.errors import BackendError
from camelid.model.archs import ARCHS, HF_ROWS

PAGE = Path(__file__).parents[2] / "core/camelid/model/ARCHITECTURES.md"
HEAD = (
    "| GGUF architecture | `model_type` | lines | oracle | NMSE, reference | NMSE, cpu | NMSE, webgpu "
    "| refused settings |",
    "|---|---|---|---|---|---|---|---|",
)
TABLE = re.compile(r"^\| GGUF architecture .*?(?=\n\n)", re.MULTILINE | re.DOTALL)
BIDIRECTIONAL = "use_bidirectional_attention"  # selects the row of encoders
BY_IMAGES = ("with images",) * 3  # golden models of tests/golden/vision alone
NO_KERNEL = re.compile(r"(?:no kernel for the op|kernel of|the load op) (.*?)(?: of|[.;]|$)")


def cases_of(arch: str) -> list[HfCase]:
    return [case for case in load_cases() if arch_of(case) == arch]


def arch_of(case: HfCase) -> str:
    """The key in ARCHS, on which a setting may decide."""
    row = case.row
    return (case.config.get(BIDIRECTIONAL) and row.bidirectional) or row.arch


def figures(case: HfCase) -> tuple[str, str, str]:
    """NMSE of the reference, cpu and webgpu; or the ops that a backend lacks."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_hf(write_hf(Path(folder) / case.name, case))
        want = alone(loaded, case)
        longest = max(map(len, case.token_ids))
        oracle = nmse(want, case.logits)
        together = reference_logits(loaded, case.token_ids, context=longest)
        others = [on_backend(name, loaded, case, together) for name in ("cpu", "webgpu")]
    return f"{oracle:.1e}", others[0], others[1]


def oracle_of(case: HfCase) -> str:
    """transformers; or, where it has no class, a NumPy definition in float64 that llama.cpp confirms."""
    return "definition" if case.model_type in DEFINITIONS else "transformers"


def alone(loaded: Loaded, case: HfCase) -> Logits:
    """The reference's logits, each sequence with the model loaded for its length (LongRoPE)."""
    return [
        reference_logits(loaded, [ids], context=len(ids), types=[case.token_types(ids)])[0]
        for ids in case.token_ids
    ]


def on_backend(name: str, loaded: Loaded, case: HfCase, want: Logits) -> str:
    backend, longest = open_backend(name), max(map(len, case.token_ids))
    try:
        got = asyncio.run(run_all(backend, loaded, case.token_ids, longest))
    except BackendError as error:
        lacked = NO_KERNEL.search(str(error))
        if not lacked:
            raise
        return f"refused: {lacked[1]}"
    return f"{nmse(got, want):.1e}"


async def run_all(
    backend: Backend, loaded: Loaded, sequences: Sequence[Sequence[int]], longest: int
) -> Logits:
    model, n = loaded.model, len(sequences)
    plan = (
        encode_plan(model, longest, n)
        if model.spec.encoder
        else make_plan(model, longest, n, context=longest)
    )
    check_plan(plan, backend.capabilities())
    return await run(backend, loaded, sequences, context=longest)


def worst(cells: Sequence[str]) -> str:
    """The largest figure, or a refusal if a case has one."""
    refusals = [cell for cell in cells if cell.startswith("refused")]
    return max(refusals, default="") or (cells[0] if len(cells) == 1 else max(cells, key=float))


def line(arch: str) -> str:
    cases = cases_of(arch)
    cells = [[*column] for column in zip(*map(figures, cases), strict=True)] or [[cell] for cell in BY_IMAGES]
    rows = {name: row for name, row in HF_ROWS.items() if arch in (row.arch, row.bidirectional)}
    types = ", ".join(f"`{name}`" for name in rows)
    refused = (
        key for row in rows.values() for key in row.refused if key != BIDIRECTIONAL or not row.bidirectional
    )
    keys = sorted({*refused})
    kinds = " and ".join(sorted({oracle_of(case) for case in cases}, reverse=True)) or "transformers"
    counted = [f"`{arch}`", types, str(row_lines()[arch]), kinds]
    columns = [*counted, *map(worst, cells), ", ".join(keys) or "none"]
    return f"| {' | '.join(columns)} |"


def lines(names: Sequence[str]) -> Iterator[str]:
    for arch in names:
        yield (made := line(arch))
        print(made, flush=True)


def main(arguments: Sequence[str]) -> None:
    names = [name for name in arguments if name in ARCHS]
    rows = list(lines(names or sorted(ARCHS)))
    if "--write" in arguments:
        table = "\n".join([*HEAD, *rows])
        PAGE.write_text(TABLE.sub(lambda _: table, PAGE.read_text(), count=1))


if __name__ == "__main__":
    main(sys.argv[1:])
