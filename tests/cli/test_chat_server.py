"""`camelid chat --server`: turns and commands over HTTP, refusals by name, servers that misbehave."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.scripted_server import (
    END,
    HEAD,
    Pieces,
    Script,
    answer,
    chunk,
    delta,
    event,
    scripted,
    whole,
)
from tests.support.served import Served, served
from tests.support.served_here import served_here

from camelid.cli.chat_server import FIELDS, NOT_THERE, request_fields
from camelid.cli.chat_settings import NAMES
from camelid.cli.http_client import Address, Chunks, Client, Reply, ServerError
from camelid.cli.main import main
from camelid.errors import RequestError

if sys.platform != "win32":
    import pexpect

KEY = "sk-chat"
SUM, NAME = "What is 2 plus 3?", "Who are you?"
LOST, FULL = {"error": {"message": "lost"}}, {"error": {"message": "full"}}
HTML = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served("--backend", "cpu", "--api-key", KEY) as running:
        running.http.headers["authorization"] = f"Bearer {KEY}"
        yield running


def chat(url: str, *lines: str, words: tuple[str, ...] = ()) -> Result:
    text = "".join(f"{line}\n" for line in lines)
    return CliRunner().invoke(main, ["chat", "--server", url, *words], input=text)


def chat_with(script: Script, *lines: str, words: tuple[str, ...] = ()) -> tuple[Result, list[Any]]:
    """A chat with a scripted server, and the bodies that it received."""
    with scripted(script) as fake:
        return chat(fake.url, *lines, words=words), fake.bodies


def answers(server: Served, *said: str, system: str | None = None) -> list[str]:
    """The API's own answers to a conversation."""
    messages = [{"role": "system", "content": system}] if system else []
    for text in said:
        messages.append({"role": "user", "content": text})
        reply = server.post(
            "/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 12}
        )
        messages.append(reply.json()["choices"][0]["message"])
    return [message["content"] for message in messages if message["role"] == "assistant"]


def test_turns_and_commands(server: Served) -> None:
    words = ("--api-key", KEY, "--temp", "0", "-n", "12", "--system", "Be kind.", "-v")
    lines = (NAME, SUM, "/undo", "/regenerate", "/fork b", "/switch main", "/reset", SUM, "/stats", "/model")
    done = chat(server.url, *lines, words=words)
    first, second = answers(server, NAME, SUM, system="Be kind.")
    assert done.stdout.splitlines() == [first, second, first, *answers(server, SUM, system="Be kind.")]
    told = done.stderr
    assert f"undone: {SUM}" in told
    assert "now in b; /switch main returns" in told
    assert "new conversation" in told
    assert f"main: 3 messages, cria at 127.0.0.1:{server.url.rpartition(':')[2]}" in told
    assert "prompt tokens cached" in told
    assert "seed" not in told.replace("--seed", ""), "the server's seed is unknown"
    assert "unknown command /model" in told
    assert done.exit_code == 1


@pytest.mark.parametrize("line", ["/save x.session", "/load x.session"])
def test_commands_without_a_meaning_are_refused_by_name(line: str, tmp_path: Path) -> None:
    done, bodies = chat_with(lambda asked: answer(["hi"]), line, "hello")
    assert f"{line.split()[0]} has no meaning with --server" in done.stderr
    assert (done.stdout, len(bodies), done.exit_code) == ("hi\n", 1, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cria", "--server", "x:1"), "the argument MODEL has no meaning with --server"),
        (("--server", "x:1", "-c", "10"), "--ctx-size has no meaning with --server"),
        (("--server", "x:1", "--session", "s"), "--session has no meaning with --server"),
        (("--server", "x:1", "--lookup"), "--lookup has no meaning with --server"),
        (("--server", "x:1", "-ngl", "0"), "has no meaning with --server"),
        (("--api-key", "k"), "--api-key needs --server URL"),
        (("--model", "m"), "--model needs --server URL"),
        (("--server", "ftp://x"), "is no address of a server"),
        (("--server", "http://u:p@x"), "is no address of a server"),
        (("--server", "http://x:port"), "is no address of a server"),
        (("--server", "x:1", "--api-key", "a\nb"), "--api-key has a space or a special letter"),
    ],
)
def test_flags_are_refused_by_name(words: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(main, ["chat", *words], input="")
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


def test_every_flag_of_a_loaded_model_is_known() -> None:
    """A new flag must be sent to a server or refused there."""
    from camelid.cli.chat import command
    from camelid.cli.sampling_flags import OPTIONS

    assert OPTIONS
    both = {"system", "n_predict", "history", "no_history", "verbose", "server", "api_key", "model_name"}
    names = {str(each.name) for each in command.params} - both - set(NOT_THERE)
    assert names - set(FIELDS) == {"order"}, "sampler order is an option that request_fields refuses"


def test_options_are_sent_under_the_servers_names() -> None:
    words = (
        "--temp",
        "0.5",
        "--top-k",
        "3",
        "-s",
        "9",
        "-n",
        "7",
        "-l",
        "5-inf",
        "-l",
        "6+1.5",
        "--model",
        "m",
    )
    lines = (
        '/set stop ["a", "b"]',
        '/set variables {"think": false}',
        "/set priority 2",
        "/set ignore_eos true",
        "hi",
    )
    _, (body,) = chat_with(lambda asked: answer(["x"]), *lines, words=words)
    assert body == {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True,
        "stream_options": {"include_usage": True}, "temperature": 0.5, "top_k": 3, "seed": 9, "max_tokens": 7,
        "logit_bias": {"5": -100, "6": 1.5}, "stop": ["a", "b"], "chat_template_kwargs": {"think": False},
        "priority": -2, "ignore_eos": True,
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(FIELDS)))
def test_options_of_loaded_models_alone_are_refused(name: str) -> None:
    with pytest.raises(RequestError, match=f"'{name}' has no meaning with --server"):
        request_fields({name: 1})


