"""Embeddings and rerankings: every field is checked, then a clear refusal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.served_here import ServedHere, served_here

RERANK = ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking")


@pytest.fixture(scope="module")
def served() -> Iterator[ServedHere]:
    with served_here(is_strict=True) as running:
        yield running


def status(served: ServedHere, path: str, body: dict[str, Any]) -> tuple[int, str | None]:
    reply = served.http.post(path, json=body)
    error = reply.json()["error"]
    assert error["message"]
    assert reply.headers.get("x-should-retry") == ("false" if reply.status_code == 501 else None)
    return reply.status_code, error.get("param")


@pytest.mark.parametrize("value", ["text", ["a", "b"], [1, 2], [[1], [2, 3]], ["a", [1]]])
@pytest.mark.parametrize(
    "more", [{}, {"encoding_format": "float"}, {"encoding_format": "base64", "dimensions": 8, "user": "u"}]
)
def test_a_right_embedding_request_is_not_supported(
    served: ServedHere, value: object, more: dict[str, Any]
) -> None:
    assert status(served, "/v1/embeddings", {"model": "cria", "input": value, **more}) == (501, "model")


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"input": None}, (400, "input")),
        ({"input": []}, (400, "input")),
        ({"input": [1, "a"]}, (400, "input[0]")),
        ({"input": {"text": "a"}}, (400, "input")),
        ({"input": ["a"] * 2049}, (400, "input")),
        ({"encoding_format": "int8"}, (400, "encoding_format")),
        ({"dimensions": 0}, (400, "dimensions")),
        ({"model": "gpt"}, (404, "model")),
        ({"nonsense": 1}, (400, "nonsense")),
    ],
)
def test_a_wrong_embedding_request_is_named(
    served: ServedHere, change: dict[str, Any], want: tuple[int, str]
) -> None:
    assert status(served, "/v1/embeddings", {"input": "text", **change}) == want


@pytest.mark.parametrize("path", RERANK)
@pytest.mark.parametrize(
    ("body", "want"),
    [
        ({"documents": ["a", {"text": "b"}], "top_n": 1, "return_documents": True}, 501),
        ({"texts": ["a", "b"], "raw_scores": True, "truncate": False}, 501),
        ({"query": {"text": "q"}, "documents": ["a"]}, 501),
        ({"query": None, "texts": ["a"]}, 400),
        ({}, 400),
        ({"texts": ["a"], "documents": ["a"]}, 400),
        ({"documents": []}, 400),
        ({"documents": [1]}, 400),
        ({"documents": ["a"], "top_n": 0}, 400),
        ({"documents": ["a"], "model": "gpt"}, 404),
        ({"documents": ["a"], "nonsense": 1}, 400),
    ],
)
def test_rerankings_are_checked(served: ServedHere, path: str, body: dict[str, Any], want: int) -> None:
    assert status(served, path, {"query": "q", **body})[0] == want


@pytest.mark.parametrize(("path", "body"), [
    ("/v1/embeddings", {"input": "a"}), ("/v1/rerank", {"query": "q", "documents": ["a"]}),
    ("/embedding", {"content": "a"}),
])  # fmt: skip
def test_the_only_model_answers_to_every_name(path: str, body: dict[str, Any]) -> None:
    """As for a chat, and no model is loaded for the refusal."""
    with served_here() as running:
        running.http.post("/v1/models/unload", json={"model": "cria"})
        reply = running.http.post(path, json={**body, "model": "text-embedding-3-small"})
        assert (reply.status_code, "cria" in reply.text) == (501, True)
        assert running.server.models.default.service is None
