"""Embeddings and rankings over HTTP: clients of OpenAI and Ollama, shapes of llama.cpp, Jina and TEI."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import ollama
import openai
import pytest
from tests.support.hf_models import load_case, weights_of, write_hf, write_safetensors
from tests.support.served_here import ServedHere, served_here
from tests.support.tiny_encoders import write_encoder

import camelid
from camelid.server.http.keys import Key, KeyRing

RERANK = ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking")
TEXTS = ["hello world", "a", "", "the quick brown fox"]
ONE_LABEL = {"id2label": {"0": "x"}, "label2id": {"x": 0}}
Models = tuple[ServedHere, camelid.LLM, camelid.LLM]


def write_ranker(folder: Path) -> Path:
    """A reranker of one label: the golden model's head, cut to its first row."""
    case = load_case("bert_ranking")
    path = write_encoder(folder, "bert_ranking", pooling="")
    write_hf(path, case, config_changes=ONE_LABEL)
    weights = weights_of(case)
    weights |= {name: weights[name][:1] for name in ("classifier.weight", "classifier.bias")}
    write_safetensors(path / "model.safetensors", weights)
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    """A server of an encoder, a ranker and cria, and the two models loaded beside it."""
    folder = tmp_path_factory.mktemp("models")
    encoder, ranker = str(write_encoder(folder / "encoder")), str(write_ranker(folder / "ranker"))
    others = {"ranker": ranker, "chat": "cria"}
    with (
        served_here(encoder, is_strict=True, others=others) as served,
        camelid.load(encoder, backend="cpu") as here,
        camelid.load(ranker, backend="cpu") as ranks,
    ):
        yield served, here, ranks


@pytest.fixture
def client(models: Models) -> Iterator[openai.OpenAI]:
    url = f"http://127.0.0.1:{models[0].port}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as made:
        yield made


def close(got: Any, want: Any) -> bool:
    return np.shape(got) == np.shape(want) and np.allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("form", ["float", "base64", "default"])
def test_openais_client_gets_the_models_embeddings(models: Models, client: openai.OpenAI, form: Any) -> None:
    how: dict[str, Any] = {} if form == "default" else {"encoding_format": form}
    reply = client.embeddings.create(model="cria", input=TEXTS, **how)
    found: list[Any] = [item.embedding for item in reply.data]
    if form == "base64":
        found = [np.frombuffer(base64.b64decode(item), "<f4") for item in found]
    assert close(found, models[1].embed(TEXTS))
    assert [item.index for item in reply.data] == list(range(len(TEXTS)))
    assert reply.usage.total_tokens == reply.usage.prompt_tokens == 12 + 3 + 2 + 18


@pytest.mark.parametrize(
    ("given", "texts"),
    [("a b", ["a b"]), ([2, 5, 3], [[2, 5, 3]]), ([[2, 5], [6]], [[2, 5], [6]]), (["a", [6]], ["a", [6]])],
)
def test_inputs_are_texts_and_token_ids(models: Models, given: Any, texts: Any) -> None:
    reply = models[0].http.post("/v1/embeddings", json={"input": given, "dimensions": 8, "model": "cria"})
    found = [item["embedding"] for item in reply.json()["data"]]
    assert close(found, models[1].embed(texts, dimensions=8))


def test_ollamas_client_gets_the_models_embeddings(models: Models) -> None:
    served, here, _ = models
    with ollama.Client(host=f"http://127.0.0.1:{served.port}") as made:
        reply = made.embed(model="cria", input=TEXTS)
        assert close(reply.embeddings, here.embed(TEXTS)) and reply.prompt_eval_count == 35
        assert close(
            made.embed(model="cria:latest", input="a", dimensions=4).embeddings[0],
            here.embed("a", dimensions=4)[0],
        )
        assert close(made.embeddings(model="cria", prompt="a").embedding, here.embed("a", normalize=False)[0])
        assert close(
            made.embed(model="cria", input="a " * 99).embeddings, here.embed("a " * 99, truncate=True)
        )
        with pytest.raises(ollama.ResponseError, match="more than the 48 of the context"):
            made.embed(model="cria", input="a " * 99, truncate=False)
        assert "embedding" in (made.show("cria").capabilities or ())


@pytest.mark.parametrize("path", ["/embedding", "/embeddings"])
def test_llama_cpps_endpoint(models: Models, path: str) -> None:
    served, here, _ = models

    def post(**body: Any) -> Any:
        return [item["embedding"] for item in served.http.post(path, json=body).json()]

    raw = here.embed("a b", normalize=False)[0]
    assert close(post(content="a b"), [here.embed("a b")])
    assert close(post(input=["a b", [2, 5, 3]]), [[row] for row in here.embed(["a b", [2, 5, 3]])])
    assert close(post(content="a b", embd_normalize=-1), [[raw]])
    assert close(post(content="a b", embd_normalize=1), [[np.array(raw) / np.abs(raw).sum()]])
    assert close(post(content="a b", embd_normalize=0), [[np.array(raw) / np.abs(raw).max() * 32760]])


def test_a_model_without_a_pooling_gives_each_tokens_row(tmp_path: Path) -> None:
    path = write_encoder(tmp_path / "m", pooling="")
    mean = camelid.load(str(write_encoder(tmp_path / "n")), backend="cpu").embed("a b", normalize=False)
    with served_here(str(path)) as served:
        reply = served.http.post("/embedding", json={"content": "a b"}).json()
        assert np.shape(reply[0]["embedding"]) == (4, 64)
        assert close(np.mean(reply[0]["embedding"], axis=0), mean[0])
        refused = served.http.post("/v1/embeddings", json={"input": "a"})
        assert (refused.status_code, "states no pooling" in refused.text) == (400, True)


