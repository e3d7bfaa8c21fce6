"""Well-formed hostile requests: each ends in bounded time, a request beside them keeps its bits."""

from __future__ import annotations

import base64
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.support.exhaustive import share_of
from tests.support.served_here import ServedHere, served_here
from tests.support.undisturbed import undisturbed

from camelid.server.service.limits import Limits

pytestmark = pytest.mark.faults
CHAT, PATH = "/v1/chat/completions", "/v1/completions"
LONGEST_S = 20.0
LONGEST_TEXT_S = 120.0  # for a text: up to 32 s a million letters at idle priority, then in the server


@pytest.fixture(scope="module")
def served() -> Iterator[ServedHere]:
    with served_here(max_body=4 << 20, limits=Limits(max_tokens=8, timeout_s=15)) as running:
        yield running
        running.wait_idle()


@pytest.fixture(scope="module")
def patient() -> Iterator[ServedHere]:
    """A server without a time limit for answers, in which a long text may wait for the processor."""
    with served_here(max_body=4 << 20) as running:
        yield running
        running.wait_idle()


def ask(served: ServedHere, path: str, longest_s: float = LONGEST_S, **body: Any) -> Any:
    """The reply to a request, which takes no longer than `longest_s`."""
    return served.http.post(path, json=body, timeout=longest_s)


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 4, **fields}


