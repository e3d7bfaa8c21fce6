"""Files of the safetensors writer: the safetensors package reads them; invalid input is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import deserialize

from camelid.errors import ModelFormatError
from camelid.formats.safetensors import open_safetensors
from camelid.formats.safetensors_writer import SafeTensorOut, TensorsOut, write_safetensors
from camelid.formats.whole_directory import whole_directory

VALUES = {
    "a.scales": ("u8", (3,), b"\1\2\3"),
    "a.weight": ("u32", (3, 2), bytes(range(24))),
    "gain": ("bf16", (2,), b"\x80\x3f\x80\x3f"),
    "none": ("bf16", (0, 4), b""),
}


def tensor(name: str) -> SafeTensorOut:
    kind, shape, _ = VALUES[name]
    return SafeTensorOut(name, kind, shape)


def rows(*names: str, n: int = 1) -> TensorsOut:
    """Tensors together, in n chunks of as many bytes each."""

    def piece(name: str, i: int) -> bytes:
        data = VALUES[name][2]
        each = len(data) // n
        return data[i * each : (i + 1) * each]

    return TensorsOut(
        tuple(tensor(name) for name in names),
        lambda: (tuple(piece(name, i) for name in names) for i in range(n)),
    )


def test_tensors_written_together_are_read_apart(tmp_path: Path) -> None:
    said: list[tuple[str, int, int]] = []
    groups = [rows("a.scales", "a.weight", n=3), rows("gain"), rows("none")]
    path = tmp_path / "x.safetensors"
    write_safetensors(path, groups, metadata={"format": "mlx"}, progress=lambda *words: said.append(words))
    read = deserialize(path.read_bytes())
    assert {n: (t["dtype"].lower(), tuple(t["shape"]), bytes(t["data"])) for n, t in read} == VALUES
    header = open_safetensors(path)
    assert header.metadata == {"format": "mlx"}
    widths = {"u32": 4, "bf16": 2, "u8": 1}
    assert all(t.offset % widths[t.type] == 0 for t in header.tensors.values())
    assert said[2] == ("a.scales", 27, 31) and said[-1][1:] == (31, 31)


def too_few() -> list[TensorsOut]:
    return [TensorsOut((tensor("gain"),), lambda: [(b"\0",)])]


def too_many() -> list[TensorsOut]:
    return [TensorsOut((tensor("gain"),), lambda: [(bytes(6),)])]


def twice() -> list[TensorsOut]:
    return [rows("gain"), rows("gain")]


def unprintable() -> list[TensorsOut]:
    return [TensorsOut((SafeTensorOut("a\n", "u8", (0,)),), list)]


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (too_few, r"gain: its chunks have 1 bytes, but bf16 of shape \(2,\) needs 4"),
        (too_many, "gain: its chunks have 6 bytes, but .* needs 4"),
        (twice, "'gain' occurs twice"),
        (unprintable, "must be 1 to 255 printable characters"),
    ],
)
def test_invalid_tensors_are_refused(
    groups: Callable[[], list[TensorsOut]], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelFormatError, match=f"x.safetensors: .*{words}"):
        write_safetensors(tmp_path / "x.safetensors", groups(), metadata={})


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match="cannot be written: No such file or directory"):
        write_safetensors(tmp_path / "no" / "x", [], metadata={})
    (tmp_path / "x").write_text("kept")
    with pytest.raises(ModelFormatError, match="cannot be written: File exists"):
        write_safetensors(tmp_path / "x", [], metadata={})
    assert (tmp_path / "x").read_text() == "kept"


def test_a_directory_appears_when_complete(tmp_path: Path) -> None:
    target = tmp_path / "made"
    with whole_directory(target) as part:
        (part / "file").write_text("x")
        assert not target.exists() and part.parent == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert (target / "file").read_text() == "x"


def test_a_target_that_came_in_between_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "made"
    with (
        pytest.raises(ModelFormatError, match=r"made: cannot be written: .*not empty"),
        whole_directory(target),
    ):
        target.mkdir()
        (target / "file").write_text("kept")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert (target / "file").read_text() == "kept"
