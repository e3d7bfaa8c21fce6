"""A server of a model with an encoder and a decoder: completions, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.api.test_transducers import ANSWERS
from tests.support.served_here import ServedHere, served_here
from tests.support.tiny_transducers import write_transducer

ROW = ANSWERS["flan_t5"][2]
ASKED: dict[str, Any] = {"model": "cria", "prompt": ROW["prompt"], "max_tokens": 24, "temperature": 0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHere]:
    folder = write_transducer(tmp_path_factory.mktemp("t5") / "flan_t5")
    with served_here(str(folder)) as served:
        yield served


def post(server: ServedHere, path: str, **body: Any) -> Any:
    return server.http.post(path, json=body).json()


def test_completions_are_those_of_transformers(server: ServedHere) -> None:
    reply = post(server, "/v1/completions", **ASKED, n=2)
    assert [choice["text"] for choice in reply["choices"]] == [ROW["text"]] * 2
    assert reply["usage"]["prompt_tokens"] == len(ROW["ids"])
    native = post(server, "/completion", prompt=ROW["prompt"], n_predict=24, temperature=0)
    assert (native["content"], native["tokens_evaluated"]) == (ROW["text"], len(ROW["ids"]))
    server.wait_idle()


def test_an_echo_is_the_encoders_text(server: ServedHere) -> None:
    by_ids = post(server, "/v1/completions", **ASKED | {"prompt": ROW["ids"]}, echo=True)
    assert by_ids["choices"][0]["text"] == ROW["prompt"].strip() + ROW["text"]
    error = post(server, "/v1/completions", **ASKED, echo=True, logprobs=1)["error"]
    assert "an encoder reads it and predicts none of its tokens; leave out echo" in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, "has no chat template"),
        ("/v1/responses", {"input": "a"}, "has no chat template"),
        ("/v1/embeddings", {"input": "a"}, "gives no embeddings: it generates text"),
        ("/v1/completions", {"prompt": "a " * 300}, "301 tokens"),
    ],
)
def test_refusals(server: ServedHere, path: str, body: dict[str, Any], words: str) -> None:
    assert words in post(server, path, model="cria", **body)["error"]["message"]
    server.wait_idle()
