"""The source of each kernel, and of each codec: what MLX generates for small cases, without running it.

`python -m tests.metal.samples FOLDER` writes them as files for Apple's compiler (`xcrun metal -c`).
"""

from __future__ import annotations

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


if __name__ == "__main__":
    print(f"{write(Path(sys.argv[1]))} sources in {sys.argv[1]}")
