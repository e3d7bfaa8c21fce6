"""Failures of a fetch: access rights, missing files, the network, the disk, a wrong server."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.formats.hub_fetches import DATA, DIRECTORY, pull, refused
from tests.support.hub_server import Hub, serve_hub, sha256

from camelid.errors import ModelFormatError, RequestError


@pytest.mark.faults
@pytest.mark.parametrize("token", ["", "hf_wrong"])
def test_gated_repository_error_states_how_to_get_access(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    hub.add("o/r", {"m.gguf": DATA}, token="hf_right", is_gated=True)
    monkeypatch.setenv("HF_TOKEN", token)
    error = refused("o/r", tmp_path)
    assert error.reason == "gated"
    assert f"accept its terms at {hub.url}/o/r and set HF_TOKEN" in error.message
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert pull("o/r", tmp_path)[0].path.read_bytes() == DATA
    assert "authorization" not in hub.downloads()[-1], "the token was sent to another host"


@pytest.mark.faults
def test_private_file_with_an_unauthorized_token(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("o/r", {"m.gguf": DATA}, token="hf_right")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    error = refused("o/r", tmp_path)
    assert (error.reason, "check HF_TOKEN" in error.message) == ("refused", True)


@pytest.mark.faults
def test_missing_repositories_and_files_are_named(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA}, listed_only={"gone-Q8_0.gguf": DATA})
    for hub_id, words in {
        "o/none": f"no repository at {hub.url}",
        "o/r@v9": "no revision 'v9'",
        "o/r:Q8_0": "lists a file that is not there",
    }.items():
        error = refused(hub_id, tmp_path)
        assert (error.reason, words in error.message) == ("missing", True), error.message
    assert isinstance(refused("o/r:Q6_K", tmp_path), RequestError)


@pytest.mark.faults
def test_listing_with_outside_paths_is_refused_before_a_byte_is_fetched(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA, "../evil.json": b"x"})
    assert isinstance(refused("o/r", tmp_path / "cache"), ModelFormatError)
    assert not hub.downloads()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.faults
def test_without_network_the_cache_is_used_with_a_note(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = hub.add("o/r", {"m.gguf": DATA})
    pull("o/r", tmp_path)
    for breaks in (
        lambda: setattr(hub, "is_down", True),
        lambda: monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", closed()),
    ):
        breaks()
        fetched, said = pull("o/r", tmp_path)
        assert fetched.path.read_bytes() == DATA
        assert f"using commit {commit[:12]}, fetched earlier" in said[0]
        assert refused("o/r:Q6_K", tmp_path).reason == "network"
        assert refused("o/other", tmp_path).reason == "network"


def closed() -> str:
    """An address without a listener."""
    with serve_hub() as gone:
        return gone.url


def test_offline_sends_no_request(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("o/r", {"m.gguf": DATA})
    error = refused("o/r", tmp_path, offline=True)
    assert (error.reason, "HF_HUB_OFFLINE" in error.message) == ("offline", True)
    assert not hub.asked
    pull("o/r", tmp_path)
    n_asked = len(hub.asked)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert pull("o/r", tmp_path)[0].path.read_bytes() == DATA
    assert len(hub.asked) == n_asked
    assert "the cached part of o/r" in refused("o/r:Q6_K", tmp_path).message


def test_offline_directory_without_all_shards_is_incomplete(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", DIRECTORY)
    fetched, _ = pull("o/r", tmp_path)
    assert pull("o/r", tmp_path, offline=True)[0].files == fetched.files
    (fetched.path / "model-00002-of-00002.safetensors").unlink()
    assert "not complete" in refused("o/r", tmp_path, offline=True).message


@pytest.mark.faults
def test_missing_disk_space_is_detected_before_a_byte_is_fetched(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA})
    hub.claimed_size = 1 << 60
    error = refused("o/r", tmp_path)
    assert error.reason == "disk"
    assert f"needs {1 << 60:,} bytes more" in error.message
    assert not hub.downloads()


@pytest.mark.faults
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="not on this platform: no /dev/full")
def test_disk_that_fills_up_during_a_fetch(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA})
    (blobs := tmp_path / "models--o--r" / "blobs").mkdir(parents=True)
    (blobs / f"{sha256(DATA)}.incomplete").symlink_to("/dev/full")
    error = refused("o/r", tmp_path)
    assert error.reason == "disk"
    assert "No space left on device" in error.message
    assert "HF_HOME" in error.message


@pytest.mark.faults
def test_unwritable_cache_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {"m.gguf": DATA})
    (tmp_path / "models--o--r").write_text("in the way")
    error = refused("o/r", tmp_path)
    assert (error.reason, "cannot be written" in error.message) == ("disk", True)


@pytest.mark.faults
@pytest.mark.parametrize("body", [b"<html>not a hub</html>", b"{}", b"[]", b'{"id": "o/r", "sha": "../x"}'])
def test_response_of_another_server_is_refused(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setattr(
        "tests.support.hub_server.Handler.list_files", lambda self, name, revision: self.send(200, body, {})
    )
    assert refused("o/r", tmp_path).reason == "protocol"
