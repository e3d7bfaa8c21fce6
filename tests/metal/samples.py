"""The source of each kernel, and of each codec: what MLX generates for small cases, without running it.

`python -m tests.metal.samples FOLDER` writes them as files; with `--compile` Apple's compiler reads each.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.metal.on_rig import METAL, decoded, result
from tests.metal.rig import Rig, Source

from camelid.backends.common.codecs import CODECS
from camelid.backends.proof.cases import all_cases
from camelid.formats.quants import quant

TYPE = "q8_0"
MANY = 20
NAMES = "#include <metal_stdlib>\ntypedef half float16_t;\n"  # of types, which MLX defines before each source


def sources() -> Mapping[str, Source]:
    """Sources by kernel and type, one of each."""
    found: dict[str, Source] = {}
    for weight_type in CODECS:
        rig, block = Rig(runs=False), quant(weight_type)
        n = max(8, block.block)
        decoded(rig, weight_type, bytes(n // block.block * block.block_bytes), n)
        found |= {f"{one.name} {weight_type}": one for one in rig.sources.values()}
    rig = Rig(runs=False)
    for op in METAL:
        for planned in all_cases([TYPE], only=op):
            case = planned.made().case
            for spare in (0, MANY):  # kernels of few rows, and of many
                result(replace(case, spare=spare), rig)
    return found | {f"{one.name} {TYPE}": one for one in rig.sources.values()}


def write(folder: Path) -> int:
    """Writes all sources to a folder; returns their number."""
    folder.mkdir(parents=True, exist_ok=True)
    found = sources()
    for name, source in found.items():
        (folder / f"{name.replace(' ', '_')}.metal").write_text(NAMES + source.text)
    return len(found)


def compile_all(folder: Path) -> list[str]:
    """Compiles the files of a folder with Apple's compiler; returns the names of those that it refuses."""
    command = ("xcrun", "-sdk", "macosx", "metal", "-c", "-o", "/dev/null")
    files = sorted(folder.glob("*.metal"))
    return [file.name for file in files if subprocess.run([*command, str(file)], check=False).returncode]


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0])
    print(f"{write(folder)} sources in {folder}")
    if "--compile" not in arguments:
        return 0
    refused = compile_all(folder)
    print(f"refused: {', '.join(refused) or 'none'}")
    return 1 if refused else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
