"""Adapters of a server: at its start and at run time, by llama.cpp's endpoints and vLLM's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.support.random_adapters import random_adapter
from tests.support.served import Served, served
from tests.support.served_adapters import write_gguf_adapter

import camelid

PROMPT = "What is 12 plus 30? Tell me about camels and llamas, please."
ASK: dict[str, Any] = {"prompt": PROMPT, "temperature": 0, "n_predict": 12, "ignore_eos": True}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": 12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Adapters one, two and late, which is activated by two tokens of PROMPT, and one of other shapes."""
    root = tmp_path_factory.mktemp("adapters")
    with camelid.load("cria", backend="cpu", context=64) as llm:
        words = tuple(llm.tokenize(PROMPT)[18:20])
        write_gguf_adapter(root / "one.gguf", llm, random_adapter(llm, 1, scale=4.0), task="poems")
        write_gguf_adapter(root / "two.gguf", llm, random_adapter(llm, 2, rank=5))
        write_gguf_adapter(root / "late.gguf", llm, random_adapter(llm, 3, invocation=words))
        (root / "broken.gguf").write_bytes((root / "one.gguf").read_bytes()[:2000])
    return root


@pytest.fixture(scope="module")
def want(folder: Path) -> dict[str, str]:
    """The texts of the library's answers by adapter: none, each, and both."""
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 0.0}
    found: dict[str, str] = {}
    with camelid.load("cria", backend="cpu", lora=[folder / "one.gguf", folder / "two.gguf"]) as llm:
        bans: dict[str, Any] = {
            "logit_bias": [(i, False) for i in sorted(llm.tokenizer.eos_ids)]
        }  # llama.cpp's ignore_eos
        llm.load_adapter(folder / "late.gguf")
        for name, choice in {
            "": "", "one": "one", "two": "two", "late": "late", "both": {"one": 0.5, "two": -1.0},
        }.items():  # fmt: skip
            found[name] = llm.generate(PROMPT, adapter=choice, **options, **bans).text
            found[f"chat {name}"] = llm.chat(CHAT["messages"], adapter=choice, **options).text
    assert len({found[name] for name in ("", "one", "two", "late", "both")}) == 5
    assert len({found[name] for name in ("chat ", "chat one", "chat two")}) == 3
    return found


@pytest.fixture(scope="module")
def lora(folder: Path) -> Iterator[Served]:
    """A server with the adapters one and two, which act on no request by themselves."""
    flags = ["--lora", f"{folder}/one.gguf,{folder}/two.gguf:0.5", "--lora-init-without-apply"]
    more = ["--lora-dir", str(folder), "--metrics-names", "vllm", "--slot-save-path", str(folder)]
    with served("--backend", "cpu", "-np", "8", *flags, *more) as running:
        yield running


def text(server: Served, **more: Any) -> str:
    reply = server.post("/completion", {**ASK, **more})
    assert reply.status_code == 200, reply.text
    return reply.json()["content"]


def chat(server: Served, **more: Any) -> dict[str, Any]:
    reply = server.post("/v1/chat/completions", {**CHAT, **more})
    assert reply.status_code == 200, reply.text
    return reply.json()


def scaled(**scales: float) -> list[dict[str, float]]:
    return [{"id": ["one", "two"].index(name), "scale": scale} for name, scale in scales.items()]


def test_requests_list_their_adapters(lora: Served, want: dict[str, str]) -> None:
    """The native and OpenAI's dialects; an adapter that is not listed does not act."""
    assert text(lora) == text(lora, lora=[]) == text(lora, lora=scaled(one=0)) == want[""]
    assert text(lora, lora=scaled(one=1)) == want["one"]
    assert text(lora, lora=scaled(one=0.5, two=-1.0)) == want["both"]
    reply = chat(lora, lora=scaled(two=1))
    assert reply["choices"][0]["message"]["content"] == want["chat two"]
    settings = lora.post("/completion", {**ASK, "lora": scaled(two=1.5)}).json()["generation_settings"]
    assert settings["lora"] == [{"id": 1, "scale": 1.5}]


