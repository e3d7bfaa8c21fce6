"""Tests a release's wheel: `make wheel` ends with `python -m tests.native.wheel dist/camelid-*.whl`.

Checks each library's file header; then, in a new environment without a compiler on PATH, cria answers from
the installed wheel, and two concurrent processes load the library from the wheel itself.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

from camelid_native.build.targets import RELEASED, Target, this_target

ELF = b"\x7fELF\x02\x01"
MACHO = bytes.fromhex("cffaedfe")
PE = b"PE\0\0"
WASM = b"\0asm\x01\0\0\0"
# Target prefix -> the file's first bytes (for a DLL, those of its PE header), offset of its machine field.
HEADS = {"linux": (ELF, 18), "musl": (ELF, 18), "macos": (MACHO, 4), "windows": (PE, 4), "wasm": (WASM, 0)}
MACHINES = {
    ("linux", "x86_64"): 62,
    ("linux", "aarch64"): 183,
    ("musl", "x86_64"): 62,
    ("musl", "aarch64"): 183,
    ("macos", "x86_64"): 7,
    ("macos", "aarch64"): 12,
    ("windows", "x86_64"): 0x8664,
}
LOADED = """
from camelid_native.cpu.api import Library
from camelid_native.cpu.library import find
from camelid_native.build.targets import this_target
print(find())
print(Library().variant, len(this_target().variants))
"""


def complaint(target: Target, data: bytes) -> str:
    """The fault of a library's header; "" without a fault."""
    system, _, arch = target.name.partition("-")
    head, at = HEADS[system]
    start = int.from_bytes(data[0x3C:0x40], "little") if system == "windows" else 0
    data = data[start:]
    machine = int.from_bytes(data[at : at + 2], "little")
    if not data.startswith(head):
        return f"{target.name}: begins with {data[: len(head)]!r}, expected {head!r}"
    want = MACHINES.get((system, arch), machine)
    return "" if machine == want else f"{target.name}: is for machine {machine}, expected {want}"


def check_heads(wheel: Path) -> list[str]:
    """An error for each library whose header differs from its folder's name, or that is missing."""
    found: list[str] = []
    with zipfile.ZipFile(wheel) as archive:
        for target in map(Target, RELEASED):
            for name in target.system.links:
                path = f"camelid_native/lib/{target.name}/{name}"
                item = archive.getinfo(path)
                found.append(complaint(target, archive.read(path)))
                print(f"{item.file_size:9,} bytes, {item.compress_size:7,} packed  {target.name}/{name}")
    return [reason for reason in found if reason]


def start(home: Path, command: Sequence[str | Path], **setting: str) -> subprocess.Popen[str]:
    own = {"HOME": str(home), "PATH": "/nonexistent", "CAMELID_CACHE": str(home / "cache"), **setting}
    return subprocess.Popen([*map(str, command)], cwd=home, env=own, stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=300)
    if process.returncode:
        raise SystemExit(f"{process.args}: exit code {process.returncode}")
    return said


def try_installed(home: Path, wheel: Path) -> None:
    """The installed wheel answers, with kernels for this processor."""
    bin_folder = home / "venv/bin"
    venv.create(home / "venv", with_pip=True)
    subprocess.run([bin_folder / "pip", "install", "-q", wheel], check=True)
    print(ended(start(home, [bin_folder / "camelid", "run", "--backend", "cpu", "-p", "What is 2 + 3?"])))
    print(ended(start(home, [bin_folder / "python", "-c", LOADED])))


def try_zipped(home: Path, wheel: Path) -> None:
    """Two concurrent processes import the wheel as a zip; one file is unpacked."""
    command = [home / "venv/bin/python", "-c", LOADED]
    told = {ended(each) for each in [start(home, command, PYTHONPATH=str(wheel)) for _ in range(2)]}
    unpacked = [path for path in (home / "cache/native").rglob("*") if path.is_file()]
    assert len(told) == len(unpacked) == 1 and str(unpacked[0]) in told.pop(), (told, unpacked)
    print(f"out of the zip: {unpacked[0].relative_to(home)}")


def main(wheel: Path) -> int:
    """Exit code 1 if a library has the wrong header."""
    complaints = check_heads(wheel)
    for reason in complaints:
        print(f"camelid: {reason}", file=sys.stderr)
    if this_target().name in RELEASED and not complaints:
        with tempfile.TemporaryDirectory() as folder:
            try_installed(Path(folder), wheel)
            try_zipped(Path(folder), wheel)
    return int(bool(complaints))


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]).resolve()))
