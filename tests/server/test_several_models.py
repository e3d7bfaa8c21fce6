"""Several models in one server: loaded on use, within a bound, unloaded, swapped, and lost."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.gguf_files import write_tiny_llama
from tests.support.served import Served, served
from tests.support.served_here import served_here
from tests.support.standing import standing

import camelid
from camelid.errors import DeviceLostError
from camelid.loading.options import LoadOptions
from camelid.server.service.memory import need_of

PATH = "/v1/completions"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three random models, which answer differently, and a large one."""
    path = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("a", "b", "c"), start=1):
        write_tiny_llama(path / f"{name}.gguf", seed=seed)
    return path


def asked(model: str, n: int = 12) -> dict[str, Any]:
    return {"model": model, "prompt": "the llama", "max_tokens": n, "temperature": 0, "ignore_eos": True}


def text_of(reply: httpx.Response) -> str:
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["text"]


def own_text(path: Path, n: int = 12) -> str:
    """The library's answer."""
    with camelid.load(str(path), backend="cpu") as llm:
        return llm.generate("the llama", max_tokens=n, temperature=0.0, ignore_eos=True).text


def states(server: Served) -> dict[str, str]:
    return {each["id"]: each["status"]["value"] for each in server.get("/v1/models").json()["data"]}


def until(condition: Callable[[], bool], what: str, seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def need(path: Path, **options: Any) -> int:
    load = LoadOptions.of(backend="cpu", **options)
    return asyncio.run(need_of(str(path), load, with_gpus=True))


def test_models_by_name_from_every_source(folder: Path, tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    shutil.copy(folder / "c.gguf", shelf / "third.gguf")
    (shelf / "mmproj-third.gguf").write_text("no model")
    (shelf / "notes.txt").write_text("no model")
    config = tmp_path / "serve.toml"
    config.write_text(
        f"models_dir = '{shelf}'\n[models.second]\nfile = '{folder / 'b.gguf'}'\naliases = ['zwei']\n"
        "temperature = 0\nn_predict = 5\n"
    )
    with served(
        str(folder / "a.gguf"), "--backend", "cpu", "--config", str(config), "-a", "one,uno"
    ) as server:
        assert states(server) == {"one": "loaded", "second": "unloaded", "third": "unloaded"}
        for names, file in {("one", "uno", ""): "a", ("second", "zwei"): "b", ("third",): "c"}.items():
            want = own_text(folder / f"{file}.gguf")
            assert [text_of(server.post(PATH, asked(name))) for name in names] == [want] * len(names)
        assert set(states(server).values()) == {"loaded"}
        ask = {"model": "zwei", "messages": [{"role": "user", "content": "x"}], "ignore_eos": True}
        by_default = server.post("/v1/chat/completions", ask).json()
        assert by_default["usage"]["completion_tokens"] == 5
        by_default = server.post(PATH, {"model": "zwei", "prompt": "the llama", "ignore_eos": True})
        assert text_of(by_default) == own_text(folder / "b.gguf", 5)
        unknown = server.post(PATH, asked("fourth"))
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
        shutil.copy(folder / "a.gguf", shelf / "fourth.gguf")
        assert text_of(server.post(PATH, asked("fourth"))) == own_text(folder / "a.gguf")
        (shelf / "broken.gguf").write_text("GGUF? no")
        assert states(server)["broken"] == "unloaded"
        assert server.post(PATH, asked("broken")).status_code >= 400
        assert states(server)["broken"] == "failed"
        assert server.get("/health").status_code == 200  # the others serve


def test_the_longest_idle_model_makes_room_and_a_working_one_never(folder: Path) -> None:
    bound = int(2.5 * need(folder / "a.gguf"))
    others = {name: str(folder / f"{name}.gguf") for name in "bc"}
    with (
        served_here(str(folder / "a.gguf"), others=others, memory=bound) as here,
        ThreadPoolExecutor(2) as pool,
    ):
        entries = {entry.row.name: entry for entry in here.server.models}

        def ask(model: str, n: int = 12) -> httpx.Response:
            return here.http.post(PATH, json=asked(model, n))

        for name in ("b", "cria", "c"):
            text_of(ask(name))
        services = {name: entry.service for name, entry in entries.items()}
        engines = [service.host.running.engine for service in services.values() if service]
        assert [name for name, service in services.items() if service] == ["cria", "c"]
        with standing(engines[0]) as one, standing(engines[1]) as two:
            busy = [pool.submit(ask, name, 240) for name in ("cria", "c")]
            one.wait()
            two.wait()
            for _ in range(3):
                refused = ask("b")
                assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_memory_now")
                assert int(refused.headers["retry-after"]) >= 1
                assert f"of {bound:,}" in refused.json()["error"]["message"]
        assert all(text_of(each.result()) for each in busy)
        assert {name: entry.service for name, entry in entries.items()} == services
        until(lambda: ask("b").status_code == 200, "no model made room once it was idle")


def test_a_model_larger_than_the_bound_is_refused_with_both_numbers(folder: Path) -> None:
    small, large = need(folder / "a.gguf"), need(folder / "b.gguf", parallel=4)
    words = [str(folder / "a.gguf"), f"big={folder / 'b.gguf'}"]
    with served(*words, "--backend", "cpu", "--memory", str(small), "--config", bigger(folder)) as server:
        reply = server.post(PATH, asked("bigger"))
        error = reply.json()["error"]
        assert (reply.status_code, error["code"]) == (400, "model_too_large")
        assert error["need_bytes"] > error["limit_bytes"] == small >= large
        assert states(server)["a"] == "loaded"


def bigger(folder: Path) -> str:
    path = folder / "bigger.toml"
    path.write_text(f"[models.bigger]\nfile = '{folder / 'b.gguf'}'\nparallel = 64\n")
    return str(path)


def test_loading_and_unloading_need_the_scope_admin(folder: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("user:u\nchief:c:use+admin\n")
    words = [str(folder / "a.gguf"), str(folder / "b.gguf")]
    with served(*words, "--backend", "cpu", "--api-key-file", str(keys)) as server:
        user, chief = ({"authorization": f"Bearer {key}"} for key in "uc")
        for base in ("/v1/models", "/models"):
            for verb in ("load", "unload"):
                refused = server.post(f"{base}/{verb}", {"model": "b"}, **user)
                assert (refused.status_code, "scope" in refused.text) == (403, True)
        for base in ("/v1/models", "/models"):
            loaded = server.post(f"{base}/load", {"model": "b"}, **chief).json()
            assert (loaded["success"], loaded["changed"], loaded["model"]["status"]) == (
                True, True, {"value": "loaded"}
            )  # fmt: skip
            assert server.post(f"{base}/load", {"model": "b"}, **chief).json()["changed"] is False
            gone = server.post(f"{base}/unload", {"model": "b"}, **chief).json()
            assert (gone["success"], gone["model"]["status"]) == (True, {"value": "unloaded"})
            assert gone["model"]["meta"]["n_ctx"] == 256  # known without another load
        assert server.post("/models/load", {"model": "x"}, **chief).status_code == 404
        assert server.post("/models/load", {}, **chief).status_code == 400
        assert server.post("/v1/models/load", {"model": "b", "reload": 1}, **chief).status_code == 400


def test_an_idle_model_is_unloaded_and_comes_back(folder: Path) -> None:
    with served(str(folder / "a.gguf"), "--backend", "cpu", "--keep-alive", "2s") as server:
        until(lambda: states(server) == {"a": "unloaded"}, "it was not unloaded")
        assert server.get("/health").status_code == 200
        want = own_text(folder / "a.gguf", 200)
        assert text_of(server.post(PATH, asked("a", 200))) == want
        assert states(server) == {"a": "loaded"}
        until(lambda: states(server) == {"a": "unloaded"}, "it was not unloaded again")


def test_lazy_loads_nothing_before_the_first_request(folder: Path) -> None:
    with served(str(folder / "a.gguf"), "--backend", "cpu", "--lazy") as server:
        assert states(server) == {"a": "unloaded"}
        with ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(lambda _: server.post(PATH, asked("a")), range(4)))
        assert len({text_of(reply) for reply in replies}) == 1


class Load:
    """Clients that ask without a pause until they are told to stop."""

    def __init__(self, server: Served, n: int) -> None:
        self._server, self._over = server, threading.Event()
        self._pool = ThreadPoolExecutor(n)
        self._texts: list[list[str]] = [[] for _ in range(n)]
        self._results = [self._pool.submit(self._ask, texts) for texts in self._texts]

    def _ask(self, texts: list[str]) -> list[str]:
        while not self._over.is_set():
            chunks = list(self._server.stream(PATH, {**asked("a", 40), "stream": True}))
            assert chunks[-1]["choices"][0]["finish_reason"] == "length"
            texts.append("".join(chunk["choices"][0]["text"] for chunk in chunks))
        return texts

    def wait_for(self, text: str) -> None:
        """Waits until each client has got a text."""

        def is_there() -> bool:
            for ended in filter(Future.done, self._results):
                ended.result()  # raises the client's error
            return all(text in texts for texts in self._texts)

        until(is_there, "a client did not get the text")

    def stop(self) -> list[list[str]]:
        """The texts that each client got, in order. Raises the first client's error."""
        self._over.set()
        return [result.result(60) for result in self._results]


@pytest.mark.slow
@pytest.mark.parametrize("by_signal", [False, True])
def test_a_swap_under_load_loses_no_request(folder: Path, tmp_path: Path, by_signal: bool) -> None:
    if by_signal and sys.platform == "win32":
        pytest.skip("no SIGHUP")
    file = tmp_path / "a.gguf"
    shutil.copy(folder / "a.gguf", file)
    old, new = own_text(folder / "a.gguf", 40), own_text(folder / "b.gguf", 40)
    assert old != new
    with served(str(file), "--backend", "cpu", "--parallel", "4") as server:
        load = Load(server, 4)
        load.wait_for(old)
        replaced = tmp_path / "next"
        shutil.copy(folder / "b.gguf", replaced)
        replaced.replace(file)
        if by_signal:
            server.process.send_signal(signal.SIGHUP)
        else:
            reply = server.post("/v1/models/load", {"model": "a", "reload": True}).json()
            assert (reply["success"], reply["changed"]) == (True, True)
        until(lambda: text_of(server.post(PATH, asked("a", 40))) == new, "the new file is not used")
        load.wait_for(new)
        for texts in load.stop():
            assert set(texts) <= {old, new}
            assert (texts[0], texts[-1]) == (old, new)
            assert texts == sorted(texts, key=lambda text: text == new)  # never back to the old one
        again = server.post("/v1/models/load", {"model": "a", "reload": True}).json()
        assert again["changed"] is False


def test_a_file_that_was_replaced_by_rubbish_leaves_the_old_model(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    shutil.copy(folder / "a.gguf", file)
    with served(str(file), "--backend", "cpu") as server:
        want = text_of(server.post(PATH, asked("a")))
        replaced = tmp_path / "next"
        replaced.write_text("rubbish")
        replaced.replace(file)
        assert server.post("/v1/models/load", {"model": "a", "reload": True}).status_code >= 400
        assert text_of(server.post(PATH, asked("a"))) == want
        assert server.get("/health").status_code == 200


def test_a_missing_file_is_named_without_its_folder(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    shutil.copy(folder / "a.gguf", file)
    with served(str(file), "--backend", "cpu", "--lazy") as server:
        file.unlink()
        refused, listed = server.post(PATH, asked("a")), server.get("/v1/models")
    assert (refused.status_code, listed.status_code) == (500, 200)
    for reply in (refused, listed):
        assert "a.gguf: there is no such file" in reply.text
        assert str(tmp_path) not in reply.text


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("large") / "large.gguf"
    write_tiny_llama(path, seed=9, n_layers=4, hidden=1024, n_heads=16, ffn=4096, type="f16")
    yield path
    path.unlink()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_unloading_gives_memory_back(large: Path) -> None:
    size = need(large)
    assert size > 100e6
    with served("cria", str(large), "--backend", "cpu") as server:
        pid = server.process.pid
        before = resident_bytes(pid)
        for _ in range(3):
            text_of(server.post(PATH, asked("large", 2)))
            loaded = resident_bytes(pid)
            assert loaded - before > 0.7 * size
            assert server.post("/v1/models/unload", {"model": "large"}).status_code == 200
            after = resident_bytes(pid)
            assert after - before < 0.15 * size, f"{before:,} before, {loaded:,} loaded, {after:,} after"


def test_a_lost_device_is_replaced_and_health_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with served_here() as here:
        want = text_of(here.http.post(PATH, json=asked("cria")))
        entry = here.server.models.default
        assert entry.service is not None
        first = entry.service

        def run(*_: object) -> object:
            raise DeviceLostError("cpu: gone; load the model again", backend="cpu")

        monkeypatch.setattr(first.host.running.backend, "run", run)
        lost = here.http.post(PATH, json=asked("cria"))
        assert (lost.status_code, lost.json()["error"]["code"]) == (503, "device_lost")
        assert lost.headers["retry-after"] == "2"
        health = here.http.get("/health")
        if entry.service is first:  # else the watch was quicker
            assert (health.status_code, "the engine of cria failed" in health.text) == (503, True)
        assert text_of(here.http.post(PATH, json=asked("cria"))) == want
        assert entry.service is not first
        assert here.http.get("/health").status_code == 200


def test_an_engine_whose_work_ends_is_replaced_without_a_request() -> None:
    with served_here() as here:
        entry = here.server.models.default
        assert entry.service is not None
        first = entry.service

        def bug(_: object) -> None:
            raise ArithmeticError("planted")

        first.host.post(bug)
        until(lambda: here.http.get("/health").status_code == 503, "health did not notice")
        until(lambda: here.http.get("/health").status_code == 200, "the engine was not replaced")
        assert entry.service is not first
        assert text_of(here.http.post(PATH, json=asked("cria")))
