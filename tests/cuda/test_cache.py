"""The cache of compiled modules, over a compiler that counts its calls."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from camelid.errors import BackendError
from camelid_native.cuda.cache import CachedCompiler
from camelid_native.cuda.compiler import Module

NORM, STATE = Module("norm"), Module("state")


@dataclass
class Counting:
    """A compiler whose image is its inputs."""

    name: str = "fake 1.0"
    options: tuple[str, ...] = ("-O3",)
    size: int = 0
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def image(self, module: Module, arch: str) -> bytes:
        self.calls.append((module.file, arch))
        return f"{self.name} {module.file} {arch}".encode().ljust(self.size, b".")


class Broken(Counting):
    def image(self, module: Module, arch: str) -> bytes:
        raise BackendError("line 3: error")


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    inner = Counting()
    first = CachedCompiler(inner, tmp_path / "new").image(NORM, "sm_90")
    assert CachedCompiler(inner, tmp_path / "new").image(NORM, "sm_90") == first == b"fake 1.0 norm sm_90"
    assert inner.calls == [("norm", "sm_90")]
    assert [path.suffix for path in entries(tmp_path / "new")] == [".bin"]


@pytest.mark.parametrize(
    ("inner", "module", "arch"),
    [
        (Counting(), NORM, "sm_80"),
        (Counting(), STATE, "sm_90"),
        (Counting(), Module("norm", defines=(("WIDE", "1"),)), "sm_90"),
        (Counting(name="fake 1.1"), NORM, "sm_90"),
        (Counting(options=("-O2",)), NORM, "sm_90"),
    ],
    ids=["arch", "file", "macro", "version", "options"],
)
def test_everything_that_an_image_depends_on_is_in_its_key(
    tmp_path: Path, inner: Counting, module: Module, arch: str
) -> None:
    CachedCompiler(Counting(), tmp_path).image(NORM, "sm_90")
    CachedCompiler(inner, tmp_path).image(module, arch)
    assert len(inner.calls) == 1
    assert len(entries(tmp_path)) == 2


@pytest.mark.parametrize(
    "damage", [lambda held: held[:-1], lambda held: b"", lambda held: held[:40] + b"x" + held[41:]]
)
def test_a_damaged_entry_is_compiled_anew(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    inner = Counting()
    cached = CachedCompiler(inner, tmp_path)
    image = cached.image(NORM, "sm_90")
    (path,) = entries(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert cached.image(NORM, "sm_90") == image
    assert path.read_bytes() == hashlib.sha256(image).digest() + image
    assert len(inner.calls) == 2


def test_the_entries_that_were_used_longest_ago_go(tmp_path: Path) -> None:
    inner = Counting(size=1000)
    cached = CachedCompiler(inner, tmp_path, most_bytes=3200)
    for i, arch in enumerate(("a", "b", "c")):
        cached.image(NORM, arch)
        for path in entries(tmp_path):
            if arch.encode() in path.read_bytes()[32:]:
                os.utime(path, (1000 + i, 1000 + i))
    cached.image(NORM, "a")
    cached.image(NORM, "d")
    assert len(entries(tmp_path)) == 3
    inner.calls.clear()
    for arch in ("a", "c", "d"):
        cached.image(NORM, arch)
    assert not inner.calls
    cached.image(NORM, "b")
    assert inner.calls == [("norm", "b")]


def test_an_image_beyond_the_bound_is_kept_alone(tmp_path: Path) -> None:
    inner = Counting(size=1000)
    cached = CachedCompiler(inner, tmp_path, most_bytes=10)
    for arch in ("a", "b", "b"):
        cached.image(NORM, arch)
    assert [arch for _, arch in inner.calls] == ["a", "b"]
    assert len(entries(tmp_path)) == 1


def test_a_folder_that_cannot_be_written_costs_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    inner = Counting()
    cached = CachedCompiler(inner, tmp_path / "file" / "cuda")
    with caplog.at_level(logging.WARNING, "camelid.cuda"):
        images = [cached.image(NORM, "sm_90"), cached.image(NORM, "sm_90"), cached.image(STATE, "sm_90")]
    assert len(caplog.records) == 1
    assert images[0] == images[1] == b"fake 1.0 norm sm_90"


def test_a_full_disk_leaves_no_part_of_an_entry(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with caplog.at_level(logging.WARNING, "camelid.cuda"):
        assert CachedCompiler(Counting(), tmp_path).image(NORM, "sm_90") == b"fake 1.0 norm sm_90"
    assert entries(tmp_path) == []
    assert "No space left" in caplog.text


def test_a_user_without_a_home_directory_compiles_each_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("camelid_native.cuda.cache.cache_folder", homeless)
    inner = Counting()
    cached = CachedCompiler(inner)
    assert cached.image(NORM, "sm_90") == cached.image(NORM, "sm_90")
    assert len(inner.calls) == 2
    assert len(caplog.records) == 1


def test_the_folder_is_the_user_s_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMELID_CACHE", str(tmp_path))
    CachedCompiler(Counting()).image(NORM, "sm_90")
    (path,) = entries(tmp_path / "cuda")
    assert path.name.startswith("norm-")


def test_errors_of_the_compiler_pass_and_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="line 3"):
        CachedCompiler(Broken(), tmp_path / "cuda").image(NORM, "sm_90")
    assert not (tmp_path / "cuda").exists()