def test_an_adapter_is_a_model_by_its_name(lora: Served, want: dict[str, str]) -> None:
    """OpenAI's client, whole and streamed; the fingerprint names the adapter, by its terms and scale."""
    client = openai.OpenAI(base_url=f"{lora.url}/v1", api_key="none")
    models = {model.id: model for model in client.models.list()}
    assert models["one"].model_extra == {"root": "one.gguf", "parent": "cria"} and "two" in models
    assert client.models.retrieve("one").id == "one"
    done = client.chat.completions.create(model="one", **CHAT)
    assert done.model == "one" and done.choices[0].message.content == want["chat one"]
    base = client.chat.completions.create(model="cria", **CHAT)
    assert base.model == "cria" and base.choices[0].message.content == want["chat "]
    mark = str(done.system_fingerprint).removeprefix(str(base.system_fingerprint))
    assert mark.startswith("+one-") and "one" not in str(base.system_fingerprint)
    chunks = [*client.chat.completions.create(model="one", stream=True, **CHAT)]
    assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == want["chat one"]
    assert {each.system_fingerprint for each in chunks} == {done.system_fingerprint}
    listed = chat(lora, lora=scaled(one=1))
    assert listed["system_fingerprint"] == done.system_fingerprint and listed["model"] == "cria"
    other = chat(lora, lora=scaled(one=0.5))["system_fingerprint"]
    assert other != done.system_fingerprint and "+one-" in other
    plain = client.completions.create(model="one", prompt=PROMPT, temperature=0, max_tokens=12)
    assert str(plain.system_fingerprint) == done.system_fingerprint and plain.model == "one"
    body = lora.post("/v1/messages", {"model": "one", "max_tokens": 12, **CHAT}).json()
    assert body["model"] == "one" and body["content"][0]["text"] == want["chat one"]
    said = lora.post("/v1/responses", {"model": "one", "input": PROMPT, "temperature": 0}).json()
    assert said["model"] == "one" and said["system_fingerprint"] == done.system_fingerprint


def test_scales_of_all_other_requests(lora: Served, want: dict[str, str]) -> None:
    """llama.cpp's list of adapters, and its change."""
    first = lora.get("/lora-adapters").json()
    assert [(each["id"], each["path"], each["scale"]) for each in first] == [
        (0, "one.gguf", 0.0), (1, "two.gguf", 0.0),
    ]  # fmt: skip
    assert first[0]["task_name"] == "poems" and first[0]["prompt_prefix"] == ""
    try:
        assert lora.post("/lora-adapters", scaled(one=0.5, two=-1)).json() == {"success": True}
        assert [each["scale"] for each in lora.get("/lora-adapters").json()] == [0.5, -1.0]
        assert text(lora) == want["both"] and text(lora, lora=[]) == want[""]
        shown = lora.get("/props").json()["default_generation_settings"]["params"]["lora"]
        assert shown == [{"id": 0, "scale": 0.5}, {"id": 1, "scale": -1.0}]
        assert text(lora, model="one") == want["one"]
    finally:
        assert lora.post("/lora-adapters", []).json() == {"success": True}
    assert text(lora) == want[""]


def test_adapters_are_loaded_and_unloaded(lora: Served, want: dict[str, str]) -> None:
    """By vLLM's endpoints."""
    ask = {"lora_name": "poet", "lora_path": "one.gguf"}
    done = lora.post("/v1/load_lora_adapter", ask)
    assert (done.status_code, done.text) == (200, "Success: LoRA adapter 'poet' added successfully.")
    assert text(lora, model="poet") == want["one"]
    assert "loaded already" in refused(lora, "/v1/load_lora_adapter", ask, 400)
    other = {**ask, "lora_path": "two.gguf", "load_inplace": True}
    assert lora.post("/v1/load_lora_adapter", other).status_code == 200
    assert text(lora, model="poet") == want["two"]
    assert lora.post("/v1/unload_lora_adapter", {"lora_name": "poet"}).status_code == 200
    assert "cannot be found" in refused(lora, "/v1/unload_lora_adapter", {"lora_name": "poet"}, 404)
    ids = [each["id"] for each in lora.get("/lora-adapters").json()]
    again = lora.post("/v1/load_lora_adapter", ask)
    assert again.status_code == 200 and lora.get("/lora-adapters").json()[-1]["id"] > max(ids) + 1
    assert lora.post("/v1/unload_lora_adapter", {"lora_name": "poet"}).status_code == 200


