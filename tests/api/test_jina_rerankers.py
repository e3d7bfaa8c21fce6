"""Jina's rerankers with one label: scores of the float64 definitions, by the library and by the CLI."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.golden.definitions import DEFINITIONS
from tests.support.exhaustive import exhaustive
from tests.support.hf_models import HfCase, load_case, weights_of, write_safetensors
from tests.support.parity.adapters import need_driver
from tests.support.tiny_encoders import VOCAB, write_encoder, write_json

import camelid
from camelid.cli.main import main
from camelid.formats.hf_config import open_hf
from camelid.loading.convert import convert
from camelid.model.hf import checkpoint_of_hf

QUERY, DOCUMENTS = "f o x", ["a f", "", "x o x c"]
PUBLISHED = {"jina_bert_ranking": "bert", "xlm_roberta_flash_ranking": "xlm-roberta"}  # their model_type
CLS, SEP = (VOCAB.index(name) for name in ("[CLS]", "[SEP]"))


def with_one_label(name: str) -> HfCase:
    case = load_case(name)
    head = {n: [1, *shape[1:]] for n, shape in case.tensors.items() if shape[0] == 3}
    config = {**case.config, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    return replace(case, tensors={**case.tensors, **head}, config=config)


def write_published(folder: Path, case: HfCase, **changes: object) -> Path:
    path = write_encoder(folder, case.name, pooling="")
    write_json(path / "config.json", {**case.config, "model_type": PUBLISHED[case.name], **changes})
    write_safetensors(path / "model.safetensors", weights_of(case))
    return path


def wanted(case: HfCase) -> list[float]:
    model = DEFINITIONS[case.model_type](case.config, weights_of(case))
    return [float(model.outputs(*pair(case, text))[0, 0]) for text in DOCUMENTS]


def pair(case: HfCase, document: str) -> tuple[Sequence[int], Sequence[int]]:
    """[CLS] query [SEP] document [SEP], with the types of the two texts."""
    first, second = ([VOCAB.index(letter) for letter in text.split()] for text in (QUERY, document))
    head, tail = [CLS, *first, SEP], [*second, SEP]
    second_type = int(case.config["type_vocab_size"] > 1)
    return head + tail, [0] * len(head) + [second_type] * len(tail)


@pytest.mark.parametrize("backend", ["cpu", "reference", exhaustive("webgpu")])
@pytest.mark.parametrize("form", ["directory", "gguf"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_scores_equal_those_of_the_definition(name: str, form: str, backend: str, tmp_path: Path) -> None:
    adapter = need_driver("llvmpipe") if backend == "webgpu" else ""
    case = with_one_label(name)
    path = write_published(tmp_path / "m", case)
    if form == "gguf":
        convert(path, tmp_path / "m.gguf")
        path = tmp_path / "m.gguf"
    want = np.array(wanted(case))
    with camelid.load(str(path), backend=backend, adapter=adapter) as llm:
        got = np.array(llm.rerank(QUERY, DOCUMENTS, normalize=False))
    assert np.square(got - want).sum() / np.square(want - want.mean()).sum() <= 1e-10


@pytest.mark.parametrize("name", ["JinaBertForMaskedLM", "JinaBertModel"])
def test_a_head_under_a_class_without_one_ranks(name: str, tmp_path: Path) -> None:
    case = with_one_label("jina_bert_ranking")
    path = write_published(tmp_path / "m", case, architectures=[name], id2label=None)
    header = checkpoint_of_hf(open_hf(path)).header
    assert header.get("jina-bert-v2.classifier.output_labels", list[str]) == ["LABEL_0"]
    result = CliRunner().invoke(
        main, ["rerank", str(path), QUERY, *DOCUMENTS, "--json", "--backend", "reference"]
    )
    assert result.exit_code == 0, result.output
    found = {item["index"]: item["score"] for item in json.loads(result.stdout)["results"]}
    scores = 1 / (1 + np.exp(-np.array(wanted(case))))
    assert np.allclose([found[i] for i in range(len(DOCUMENTS))], scores, atol=1e-5)
