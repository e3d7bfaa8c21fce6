"""Fetching from a hub: the real huggingface_hub client against a hub on loopback."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

import huggingface_hub
import pytest
from tests.model.test_shards import split
from tests.support.formats.hub_fetches import DATA, DIRECTORY, partials, pull, refused
from tests.support.hub_server import Hub, sha256

import camelid
from camelid.errors import FetchError, ModelFormatError, RequestError
from camelid.formats.hub.fetch import afetch, fetch
from camelid.formats.hub.ids import HubId
from camelid.loading.model_file import fetch_model

CRIA = Path(camelid.__file__).parent / "data" / "cria.gguf"
THREE = [f"Q8_0/m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]


@pytest.mark.conformance
def test_fetched_file_is_in_the_shared_cache(hub: Hub, tmp_path: Path) -> None:
    commit = hub.add("o/r", {"m-Q8_0.gguf": DATA, "README.md": b"x"})
    heard: list[tuple[str, int, int]] = []
    fetched, said = pull("o/r:q8_0", tmp_path, progress=lambda *words: heard.append(words))
    assert fetched.path.read_bytes() == DATA
    assert (fetched.commit, fetched.n_bytes, said) == (commit, len(DATA), [])
    assert heard[-1] == ("m-Q8_0.gguf", len(DATA), len(DATA))
    assert [done for _, done, _ in heard] == sorted(done for _, done, _ in heard)
    theirs = huggingface_hub.hf_hub_download("o/r", "m-Q8_0.gguf", cache_dir=tmp_path, local_files_only=True)
    assert Path(theirs) == fetched.path
    assert not partials(tmp_path)


@pytest.mark.conformance
def test_file_of_another_tool_is_not_fetched_again(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m-Q8_0.gguf": DATA})
    theirs = huggingface_hub.hf_hub_download("o/r", "m-Q8_0.gguf", cache_dir=tmp_path, endpoint=hub.url)
    assert len(hub.downloads()) == 1
    fetched, _ = pull("o/r", tmp_path)
    assert fetched.path == Path(theirs)
    assert len(hub.downloads()) == 1


def test_directory_of_safetensors(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", DIRECTORY)
    heard: list[tuple[str, int, int]] = []
    fetched, _ = pull("o/r", tmp_path, progress=lambda *words: heard.append(words))
    names = {path.name for path in fetched.path.rglob("*")}
    assert names == {path.name for path in fetched.files}
    assert "pytorch_model.bin" not in names
    assert all((fetched.path / name).read_bytes() == DIRECTORY[name] for name in names)
    assert heard[-1][1:] == (fetched.n_bytes, fetched.n_bytes)


def test_model_in_parts_is_one_choice(hub: Hub, tmp_path: Path) -> None:
    parts = {name: DATA[i:] for i, name in enumerate(THREE)}
    hub.add("o/r", {**parts, "m-Q6_K.gguf": DATA[:2000]})
    heard: list[tuple[str, int, int]] = []
    fetched, _ = pull("o/r:q8_0", tmp_path, progress=lambda *words: heard.append(words))
    assert fetched.path.as_posix().endswith(THREE[0])
    assert [path.read_bytes() for path in fetched.files] == list(parts.values())
    assert heard[-1] == (THREE[2], 3 * len(DATA) - 3, 3 * len(DATA) - 3)
    assert {of for _, _, of in heard} == {fetched.n_bytes}
    assert pull(f"o/r:{THREE[1]}", tmp_path, offline=True)[0].files == fetched.files
    assert len(hub.downloads()) == 3


@pytest.mark.faults
def test_parts_that_a_repository_lacks_are_named_before_a_byte_is_fetched(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {THREE[1]: DATA})
    error = refused("o/r", tmp_path)
    assert error.reason == "missing"
    assert f"lacks {THREE[0]}, {THREE[2]} of the model's 3 files" in error.message
    assert not hub.downloads()


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_offline_model_without_all_parts_is_incomplete(hub: Hub, tmp_path: Path, gone: int) -> None:
    hub.add("o/r", {name: DATA[i:] for i, name in enumerate(THREE)})
    fetched, _ = pull("o/r", tmp_path)
    fetched.files[gone].unlink()
    assert "not complete" in refused("o/r:Q8_0", tmp_path, offline=True).message
    assert pull("o/r", tmp_path)[0].files == fetched.files


def test_default_quant_is_reported(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m-Q8_0.gguf": DATA, "m-F16.gguf": DATA + b"x"})
    fetched, said = pull("o/r", tmp_path)
    assert fetched.path.name == "m-Q8_0.gguf"
    assert said == ["o/r has no Q4_K_M; using m-Q8_0.gguf"]
    with pytest.warns(UserWarning, match="using m-Q8_0.gguf"):
        fetch("o/r", cache_dir=tmp_path)


def test_cut_connection_is_resumed_within_one_fetch(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA})
    hub.cut_after = [200_000, 100_000]
    fetched, _ = pull("o/r", tmp_path)
    assert fetched.path.read_bytes() == DATA
    assert [asked.get("range") for asked in hub.downloads()] == [None, "bytes=196608-", "bytes=262144-"]


def test_stopped_fetch_leaves_a_partial_file_that_the_next_one_resumes(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA})

    def stop(what: str, done: int, of: int) -> None:
        if done >= 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("o/r", cache_dir=tmp_path, progress=stop)
    (partial,) = partials(tmp_path)
    held = partial.stat().st_size
    assert 0 < held < len(DATA)
    heard: list[int] = []
    fetched, _ = pull("o/r", tmp_path, progress=lambda _, done, __: heard.append(done))
    assert hub.downloads()[-1]["range"] == f"bytes={held}-"
    assert fetched.path.read_bytes() == DATA
    assert heard[0] > held
    assert not partials(tmp_path)


def test_server_without_ranges_restarts_the_download(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA})
    hub.cut_after, hub.ignores_range = [200_000], True
    assert pull("o/r", tmp_path)[0].path.read_bytes() == DATA


def test_oversized_partial_file_is_restarted(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA})
    (blobs := tmp_path / "models--o--r" / "blobs").mkdir(parents=True)
    (blobs / f"{sha256(DATA)}.incomplete").write_bytes(DATA + b"more")
    assert pull("o/r", tmp_path)[0].path.read_bytes() == DATA


@pytest.mark.faults
def test_connection_without_data_is_abandoned(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)
    hub.add("o/r", {"m.gguf": DATA})
    hub.cut_after = [70_000] + [0] * 50
    error = refused("o/r", tmp_path)
    assert isinstance(error, FetchError)
    assert error.reason == "network"
    assert len(hub.downloads()) == 6  # one that delivered bytes, five that did not
    assert partials(tmp_path)[0].stat().st_size == 1 << 16  # whole chunks


@pytest.mark.faults
def test_damaged_download_is_deleted_and_named(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA})
    hub.flip = 1
    error = refused("o/r", tmp_path)
    assert error.reason == "corrupt"
    assert "m.gguf arrived damaged and was deleted: its sha256 is" in error.message
    assert not partials(tmp_path)
    assert not list(tmp_path.glob("models--*/snapshots/*/*"))
    hub.flip = -1
    assert pull("o/r", tmp_path)[0].path.read_bytes() == DATA


@pytest.mark.faults
def test_file_of_unlisted_size_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA})
    hub.claimed_size = len(DATA) + 5
    error = refused("o/r", tmp_path)
    assert (error.reason, "incomplete or damaged" in error.message) == ("corrupt", True)


@pytest.mark.faults
def test_damaged_partial_file_is_detected(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA})
    (blobs := tmp_path / "models--o--r" / "blobs").mkdir(parents=True)
    (blobs / f"{sha256(DATA)}.incomplete").write_bytes(bytes(1000))
    assert refused("o/r", tmp_path).reason == "corrupt"
    assert pull("o/r", tmp_path)[0].path.read_bytes() == DATA


@pytest.mark.faults
@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_truncated_cached_file_is_fetched_again(hub: Hub, tmp_path: Path, name: str) -> None:
    hub.add("o/r", {"model.safetensors": DATA, "config.json": b"{   }"})
    path = pull("o/r", tmp_path)[0].path / name
    whole = path.read_bytes()
    path.resolve().write_bytes(whole[:3])
    pull("o/r", tmp_path)
    assert path.read_bytes() == whole


@pytest.mark.faults
def test_a_link_out_of_the_cache_is_replaced_and_its_target_kept(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA})
    path = pull("o/r", tmp_path / "cache")[0].path
    (own := tmp_path / "own.gguf").write_bytes(b"somebody's own")
    path.unlink()
    path.symlink_to(own)
    assert pull("o/r", tmp_path / "cache")[0].path.read_bytes() == DATA
    assert own.read_bytes() == b"somebody's own"


@pytest.mark.parametrize("revision", ["../x", "a/../b", "-x", "/x", "x/", "a\\b"])
def test_invalid_revision_is_refused(revision: str) -> None:
    with pytest.raises(RequestError, match="revision"):
        fetch(f"a/b@{revision}")


def test_revisions_are_branches_tags_and_commits(hub: Hub, tmp_path: Path) -> None:
    old = hub.add("o/r", {"m.gguf": DATA}, revision="v1")
    new = hub.add("o/r", {"m.gguf": DATA[::-1]})
    wanted = {"v1": DATA, old: DATA, "main": DATA[::-1], new: DATA[::-1]}
    for revision, data in wanted.items():
        assert pull(f"o/r@{revision}", tmp_path)[0].path.read_bytes() == data
        assert pull(f"o/r@{revision}", tmp_path, offline=True)[0].path.read_bytes() == data


def test_moved_branch_is_fetched_again(hub: Hub, tmp_path: Path) -> None:
    first = hub.add("o/r", {"m.gguf": DATA})
    assert pull("o/r", tmp_path)[0].commit == first
    second = hub.add("o/r", {"m.gguf": DATA[::-1]})
    assert pull("o/r", tmp_path)[0].path.read_bytes() == DATA[::-1]
    assert pull("o/r", tmp_path, offline=True)[0].commit == second


@pytest.mark.slow
def test_concurrent_fetches_download_once(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA})
    hub.delay_s = 0.02
    threads = [
        threading.Thread(target=fetch, args=("o/r",), kwargs={"cache_dir": tmp_path}) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert pull("o/r", tmp_path, offline=True)[0].path.read_bytes() == DATA
    assert len(hub.downloads()) == 1


@pytest.mark.e2e
def test_load_by_hub_id(hub: Hub, default_cache: Path) -> None:
    hub.add("o/cria", {"cria-Q8_0.gguf": CRIA.read_bytes()})
    heard: list[str] = []
    messages = [{"role": "user", "content": "What is 12 plus 30?"}]
    with camelid.load(
        "o/cria:Q8_0", backend="reference", progress=lambda what, *_: heard.append(what)
    ) as llm:
        answer = llm.chat(messages, max_tokens=8).text
    with camelid.load("cria", backend="reference") as llm:
        assert answer == llm.chat(messages, max_tokens=8).text
    assert "cria-Q8_0.gguf" in heard
    assert camelid.load_tokenizer("o/cria:Q8_0").encode("the llama") == llm.tokenize("the llama")
    assert len(hub.downloads()) == 1


@pytest.mark.e2e
def test_load_a_model_in_parts_by_hub_id(hub: Hub, default_cache: Path, tmp_path: Path) -> None:
    (parts := tmp_path / "parts").mkdir()
    hub.add("o/cria", {path.name: path.read_bytes() for path in split(CRIA, parts)})
    found = [answer(model) for model in ("cria", "o/cria", "o/cria:m-00002-of-00003.gguf")]
    assert found[0] == found[1] == found[2]
    assert len(hub.downloads()) == 3


def answer(model: str) -> str:
    with camelid.load(model, backend="reference") as llm:
        return llm.generate("the llama", max_tokens=8, temperature=0.0).text


def test_local_file_takes_precedence_over_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "r").write_bytes(b"not a model")
    with pytest.raises(ModelFormatError):
        camelid.load("o/r")
    assert not hub.asked


def test_event_loop_runs_while_a_model_is_fetched(hub: Hub, default_cache: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA})
    hub.delay_s = 0.1
    heard: list[bool] = []

    async def both() -> None:
        fetching = asyncio.ensure_future(fetch_model("o/r"))
        while not fetching.done():
            heard.append(bool(hub.downloads()))
            await asyncio.sleep(0.005)
        assert Path(str(await fetching)).read_bytes() == DATA

    asyncio.run(both())
    assert heard.count(True) > 5


def test_cancelled_fetch_stops(hub: Hub, default_cache: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA})
    hub.delay_s = 2.0  # before each of 8 parts

    async def cancel() -> None:
        fetching = asyncio.ensure_future(afetch(HubId("o", "r")))
        while not partials(default_cache):
            await asyncio.sleep(0.005)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching

    asyncio.run(cancel())  # waits for the thread
    assert partials(default_cache)[0].stat().st_size < len(DATA)


def test_page_cannot_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "emscripten")
    with pytest.raises(RequestError, match="a page cannot fetch"):
        asyncio.run(fetch_model("o/r"))
