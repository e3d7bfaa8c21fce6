"""llama.cpp opens converted files, and its logits agree with Camelid's. Needs its wheel, built once."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.rivals import adapters, encoders
from tests.rivals.llama_cpp import NOT_COMPARED, UNREAD, compare
from tests.support.hf_models import HfCase, decoders

NAMES = [case.name for case in decoders() if case.name not in {**UNREAD, **NOT_COMPARED}]
# f16: llama.cpp also rounds activations to float16. q8_0, q4_0: it quantizes activations to 8 bits, which can
# select other experts.
BOUNDS = {"f32": 1e-6, "f16": 1e-5, "q8_0": 2e-2, "q4_0": 2e-2}

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        not find_spec("llama_cpp"), reason="no llama.cpp wheel: `make rivals` builds and caches it"
    ),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("to", ["f32", "f16"])
def test_logits_agree(name: str, to: str, tmp_path: Path) -> None:
    assert compare(name, tmp_path, to) <= BOUNDS[to]


@pytest.mark.parametrize("case", encoders.encoders(), ids=str)
def test_embeddings_agree(case: HfCase, tmp_path: Path) -> None:
    assert encoders.compare(case, tmp_path) <= BOUNDS["f32"]


@pytest.mark.parametrize("name", [case.name for case in adapters.cases()])
def test_adapters_agree(name: str, tmp_path: Path) -> None:
    own, without = adapters.compare(name, tmp_path)
    assert own <= BOUNDS["f32"] < without


@pytest.mark.parametrize("name", UNREAD)
def test_llama_cpp_refuses_unsupported_files(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Failed to load model"):
        compare(name, tmp_path, "f32")


@pytest.mark.parametrize("to", ["q8_0", "q4_0"])
@pytest.mark.parametrize("name", ["llama31", "gemma2", "mixtral", "phi3_long", "gpt2", "olmo2"])
def test_quantized_logits_agree(name: str, to: str, tmp_path: Path) -> None:
    assert compare(name, tmp_path, to) <= BOUNDS[to]