def test_an_activated_adapter_shows_its_tokens(lora: Served, want: dict[str, str]) -> None:
    ask = {"lora_name": "late", "lora_path": "late.gguf"}
    assert lora.post("/v1/load_lora_adapter", ask).status_code == 200
    try:
        shown = lora.get("/lora-adapters").json()[-1]
        assert len(shown["alora_invocation_tokens"]) == 2 and shown["alora_invocation_string"] in PROMPT
        assert text(lora, model="late") == want["late"]
        assert "does not contain" in refused(lora, "/completion", {"prompt": "hello", "model": "late"}, 400)
        assert lora.post("/lora-adapters", [{"id": shown["id"], "scale": 1}]).status_code == 200
        assert text(lora) == want["late"]
        assert lora.post("/completion", {"prompt": "hello", "n_predict": 2}).status_code == 200
    finally:
        lora.post("/lora-adapters", [])
        lora.post("/v1/unload_lora_adapter", {"lora_name": "late"})


def refused(server: Served, path: str, body: object, status: int) -> str:
    reply = server.post(path, body)
    assert reply.status_code == status, reply.text
    return reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/completion", {**ASK, "lora": [{"id": 99, "scale": 1}]}, 400, "no adapter with the id 99"),
        ("/completion", {**ASK, "lora": [{"id": 0, "scale": "x"}]}, 400, "expected a number"),
        ("/completion", {**ASK, "lora": [{"id": 0}]}, 400, "no 'scale'"),
        ("/completion", {**ASK, "lora": [{"id": 0, "scale": 1}] * 1025}, 400, "expected 0 to 1024"),
        ("/completion", {**ASK, "model": "one", "lora": []}, 400, "is an adapter"),
        ("/lora-adapters", [{"id": 99, "scale": 1}], 400, "no adapter with the id 99"),
        ("/lora-adapters", {"id": 0, "scale": 1}, 400, "not a JSON list"),
        ("/lora-adapters", [{"id": 0, "scale": 1e300}], 400, "expected a number"),
        ("/v1/load_lora_adapter", {"lora_name": "x"}, 400, "lora_path"),
        ("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "../x.gguf"}, 404, "no adapter"),
        ("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "/etc/passwd"}, 404, "no adapter"),
        ("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "a\0b"}, 404, "no adapter"),
        ("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "x" * 4000}, 404, "no adapter"),
        ("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "broken.gguf"}, 400, "broken.gguf"),
        ("/v1/load_lora_adapter", {"lora_name": "cria", "lora_path": "one.gguf"}, 400, "is a model's"),
        ("/v1/load_lora_adapter", {"lora_name": "a,b", "lora_path": "one.gguf"}, 400, "comma"),
    ],
)
def test_refusals(lora: Served, folder: Path, path: str, body: object, status: int, words: str) -> None:
    message = refused(lora, path, body, status)
    assert words in message and str(folder) not in message


def test_slots_keep_their_adapter(lora: Served) -> None:
    """The rows of a saved slot serve requests with its adapter, and no others."""
    own = {**ASK, "prompt": "A prompt of no other test, which is long enough for several pages of rows."}

    def answer(choice: list[dict[str, float]], **more: Any) -> tuple[str, int]:
        reply = lora.post("/completion", {**own, "lora": choice, **more}).json()
        return reply["content"], reply["timings"]["cache_n"]

    def change(id: int, action: str) -> dict[str, Any]:
        reply = lora.post(f"/slots/{id}?action={action}", {"filename": "one.slot"})
        assert reply.status_code == 200, reply.text
        return reply.json()

    one = scaled(one=1)
    others = [[], scaled(one=1.5), scaled(two=1)]
    want = [answer(choice, cache_salt="own")[0] for choice in (one, *others)]
    assert len(set(want)) == 4
    assert answer(one, id_slot=7)[0] == want[0]
    assert change(7, "save")["n_saved"] > 20
    change(7, "erase")
    assert answer(one, id_slot=6) == (want[0], 0)
    change(6, "erase")
    assert change(7, "restore")["n_restored"] > 20
    assert [answer(choice) for choice in others] == [(text, 0) for text in want[1:]]
    text, n_cached = answer(one)
    assert text == want[0] and n_cached > 20


def test_a_salt_is_no_adapter(lora: Served) -> None:
    """A request cannot name the rows of an adapter by its salt."""
    assert "zero characters" in refused(lora, "/completion", {**ASK, "cache_salt": "\0adapter 00"}, 400)


def test_adapters_are_swapped_under_load(lora: Served, want: dict[str, str]) -> None:
    """Eight streams; adapters come and go, are replaced and scaled, and no stream changes."""
    found: dict[int, list[str]] = {i: [] for i in range(8)}
    errors: list[BaseException] = []
    ends = threading.Event()

    def streams(i: int) -> None:
        with openai.OpenAI(base_url=f"{lora.url}/v1", api_key="none", max_retries=0) as client:
            while len(found[i]) < 6 or not ends.is_set():
                chunks = client.chat.completions.create(
                    model="cria", stream=True, extra_body={"lora": choices[i % 3][1]}, **CHAT
                )
                parts = [each.choices[0].delta.content or "" for each in chunks if each.choices]
                found[i].append("".join(parts))

    def guarded(i: int) -> None:
        try:
            streams(i)
        except BaseException as error:
            errors.append(error)

    choices = [("chat ", []), ("chat one", scaled(one=1)), ("chat two", scaled(two=1))]
    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    try:
        for n in range(6):
            ask = {"lora_name": f"swap-{n % 2}", "lora_path": ["one.gguf", "two.gguf"][n // 2 % 2]}
            assert lora.post("/v1/load_lora_adapter", {**ask, "load_inplace": True}).status_code == 200
            assert text(lora, model=ask["lora_name"]) == want[ask["lora_path"].removesuffix(".gguf")]
            if n % 2:
                unload = {"lora_name": ask["lora_name"]}
                assert lora.post("/v1/unload_lora_adapter", unload).status_code == 200
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert not errors
    assert all(set(texts) == {want[choices[i % 3][0]]} for i, texts in found.items())
    metric = next(line for line in lora.get("/metrics").text.splitlines() if "lora_requests_info{" in line)
    assert 'max_lora="8"' in metric and 'running_lora_adapters=""' in metric


def test_adapters_of_the_start_apply(folder: Path, want: dict[str, str], tmp_path: Path) -> None:
    """As in llama.cpp; a name of one's own, a key's scope, an unloaded model, and the witness log."""
    keys = tmp_path / "keys"
    keys.write_text("user:s1:use\nboss:s2:use+admin\n")
    log = tmp_path / "log.jsonl"
    flags = ["--lora-scaled", f"{folder}/one.gguf:0.5,{folder}/two.gguf:-1", "--api-key-file", str(keys)]
    flags += ["--lora-modules", f"poet={folder}/one.gguf", "--witness", str(log), "--witness-content"]
    with served("--backend", "cpu", *flags) as server:
        user, boss = {"Authorization": "Bearer s1"}, {"Authorization": "Bearer s2"}
        answer = server.post("/completion", ASK, **user).json()
        assert answer["content"] == want["both"]
        assert server.post("/completion", {**ASK, "model": "poet"}, **user).json()["content"] == want["one"]
        assert server.post("/lora-adapters", [], **user).status_code == 403
        ask = {"lora_name": "x", "lora_path": "one.gguf"}
        assert server.post("/v1/load_lora_adapter", ask, **user).status_code == 403
        assert server.post("/v1/load_lora_adapter", ask, **boss).status_code == 501
        assert server.post("/lora-adapters", scaled(two=1), **boss).status_code == 200
        assert server.post("/models/unload", {"model": "cria"}, **boss).status_code == 200
        assert [each["scale"] for each in server.get("/lora-adapters", **user).json()] == [0.0, 1.0, 0.0]
        assert server.post("/completion", ASK, **user).json()["content"] == want["two"]
        assert server.stop() == 0
    replayed(log, folder)


def replayed(log: Path, folder: Path) -> None:
    import subprocess
    import sys

    run = [sys.executable, "-m", "camelid", "witness", "replay", str(log)]
    lora = ["--lora", f"{folder}/one.gguf", "--lora", f"{folder}/two.gguf"]
    done = subprocess.run([*run, *lora], capture_output=True, text=True, check=False)
    assert "3 equal, 0 different, 0 not computed" in done.stdout, done.stdout + done.stderr
    none = subprocess.run(run, capture_output=True, text=True, check=False)
    assert "give its file with --lora" in none.stdout and none.returncode == 1
