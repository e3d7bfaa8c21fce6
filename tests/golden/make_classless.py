"""Makes archs/*.json of models that transformers has no class for, with the definitions of definitions/.

Run through `make goldens`: it recomputes everything, compares with the committed files, and shows that every
wrong fact of cases/ moves the logits. `--write` replaces the files; further arguments select cases by name
prefix; `--seed-search NAME` is that of make_archs.py. Where llama.cpp is installed, its logits on the
converted F32 file are compared with the definition's.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from tests.golden.case_row import CaseRow
from tests.golden.cases import CASES
from tests.golden.definitions import DEFINITIONS
from tests.golden.golden_files import bare_case, check_gap, mutations_show, same, search_seed, write_case
from tests.golden.mutation import Mutation
from tests.rivals.llama_cpp import NOT_COMPARED, PLAIN, READINGS, UNREAD, convert_case, llama_logits
from tests.support.hf_models import HfCase, nmse, weights_of

CLOSEST_EXPERTS = 1e-3  # so that float32 rounding changes no choice
TO_LLAMA_CPP = 1e-8  # NMSE; llama.cpp sums in float32
LOOSER = {"codeshell": 1e-7, "grok": 1e-7}  # llama.cpp reads GELU from a table in float16


def run(case: HfCase, mutation: Mutation | None = None) -> list[Any]:
    """Logits [T, V] of each sequence."""
    changes = mutation.config if mutation else {}
    weights = weights_of(case, neutral=mutation.neutral if mutation else ())
    model = DEFINITIONS[case.model_type]({**case.config, **changes}, weights)
    logits = [model.outputs(ids, case.token_types(ids)) for ids in case.token_ids]
    close = min(model.gaps, default=1.0)
    if not mutation:
        check_gap(case, close, CLOSEST_EXPERTS)
    assert all(np.isfinite(rows).all() for rows in logits)
    return logits


def golden(row: CaseRow) -> HfCase:
    case = bare_case(row, DEFINITIONS[row.config["model_type"]](row.config).shapes())
    case.logits.extend(run(case))
    return case


def agrees(case: HfCase) -> bool:
    """True if llama.cpp's logits are the definition's, or llama.cpp is not installed."""
    why = {**UNREAD, **NOT_COMPARED}.get(case.name) or ("" if find_spec("llama_cpp") else "not installed")
    if why:
        print(f"  llama.cpp: {why}")
        return True
    reading = READINGS.get(case.name, PLAIN)
    want = run(case, Mutation(case.name, "reading", dict(reading.config), reading.neutral))
    with tempfile.TemporaryDirectory() as folder:
        got = llama_logits(convert_case(case.name, Path(folder), "f32"), case.token_ids)
    error = nmse([rows[: reading.rows] for rows in got], [rows[: reading.rows] for rows in want])
    allowed = LOOSER.get(case.name, TO_LLAMA_CPP)
    print(f"  llama.cpp: NMSE {error:.1e}, allowed {allowed:.0e}  {reading.why}")
    return error <= allowed


def main() -> int:
    chosen = tuple(word for word in sys.argv[1:] if not word.startswith("--")) or ("",)
    rows = [row for row in CASES if row.config["model_type"] in DEFINITIONS]
    if "--seed-search" in sys.argv:
        return 0 if all(search_seed(row, golden) for row in rows if row.name in chosen) else 1
    good = {row.config["model_type"] for row in rows} == {*DEFINITIONS}
    for row in (row for row in rows if row.name.startswith(chosen)):
        case = golden(row)
        if "--write" in sys.argv:
            write_case(case)
        good = all([good, same(case), mutations_show(case, run), agrees(case)])
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
