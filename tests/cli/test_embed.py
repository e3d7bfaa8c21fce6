"""`camelid embed` and `camelid rerank`: texts in, tables and JSON out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.server.test_embeddings import write_ranker
from tests.support.tiny_encoders import write_encoder

import camelid
from camelid.cli.main import main


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_encoder(tmp_path_factory.mktemp("encoder") / "m"))


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_ranker(tmp_path_factory.mktemp("ranker") / "m"))


def call(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, [*words, "--backend", "cpu"], input=stdin)


def test_embeddings_as_json_are_the_librarys(encoder: str, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("hello\na b\n")
    with camelid.load(encoder, backend="cpu") as llm:
        want = llm.embed(["hello", "a b"], dimensions=8, prompt="query", normalize=False)
    flags = ("--json", "--dimensions", "8", "--prompt", "query", "--no-normalize")
    for result in (
        call("embed", encoder, "hello", "a b", *flags),
        call("embed", encoder, "-f", str(tmp_path / "texts"), *flags),
        call("embed", encoder, "-f", "-", *flags, stdin="hello\na b"),
        call("embed", encoder, *flags, stdin="hello\na b\n"),
    ):
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert found["embeddings"] == want and found["prompt"] == "query"


def test_the_table_has_a_line_a_text(encoder: str) -> None:
    result = call("embed", encoder, "hello", "a b")
    lines = result.stdout.splitlines()
    assert len(lines) == 2 and lines[0].endswith("… 64  hello")
    with camelid.load(encoder, backend="cpu") as llm:
        assert float(lines[0].split()[0]) == round(llm.embed("hello")[0][0], 4)


def test_documents_by_relevance(ranker: str) -> None:
    documents = ["a", "fox", "hello world"]
    with camelid.load(ranker, backend="cpu") as llm:
        scores = llm.rerank("fox", documents)
    order = sorted(range(3), key=lambda i: -scores[i])
    found = json.loads(call("rerank", ranker, "fox", *documents, "--json").stdout)
    assert [item["index"] for item in found["results"]] == order
    assert [item["score"] for item in found["results"]] == [scores[i] for i in order]
    table = call("rerank", ranker, "fox", *documents, "--top", "2").stdout.splitlines()
    assert [line.split()[1] for line in table] == [str(i + 1) for i in order[:2]]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("embed", "cria", "a"), 1, "makes no embeddings: it generates text"),
        (("rerank", "cria", "a", "b"), 1, "makes no rankings"),
        (("embed", "cria", "a", "-f", "-"), 2, "give one of them"),
        (("embed", "cria"), 2, "no line to embed"),
        (("embed",), 2, "MODEL"),
    ],
)
def test_wrong_calls(words: tuple[str, ...], code: int, message: str) -> None:
    result = call(*words, stdin="")
    assert (result.exit_code, message in result.output) == (code, True), result.output


def test_long_texts(encoder: str) -> None:
    result = call("embed", encoder, "a " * 99)
    assert result.exit_code == 1 and "more than the 48 of the context" in result.output
    assert call("embed", encoder, "a " * 99, "--truncate").exit_code == 0