def test_bias_of_minus_infinity() -> None:
    assert request_fields({"logit_bias": [(1, -inf)]}) == {"logit_bias": {"1": -100}}


def test_the_first_model_is_the_default() -> None:
    with scripted(lambda asked: answer(["x"])) as fake:
        chat(f"{fake.url}/v1/", "hi")
        chat(f"{fake.url}/prefix/v1", "hi", words=("--model", "other"))
    assert [body["model"] for body in fake.bodies] == ["scripted", "other"]
    paths = [one.path for one in fake.asked]
    assert paths == ["/v1/models", "/v1/chat/completions", "/prefix/v1/chat/completions"]
    assert "authorization" not in fake.asked[0].headers


def test_the_key_comes_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMELID_API_KEY", KEY)
    with scripted(lambda asked: answer(["x"])) as fake:
        assert chat(fake.url, "hi").exit_code == 0
    assert {one.headers["authorization"] for one in fake.asked} == {f"Bearer {KEY}"}
    assert CliRunner().invoke(main, ["chat", "--help"]).exit_code == 0, "the variable alone refuses nothing"


def test_reasoning_and_tool_calls_are_shown_and_kept() -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "add", "arguments": ""}}
    rest = {"index": 0, "function": {"arguments": '{"a": 1}'}}

    def script(asked: Any) -> Pieces:
        yield 0, HEAD
        for one in (
            delta(reasoning_content="Hm."), delta(reasoning=" So."), delta("Calling."),
            delta(tool_calls=[call]), delta(tool_calls=[rest]), delta(reason="tool_calls"),
        ):  # fmt: skip
            yield 0, event(one)
        yield 0, event(b"[DONE]") + END

    done, bodies = chat_with(script, "one", "two")
    assert done.stdout.splitlines() == ["Calling.", "Calling."]
    assert "[thinks] Hm. So." in done.stderr
    assert '[calls] add {"a": 1}' in done.stderr
    function = {"name": "add", "arguments": '{"a": 1}'}
    assert bodies[1]["messages"][1] == {
        "role": "assistant", "content": "Calling.", "reasoning_content": "Hm. So.",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }  # fmt: skip


def cut(*pieces: bytes) -> Script:
    """A reply of these bytes, after which the connection closes."""
    return lambda asked: [(0.0, piece) for piece in (*pieces, b"")]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (cut(HEAD, event(delta("half"))), "the connection ended before the answer did"),
        (cut(HEAD, event(delta("half")), END), "the connection ended before the answer did"),
        (cut(HEAD, event(delta("half")), event(LOST)), "broke the answer off: lost"),
        (cut(HEAD, event(b"nonsense")), "an event that is no JSON object"),
        (cut(HEAD, event({"choices": [7]})), "a chunk of another form"),
        (cut(HEAD, event({"choices": [{"delta": [1]}]})), "a chunk of another form"),
        (cut(HEAD, b"zz\r\nx\r\n"), "the chunk length b'zz'"),
        (cut(), "closed the connection without a reply"),
        (cut(b"SSH-2.0-OpenSSH_9\r\n\r\n"), "this is no HTTP server"),
        (cut(whole(FULL, 503, retry_after="7")), "answered 503: full; try again in 7 s"),
        (cut(whole({"error": "no such model"}, 404)), "answered 404: no such model"),
        (cut(b"HTTP/1.1 500 X\r\ncontent-length: 4\r\n\r\noops"), "answered 500: oops"),
        (cut(b"HTTP/1.1 500 X\r\ncontent-length: many\r\n\r\noops"), "content-length is 'many'"),
    ],
)  # fmt: skip
def test_a_failed_turn_leaves_the_conversation(script: Script, message: str) -> None:
    def second_fails(asked: Any) -> Pieces:
        return script(asked) if asked.body["messages"][-1]["content"] == "two" else answer(["fine"])

    done, bodies = chat_with(second_fails, "one", "two", "three")
    assert message in done.stderr
    assert "bug" not in done.stderr
    assert done.exit_code == 1
    last = [item["content"] for item in bodies[-1]["messages"]]
    assert last == ["one", "fine", "three"], "the failed turn is not part of the conversation"