def schema(value: Any) -> dict[str, Any]:
    return said("Hi", response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": value}})


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        value = {"type": "object", "properties": {"a": value}, "required": ["a"]}
    return value


GRAMMARS = {
    "left recursion": 'root ::= root "a" | "b"',
    "hidden left recursion": 'root ::= a root "x" | "y"\na ::= "" | "z"',
    "repeats": 'root ::= "a"{1,1000000}',
    "parentheses": "root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000,
    "no end": "root ::= " + "(" * 60_000,
    "repeats of repeats": 'root ::= ((("a"{1,999}){1,999}){1,999}){1,999}',
    "empty loop": 'root ::= (""*)*',
    "unknown rule": "root ::= nowhere",
    "no root": 'start ::= "a"',
    "rules": "root ::= r0\n" + "\n".join(f'r{i} ::= "a" r{i + 1} | r{i + 1}' for i in range(5000)),
    "empty": "",
    "a long class": f"root ::= [{''.join(map(chr, range(0x4E00, 0x9000)))}]+",
}


@pytest.mark.parametrize("name", share_of(GRAMMARS, 4))
def test_hostile_grammars(served: ServedHere, name: str) -> None:
    text = GRAMMARS[name]
    with undisturbed(served.http):
        for reply in (
            ask(served, "/completion", prompt="Hi", n_predict=2, grammar=text),
            ask(served, CHAT, **said("Hi", grammar=text)),
        ):
            assert reply.status_code in (200, 400, 408), reply.text[:300]
            assert reply.is_success or len(reply.text) < 3000


SCHEMAS: dict[str, Any] = {
    "depth": nested(60),
    "more depth": nested(200),
    "a loop of references": {
        "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "a reference to itself": {"$ref": "#"},
    "a path of files": {"$ref": "file:///etc/passwd"},
    "a pattern that backtracks": {"type": "string", "pattern": "^(a+)+$"},
    "a long pattern": {"type": "string", "pattern": "A" * 10_000},
    "a pattern of repeats": {"type": "string", "pattern": "^((a{1,999}){1,999}){1,999}$"},
    "a broken pattern": {"type": "string", "pattern": "(["},
    "lengths": {"type": "string", "minLength": 10**9, "maxLength": 10**10},
    "items": {"type": "array", "items": {"type": "integer"}, "minItems": 10**6, "maxItems": 10**7},
    "choices": {"enum": [f"choice {i}" for i in range(10_000)]},
    "properties": {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(2000)}},
    "alternatives": {"anyOf": [nested(2)] * 2000},
    "no type": {"type": 7},
    "an impossible value": {"type": "integer", "minimum": 5, "maximum": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", share_of(SCHEMAS, 8))
def test_hostile_schemas(served: ServedHere, name: str) -> None:
    with undisturbed(served.http):
        reply = ask(served, CHAT, **schema(SCHEMAS[name]))
        assert reply.status_code in (200, 400, 408), reply.text[:300]
        assert reply.is_success or len(reply.text) < 3000


TEXTS = {
    "one letter": "a" * 100_000,
    "control tokens": "<|im_end|><|im_start|>" * 20_000,
    "marks": "e" + "́" * 200_000,
    "carets": "^" * 1_000_000,
    "underscores": "_" * 50_000,
    "no space": "ሴ" * 100_000,
    "spaces": " " * 250_000,
    "joined faces": "👩‍👩‍👧‍👦" * 10_000,
    "digits": "7" * 500_000,
    "zeros": "\0" * 200_000,
}


@pytest.mark.parametrize("name", share_of(TEXTS))
def test_hostile_texts(patient: ServedHere, name: str) -> None:
    """No prompt of them fits; each is refused with its number of tokens, and tokenised whole where asked."""
    text = TEXTS[name]
    with undisturbed(patient.http):
        reply = ask(patient, CHAT, LONGEST_TEXT_S, **said(text))
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")
        tokens = ask(patient, "/tokenize", LONGEST_TEXT_S, content=text).json()["tokens"]
        assert ask(patient, "/detokenize", LONGEST_TEXT_S, tokens=tokens).json()["content"] == text


TEMPLATES = {
    "a class chain": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "a filter of attributes": "{{ ''|attr('__class__') }}",
    "a format": "{{ '{0.__class__}'.format(messages) }}",
    "an import": "{{ self.__init__.__globals__ }}",
    "a long range": "{% for i in range(1000000000) %}a{% endfor %}",
    "loops in loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "a product": "{{ 'a' * 1000000000 }}",
    "a power": "{{ 9 ** 9 ** 9 }}",
    "a macro without end": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_a_request_brings_no_template(served: ServedHere, template: str) -> None:
    with undisturbed(served.http):
        for fields in ({"chat_template": template}, {"chat_template_kwargs": {"chat_template": template}}):
            reply = ask(served, CHAT, **said("Hi", **fields))
            assert reply.status_code in (200, 400), reply.text[:300]
            assert "subclasses" not in reply.text
            assert "object at 0x" not in reply.text
        plain = ask(served, CHAT, **said("Hi", temperature=0))
        words = ask(served, CHAT, **said("Hi", temperature=0, chat_template_kwargs={"x": template}))
        assert words.json()["choices"] == plain.json()["choices"]


AMPLIFIED: dict[str, tuple[str, dict[str, Any], int]] = {
    "n": (CHAT, said("Hi", n=10**6), 400),
    "n and best_of": (PATH, {"prompt": "Hi", "n": 17, "best_of": 17}, 400),
    "best_of": (PATH, {"prompt": "Hi", "best_of": 10**6}, 400),
    "top_logprobs": (CHAT, said("Hi", logprobs=True, top_logprobs=10**9), 400),
    "logprobs": (PATH, {"prompt": "Hi", "logprobs": 10**9}, 400),
    "prompts": (PATH, {"prompt": ["Hi"] * 100_000}, 400),
    "prompts and n": (PATH, {"prompt": ["Hi"] * 200, "n": 16}, 400),
    "texts": ("/tokenize", {"content": [["a"] * 1000] * 1000}, 400),
    "max_tokens": (CHAT, said("Hi") | {"max_tokens": 10**12}, 400),
    "biases": (CHAT, said("Hi", logit_bias={str(i): 100 for i in range(100_000)}), 400),
    "stops": (CHAT, said("Hi", stop=["a" * 100] * 10_000), 400),
    "messages": (CHAT, {"messages": [{"role": "user", "content": "a"}] * 50_000}, 400),
    "tools": (CHAT, said("Hi", tools=[{"type": "function", "function": {"name": "f"}}] * 5000), 400),
    "documents": ("/v1/rerank", {"query": "a", "documents": ["a"] * 100_000}, 400),
}  # fmt: skip


@pytest.mark.parametrize(("path", "body", "status"), AMPLIFIED.values(), ids=AMPLIFIED)
def test_amplified_requests(served: ServedHere, path: str, body: dict[str, Any], status: int) -> None:
    with undisturbed(served.http):
        reply = ask(served, path, **body)
        assert reply.status_code in (status, 413), reply.text[:300]
        assert len(reply.text) < 3000


@contextmanager
def trap() -> Iterator[tuple[int, list[Any]]]:
    """A listener, and the connections that it saw."""
    seen = list[Any]()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        over = threading.Event()

        def accept() -> None:
            while not over.is_set():
                try:
                    seen.append(listener.accept()[1])
                except TimeoutError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        yield listener.getsockname()[1], seen
        over.set()
        thread.join()


URLS = (
    "http://127.0.0.1:{}/a.png", "http://localhost:{}/a.png", "http://[::ffff:127.0.0.1]:{}/a.png",
    "http://2130706433:{}/a.png", "http://0177.0.0.1:{}/", "//127.0.0.1:{}/a.png", "ftp://127.0.0.1:{}/a.png",
    "http://169.254.169.254:{}/latest/meta-data", "file:///etc/passwd?{}", "gopher://127.0.0.1:{}/_GET",
)  # fmt: skip


def test_no_url_of_a_request_is_fetched(served: ServedHere) -> None:
    with trap() as (port, seen), undisturbed(served.http):
        for url in (each.format(port) for each in URLS):
            part = {"type": "image_url", "image_url": {"url": url}}
            shown = {"type": "input_image", "image_url": url}
            source = {"type": "image", "source": {"type": "url", "url": url}}
            for path, body in (
                (CHAT, {"messages": [{"role": "user", "content": [part]}]}),
                ("/v1/responses", {"input": [{"role": "user", "content": [shown]}]}),
                ("/v1/messages", {"max_tokens": 2, "messages": [{"role": "user", "content": [source]}]}),
                (CHAT, schema({"$ref": url})),
                (CHAT, schema({"$schema": url, "$id": url, "type": "integer"})),
                ("/api/chat", {"messages": [{"role": "user", "content": "a", "images": [url]}]}),
                ("/v1/models/load", {"model": url}),
            ):  # fmt: skip
                reply = served.http.post(path, json=body)
                assert reply.status_code in (200, 400, 403, 404, 501), (path, reply.text[:300])
                assert "root:" not in reply.text
        picture = (
            "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(2_000_000)).decode()
        )
        part = {"type": "image_url", "image_url": {"url": picture}}
        reply = served.http.post(CHAT, json={"messages": [{"role": "user", "content": [part]}]})
        assert reply.status_code in (400, 501), reply.text[:300]
    assert seen == []


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_prompts_as_long_as_the_context(served: ServedHere, more: int) -> None:
    """A prompt needs one row less than the context, for its first token."""
    n_ctx = served.http.get("/props").json()["default_generation_settings"]["n_ctx"]
    with undisturbed(served.http):
        prompt = [100 + i % 300 for i in range(n_ctx + more)]
        reply = ask(served, PATH, prompt=prompt, max_tokens=1, ignore_eos=True, temperature=0)
        if more < 0:
            assert reply.status_code == 200, reply.text
            assert reply.json()["choices"][0]["finish_reason"] == "length"
            assert reply.json()["usage"]["completion_tokens"] == 1
        else:
            error = reply.json()["error"]
            assert (reply.status_code, error["code"]) == (400, "context_length_exceeded"), error
            assert {str(n_ctx), str(n_ctx + more)} <= set(re.findall(r"\d+", error["message"]))