@pytest.mark.parametrize("path", RERANK)
def test_rankings_in_jinas_and_in_teis_shape(models: Models, path: str) -> None:
    served, _, ranks = models
    want = ranks.rerank("fox", TEXTS)
    order = sorted(range(4), key=lambda i: -want[i])
    body = {"model": "ranker", "query": {"text": "fox"}, "documents": [{"text": t} for t in TEXTS]}
    reply = served.http.post(path, json={**body, "top_n": 3, "return_documents": True}).json()
    assert [item["index"] for item in reply["results"]] == order[:3]
    assert close([item["relevance_score"] for item in reply["results"]], [want[i] for i in order[:3]])
    assert [item["document"]["text"] for item in reply["results"]] == [TEXTS[i] for i in order[:3]]
    assert (
        reply["usage"]["total_tokens"] == 35 + 4 * 4
        and "document" not in served.http.post(path, json=body).json()["results"][0]
    )
    raw = served.http.post(path, json={"model": "ranker", "query": "fox", "texts": TEXTS, "raw_scores": True})
    logits = ranks.rerank("fox", TEXTS, normalize=False)
    assert close([item["score"] for item in raw.json()], [logits[i] for i in order])
    assert close(want, 1 / (1 + np.exp(-np.array(logits)))) and len({*want}) == 4


def status(served: ServedHere, path: str, body: dict[str, Any]) -> tuple[int, str | None]:
    reply = served.http.post(path, json=body)
    error = reply.json()["error"]
    assert error["message"]
    assert reply.headers.get("x-should-retry") == ("false" if reply.status_code == 501 else None)
    return reply.status_code, error.get("param")


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"input": None}, (400, "input")),
        ({"input": []}, (400, "input")),
        ({"input": [1, "a"]}, (400, "input[0]")),
        ({"input": {"text": "a"}}, (400, "input")),
        ({"input": ["a"] * 2049}, (400, "input")),
        ({"input": "a " * 99}, (400, "input")),
        ({"input": [96]}, (400, "prompt")),
        ({"encoding_format": "int8"}, (400, "encoding_format")),
        ({"dimensions": 0}, (400, "dimensions")),
        ({"dimensions": 65}, (400, "dimensions")),
        ({"model": "gpt"}, (404, "model")),
        ({"model": "chat"}, (501, "model")),
        ({"model": "ranker"}, (501, "model")),
        ({"nonsense": 1}, (400, "nonsense")),
    ],
)
def test_a_wrong_embedding_request_is_named(
    models: Models, change: dict[str, Any], want: tuple[int, str]
) -> None:
    assert status(models[0], "/v1/embeddings", {"input": "text", **change}) == want
    models[0].wait_idle()


@pytest.mark.parametrize("path", RERANK)
@pytest.mark.parametrize(
    ("body", "want"),
    [
        ({"query": None, "texts": ["a"]}, 400),
        ({}, 400),
        ({"texts": ["a"], "documents": ["a"]}, 400),
        ({"documents": []}, 400),
        ({"documents": [1]}, 400),
        ({"documents": ["a"], "top_n": 0}, 400),
        ({"documents": ["a " * 99]}, 400),
        ({"documents": ["a"], "truncation_direction": "left"}, 400),
        ({"documents": ["a"], "model": "gpt"}, 404),
        ({"documents": ["a"], "model": "chat"}, 501),
        ({"documents": ["a"], "model": "cria"}, 501),
        ({"documents": ["a"], "nonsense": 1}, 400),
    ],
)
def test_rankings_are_checked(models: Models, path: str, body: dict[str, Any], want: int) -> None:
    assert status(models[0], path, {"model": "ranker", "query": "q", **body})[0] == want


def test_an_encoder_generates_no_text(models: Models) -> None:
    for path, body in (
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/completion", {"prompt": "a"}),
    ):
        reply = models[0].http.post(path, json={"model": "cria", **body})
        assert reply.status_code in (400, 501), reply.text
    assert "generates no text" in models[0].http.post("/completion", json={"prompt": "a"}).text


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


def test_an_embedding_spends_the_keys_budget(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"secret-of-the-test").digest()
    key = Key("k", digest, tokens_per_minute=4)
    with served_here(str(write_encoder(tmp_path / "m")), keys=KeyRing([key])) as served:
        headers = {"authorization": "Bearer secret-of-the-test"}
        codes = [
            served.http.post("/v1/embeddings", json={"input": "a b"}, headers=headers).status_code
            for _ in range(3)
        ]
        assert codes[0] == 200 and codes[-1] == 429


def test_many_requests_share_steps(models: Models) -> None:
    served = models[0]
    before = served.engine.counters.steps_submitted, served.engine.counters.encoded
    texts = [[5 + i % 90, 6] for i in range(30)]
    found: dict[int, Any] = {}

    def post(i: int) -> None:
        reply = served.http.post("/v1/embeddings", json={"input": texts[i]})
        found[i] = reply.json()["data"][0]["embedding"]

    threads = [threading.Thread(target=post, args=(i,)) for i in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert close([found[i] for i in range(len(texts))], models[1].embed(texts))
    assert served.engine.counters.encoded - before[1] == len(texts)