@pytest.mark.parametrize("reply", [HTML, whole({"data": []}), whole([]), whole({"data": [{"name": 1}]})])
def test_a_server_that_is_none(reply: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.scripted_server.MODELS", None)
    monkeypatch.setattr("tests.support.scripted_server.whole", lambda models: reply)
    with scripted(lambda asked: answer(["x"])) as fake:
        done = chat(fake.url, "hi")
    assert done.exit_code == 1
    assert "no JSON object" in done.stderr or "offers no model" in done.stderr


def test_a_server_that_begins_no_stream_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("camelid.cli.http_client.POST_S", 0.1)
    with scripted(lambda asked: [(1.0, b"")]) as fake:
        done = chat(fake.url, "hi")
    assert (done.exit_code, "no reply of /v1/chat/completions within 0.1 s" in done.stderr) == (1, True)


def test_no_server() -> None:
    done = chat("127.0.0.1:1", "hi")
    assert (done.exit_code, "no server at 127.0.0.1:1" in done.stderr) == (1, True)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 1000])
def test_chunks_may_be_cut_anywhere(n: int) -> None:
    body = chunk(b"hello ") + b"5;name=value\r\nworld\r\n" + b"0\r\nsome: trailer\r\n\r\n"
    decoder = Chunks()
    found = b"".join(decoder.push(body[i : i + n]) for i in range(0, len(body), n))
    assert (found, decoder.is_done) == (b"hello world", True)


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("localhost:8080", "localhost", 8080, ""),
        ("http://a.example/v1", "a.example", 80, ""),
        ("https://a.example/api/v1/", "a.example", 443, "/api"),
        ("http://[::1]:9", "::1", 9, ""),
    ],
)
def test_addresses(url: str, host: str, port: int, path: str) -> None:
    address = Address.of(url)
    assert (address.host, address.port, address.path) == (host, port, path)
    assert (address.tls is not None) == url.startswith("https")
    if host == "::1":
        assert b"host: [::1]:9\r\n" in address.head("GET", "/", b"")


def test_a_connection_is_used_again_and_replaced_if_it_was_closed() -> None:
    def script(asked: Any) -> Pieces:
        yield from answer(["x"])
        if len(fake.bodies) == 2:
            yield 0, b""  # closed after a whole reply

    async def work(client: Client) -> None:
        for _ in range(4):
            assert [data async for data in client.stream("/v1/chat/completions", {})]
            await asyncio.sleep(0.05)
        await client.aclose()

    with scripted(script) as fake:
        asyncio.run(work(Client(Address.of(fake.url))))
    assert [one.connection for one in fake.asked] == [0, 0, 1, 1]


@pytest.mark.parametrize("headers", [{}, {"content-length": "9"}, {"transfer-encoding": "chunked"}])
def test_a_connection_that_is_reset_is_no_bug(headers: dict[str, str]) -> None:
    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.set_exception(ConnectionResetError(104, "Connection reset by peer"))
        connection: Any = SimpleNamespace(reader=reader)
        async for _ in Reply(200, headers, connection).pieces():
            pass

    with pytest.raises(ServerError, match="broke off: Connection reset by peer"):
        asyncio.run(read())


def test_a_refusal_has_its_status() -> None:
    async def work(client: Client) -> None:
        try:
            await client.post("/x", {})
        finally:
            await client.aclose()

    reply = whole({"error": {"message": "no"}}, 401)
    with pytest.raises(ServerError) as raised, scripted(cut(reply)) as fake:
        asyncio.run(work(Client(Address.of(fake.url))))
    assert raised.value.status == 401
    assert "answered 401: no; give --api-key" in str(raised.value)


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform == "win32", reason="not on this platform: pseudo-terminals")
def test_a_terminal_and_ctrl_c(tmp_path: Path) -> None:
    """Ctrl-C stops the answer, frees the sequence at the server, and the chat goes on."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("core", "native"))
    env = {**os.environ, "PYTHONPATH": paths, "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm"}
    with served_here(backend="reference", parallel=1) as running:
        words = ["-m", "camelid", "chat", "--server", f"127.0.0.1:{running.port}", "--no-history"]
        child: Any = pexpect.spawn(sys.executable, words, env={**env, "XDG_STATE_HOME": str(tmp_path)},
                                   encoding="utf-8", timeout=30, dimensions=(40, 200))  # fmt: skip
        try:
            child.expect("cria at 127.0.0.1:.*/help lists the commands")
            child.expect(">>>")
            child.send("/set ignore_eos true\r")
            child.expect("ignore_eos = True")
            child.send("Tell me a long story.\r")
            child.expect("YouYou")  # past the end token
            assert running.engine.n_running == 1
            child.send("\x03")
            child.expect("stopped; the answer so far is kept")
            running.wait_idle()
            for line, shown in (("/stats", "main: 2 messages, cria at"), ("/set max_tokens 3", "= 3")):
                child.send(f"{line}\r")
                child.expect(shown)
            child.send("and then?\r")
            child.expect(r"\x1b\[\?2004l.*\x1b\[\?2004h")  # from the end of this prompt to the next
            child.send("\x04")
            child.expect(child.delimiter)
            child.close()
            assert child.exitstatus == 0
        finally:
            child.close(force=True)
