"""Parts that the scripts of archs/*.json share: token ids, seeds, the files' text, comparison with them."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.golden.case_row import CaseRow
from tests.golden.cases import WRONG
from tests.golden.mutation import LEAST, Mutation
from tests.support import hf_models
from tests.support.hf_models import HfCase, load_case, nmse, weights_crc32

ALLOWED = 1e-11  # NMSE between machines; float32 norms round about 1e-14
SEEDS = 500  # bound of a search
STORED = ("config", "seed", "weights_crc32", "tensors", "token_ids")


class CloseExpertsError(AssertionError):
    """Rounding may change a choice of experts with this seed."""


def check_gap(row: CaseRow | HfCase, gap: float, least: float) -> None:
    """Raises CloseExpertsError if the last chosen expert and the first of the others are too close."""
    if gap <= least:
        raise CloseExpertsError(
            f"{row.name}: seed {row.seed} has experts {gap:.1e} apart, least {least:.0e}; "
            f"find another by --seed-search {row.name}"
        )


def search_seed(row: CaseRow, golden: Callable[[CaseRow], HfCase]) -> bool:
    """Prints the first seed, from the row's on, whose choices of experts are stable; False if none is."""
    for seed in range(row.seed, row.seed + SEEDS):
        try:
            golden(replace(row, seed=seed))
        except CloseExpertsError as error:
            print(str(error).partition(";")[0], flush=True)
        else:
            print(f"{row.name}: seed {seed} fits")
            return True
    print(f"{row.name}: no seed from {row.seed} to {row.seed + SEEDS - 1} fits; lower the number of tokens")
    return False


def bare_case(row: CaseRow, tensors: dict[str, list[int]]) -> HfCase:
    """The case of a row with these published tensors, without logits."""
    case = HfCase(
        name=row.name,
        config=row.config,
        seed=row.seed,
        tensors=tensors,
        token_ids=token_ids(row),
        logits=[],
        weights_crc32=0,
        pooling=row.pooling,
        dense=row.dense,
    )
    object.__setattr__(case, "weights_crc32", weights_crc32(case))
    return case


def token_ids(row: CaseRow) -> list[list[int]]:
    vocab = row.config["vocab_size"]
    return [
        [zlib.crc32(f"{row.seed}/{k}/{i}".encode()) % vocab for i in range(length)]
        for k, length in enumerate(row.lengths)
    ]


def stored(case: HfCase) -> tuple[str, ...]:
    """The facts of a case in its file, besides the logits."""
    return (*STORED, "pooling", "dense") if case.pooling else STORED


def write_case(case: HfCase) -> None:
    lines = [f'"{name}": {json.dumps(getattr(case, name))}' for name in stored(case)]
    packed = [base64.b64encode(run.astype("<f4").tobytes()).decode() for run in case.logits]
    lines.append(f'"logits": {json.dumps(packed, indent=0)}')
    hf_models.FOLDER.mkdir(exist_ok=True)
    (hf_models.FOLDER / f"{case.name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def same(case: HfCase) -> bool:
    """True if the committed file has these facts and logits."""
    kept = load_case(case.name)
    error = nmse([run.astype(np.float32) for run in case.logits], kept.logits)
    print(f"{case.name}: NMSE {error:.1e} to the committed file, allowed {ALLOWED:.0e}")
    return error < ALLOWED and all(getattr(case, name) == getattr(kept, name) for name in stored(case))


def mutations_show(case: HfCase, run: Callable[[HfCase, Mutation], Sequence[Any]]) -> bool:
    """True if each wrong fact of the case moves the logits of `run`."""
    rows = [row for row in WRONG if row.case == case.name]
    moved = {str(row): nmse(run(case, row), case.logits) for row in rows}
    assert len(moved) == len(rows), f"{case.name}: two mutations of one name"
    for name, error in moved.items():
        print(f"  {error:8.1e}  {name}{'' if error > LEAST else '   NOT ENGAGED'}")
    return all(error > LEAST for error in moved.values())
