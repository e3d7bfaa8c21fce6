"""Text work of requests: off the event loop, within bounded places, and on a model that stays loaded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.served_here import WAIT_S, ServedHere, served_here, until

from camelid.errors import RequestError
from camelid.requests.far_tokenizer import FarTokenizer
from camelid.requests.grammar_workers import GrammarWorkers
from camelid.server.http.errors import ApiError
from camelid.server.service.admission import Admission
from camelid.server.service.service import Service
from camelid.server.service.text_size import INLINE_CHARS
from camelid.text.grammar.worker_errors import BUSY

LONG = "a fish " * (INLINE_CHARS // 7 + 1)
SAID = [{"role": "user", "content": "Hi"}]
SAID_LONG = [{"role": "user", "content": LONG}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": LONG, "parameters": {}}}]
TEXT_WORK: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("/tokenize", {"content": LONG}),
    "bias": ("/completion", {"prompt": "Hi", "n_predict": 1, "logit_bias": {LONG: 1}}),
    "mixed prompt": ("/completion", {"prompt": [LONG, 5], "n_predict": 1}),
    "tools": ("/v1/chat/completions/input_tokens", {"messages": SAID, "tools": TOOLS}),
    "messages": (
        "/v1/messages/count_tokens",
        {"messages": SAID_LONG, "model": "m"},
    ),
    "responses": ("/v1/responses/input_tokens", {"input": LONG}),
}
COUNTS = [name for name in TEXT_WORK if TEXT_WORK[name][0] != "/completion"]


@pytest.fixture(scope="module")
def served() -> Iterator[ServedHere]:
    with served_here(max_queue=4, parallel=2) as running:
        yield running


def on_encode(monkeypatch: pytest.MonkeyPatch, notice: Callable[[], object]) -> None:
    """Calls `notice` before each long text is encoded."""
    real = FarTokenizer.encode_spans

    def encode(self: FarTokenizer, spans: Iterable[tuple[str, bool]], **more: Any) -> list[int]:
        parts = list(spans)
        if sum(len(text) for text, _ in parts) > INLINE_CHARS:
            notice()
        return real(self, parts, **more)

    monkeypatch.setattr(FarTokenizer, "encode_spans", encode)


@pytest.mark.parametrize("name", TEXT_WORK)
def test_long_texts_are_encoded_off_the_event_loop(
    served: ServedHere, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    on_encode(monkeypatch, lambda: threads.append(threading.current_thread().name))
    path, body = TEXT_WORK[name]
    reply = served.http.post(path, json=body)
    is_too_long = name == "mixed prompt" and reply.status_code == 400
    assert reply.status_code == 200 or is_too_long, reply.text
    assert threads
    assert all(thread.startswith("camelid text") for thread in threads)


@pytest.mark.parametrize("name", COUNTS)
def test_text_work_is_bounded_and_keeps_its_model(
    served: ServedHere, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.http.post("/tokenize", json={"content": "loads the model"})
    gate = threading.Event()
    on_encode(monkeypatch, lambda: gate.wait(WAIT_S))
    monkeypatch.setattr(served.service, "texts", Admission(1, 0))
    closed: list[bool] = []
    real = Service.close

    async def close(self: Service) -> None:
        closed.append(gate.is_set())
        await real(self)

    monkeypatch.setattr(Service, "close", close)
    path, body = TEXT_WORK[name]
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(served.http.post, path, json=body)
        until(lambda: served.service.texts.n_places == 1)
        refused = served.http.post(path, json=body)
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        assert served.http.post("/v1/models/unload", json={"model": "cria"}).status_code == 200
        assert not closed
        gate.set()
        assert working.result().status_code == 200
    until(lambda: closed == [True])


def test_texts_of_biases_are_bounded(served: ServedHere) -> None:
    biases = [["a" * 40_000, 1], ["b" * 40_000, 1]]
    reply = served.http.post("/completion", json={"prompt": "Hi", "logit_bias": biases})
    assert reply.status_code == 400
    assert "80,000 characters" in reply.json()["error"]["message"]


def test_a_request_on_a_closed_model_ends(served: ServedHere) -> None:
    """The service that an unload closed refuses a late request."""
    served.http.post("/tokenize", json={"content": "loads the model"})
    service = served.service
    assert served.http.post("/v1/models/unload", json={"model": "cria"}).status_code == 200
    until(lambda: service.host.failure is not None)
    with pytest.raises(ApiError, match="unloaded") as caught:
        service.host.submit(service.builder.request("Hi", {}))
    assert caught.value.status == 503


def test_a_failed_start_of_the_grammar_workers_is_tried_again(
    served: ServedHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"prompt": "Hi", "max_tokens": 4, "response_format": {"type": "json_object"}}
    served.http.post("/v1/models/unload", json={"model": "cria"})
    with monkeypatch.context() as patch:
        patch.setattr(GrammarWorkers, "warm", failing)
        assert served.http.post("/v1/completions", json=body).status_code == 503
    assert served.http.post("/v1/completions", json=body).status_code == 200


async def failing(workers: GrammarWorkers) -> None:
    raise RequestError("the worker got no time", code=BUSY)


def test_choices_beyond_all_places_are_no_matter_of_time(served: ServedHere) -> None:
    reply = served.http.post("/v1/chat/completions", json={"messages": SAID, "n": 7})
    assert (reply.status_code, reply.json()["error"]["message"]) == (400, "n is 7, expected 1 to 6")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions/input_tokens"])
def test_a_schema_is_bounded_on_every_endpoint(served: ServedHere, path: str) -> None:
    grammar = f'root ::= "{"a" * 300_000}"'
    reply = served.http.post(path, json={"prompt": "Hi", "messages": SAID, "grammar": grammar})
    assert reply.status_code == 400
    assert "grammar has 300,011 characters" in reply.json()["error"]["message"]


def test_a_count_of_a_message_to_continue_is_its_answers(served: ServedHere) -> None:
    turns = [*SAID, {"role": "assistant", "content": "Hel"}]
    counted = served.http.post("/v1/messages/count_tokens", json={"messages": turns, "model": "m"}).json()
    asked = {"messages": turns, "model": "m", "max_tokens": 1}
    used = served.http.post("/v1/messages", json=asked).json()["usage"]
    assert counted["input_tokens"] == used["input_tokens"] + used["cache_read_input_tokens"]
