"""The llama row: logits equal to transformers', equal bits for any chunks, golden plan text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden.llama_cases import CASES, FILE, TOKEN_IDS, LlamaCase
from tests.support.gguf_files import write_tiny_llama
from tests.support.model.file_runs import load_gguf, reference_logits
from tests.support.model.runs import make_plan
from tests.support.parity.compare import nmse

from camelid.errors import ModelFormatError, TensorShapeError, UnsupportedModelError
from camelid.formats.gguf import open_gguf
from camelid.model.read import read_model
from camelid.plan.fuse import fuse
from camelid.plan.ops import Counts, op_bytes
from camelid.plan.plan import Plan

GOLDEN_PLAN = FILE.with_name("llama_mixed.plan")
FUSED = frozenset({"add_norm", "linear_glu"})


def logits(path: Path, chunks: list[int], **how: Any) -> Any:
    return reference_logits(load_gguf(path), [TOKEN_IDS], steps=[(n,) for n in chunks], **how)[0]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def model(request: Any, tmp_path_factory: Any) -> tuple[LlamaCase, Path, Any]:
    case: LlamaCase = request.param
    golden = json.loads(FILE.read_text())[case.name]
    path = tmp_path_factory.mktemp("llama") / f"{case.name}.gguf"
    case.write(path, golden["rope_factors"])
    return case, path, np.array(golden["logits"])


@pytest.mark.conformance
def test_logits_equal_transformers(model: tuple[LlamaCase, Path, Any]) -> None:
    _, path, want = model
    assert nmse(logits(path, [len(TOKEN_IDS)])[::5, ::3], want) <= 1e-9


@pytest.mark.conformance
def test_each_feature_changes_the_logits(model: tuple[LlamaCase, Path, Any], tmp_path: Path) -> None:
    """Without rope factors, or with another theta, the logits are far from the golden."""
    case, _, want = model
    path = tmp_path / "plain.gguf"
    write = LlamaCase(**{**_fields(case), "rope_theta": case.rope_theta * 2})
    write.write(path, None)
    assert nmse(logits(path, [len(TOKEN_IDS)])[::5, ::3], want) > 1e-4


def _fields(case: LlamaCase) -> dict[str, Any]:
    return {name: getattr(case, name) for name in case.__dataclass_fields__}


def test_chunks_and_single_rows_give_identical_bits(model: tuple[LlamaCase, Path, Any]) -> None:
    _, path, _ = model
    whole = logits(path, [48])
    assert np.array_equal(whole, logits(path, [17, 16, 15]))
    assert np.array_equal(whole, logits(path, [1] * 48))


def test_fused_plan_gives_the_same_logits(model: tuple[LlamaCase, Path, Any]) -> None:
    _, path, _ = model
    assert nmse(logits(path, [48], fused=FUSED), logits(path, [48])) <= 1e-12


def tiny(path: Path, **sizes: Any) -> Path:
    write_tiny_llama(path, seed=1, **sizes)
    return path


def golden_plan(folder: Path) -> Plan:
    return fuse(make_plan(load_gguf(tiny(folder / "plan.gguf")).model, 16, context=128, n_outputs=1), FUSED)


def test_plan_text_is_golden(tmp_path: Path) -> None:
    """A changed plan shows as a diff of this file; rewrite the file after an intended change."""
    assert golden_plan(tmp_path).text() == GOLDEN_PLAN.read_text()


def edited(path: Path, old: bytes, new: bytes) -> Path:
    data = path.read_bytes()
    assert data.count(old) >= 1 and len(old) == len(new)
    path.write_bytes(data.replace(old, new))
    return path


def test_a_step_reads_each_weight_once() -> None:
    """Weights read by one decode step of cria equal all weights of its file."""
    model = load_gguf(Path(__file__).parents[2] / "core" / "camelid" / "data" / "cria.gguf").model
    plan = fuse(make_plan(model, 1, context=128, features=frozenset()), FUSED)
    counts = Counts(rows={"T": 1, "S": 1, "O": 1}, keys=0)
    views = sum(4 * view.cols for op in plan.ops for _, view in op.views())
    writes = sum(plan.state("kv").row_bytes for op in plan.ops if op.name == "kv_write")
    touched = sum(op_bytes(op, plan, counts) for op in plan.ops) - views - writes
    assert model.weight_bytes <= touched <= 1.1 * model.weight_bytes


def test_unknown_architecture_is_named(tmp_path: Path) -> None:
    path = edited(tiny(tmp_path / "m.gguf"), b"llama", b"lhama")
    with pytest.raises(UnsupportedModelError, match="'lhama' is not supported; supported: "):
        load_gguf(path)


def test_metadata_that_would_change_results_is_refused(tmp_path: Path) -> None:
    gguf = open_gguf(tiny(tmp_path / "m.gguf"))
    changed = replace(gguf, metadata={**gguf.metadata, "llama.rope.scaling.alpha": 4.0})
    with pytest.raises(UnsupportedModelError, match=r"llama\.rope\.scaling\.alpha is 4\.0"):
        next(read_model(changed))
    shard = replace(gguf, metadata={**gguf.metadata, "split.count": 3})
    with pytest.raises(UnsupportedModelError, match=r"split\.count is 3"):
        next(read_model(shard))


def test_a_tensor_that_no_rule_uses_is_an_error(tmp_path: Path) -> None:
    path = edited(tiny(tmp_path / "m.gguf"), b"blk.1.ffn_up.weight", b"blk.9.ffn_up.weight")
    with pytest.raises(TensorShapeError, match=r"blk\.1\.ffn_up\.weight: found nothing"):
        load_gguf(path)


def test_heads_must_divide(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match="multiple of n_kv_heads"):
        load_gguf(tiny(tmp_path / "m.gguf", n_heads=4, n_kv_heads=3))
