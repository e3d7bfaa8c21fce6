"""Makes quant_blocks.json: random finite blocks of every tensor type, and their float32 values.

Run through `make goldens`: it decodes the committed blocks again and compares every bit; `--write` replaces
the file. `blocks` and `values` are base64 of the bytes; values are little-endian float32, 512 for each type.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import numpy as np
from tests.golden.quant_oracle import FILE, STORED, oracle_decode, random_blocks

from camelid.formats.quants import QUANTS

N_VALUES = 512


def text(data: Any) -> str:
    return base64.b64encode(data.tobytes()).decode("ascii")


def values(name: str, blocks: Any) -> str:
    return text(oracle_decode(name, blocks).astype("<f4"))


def made() -> dict[str, dict[str, str]]:
    rows: dict[str, dict[str, str]] = {}
    for seed, name in enumerate(STORED):
        blocks = random_blocks(name, seed, n=N_VALUES // QUANTS[name].block, finite=True)
        rows[name] = {"blocks": text(blocks), "values": values(name, blocks)}
    return rows


def differing(kept: dict[str, dict[str, str]]) -> list[str]:
    names: list[str] = []
    for name in STORED:
        row = kept.get(name, {"blocks": "", "values": "absent"})
        raw = np.frombuffer(base64.b64decode(row["blocks"]), np.uint8)
        if values(name, raw.reshape(-1, QUANTS[name].block_bytes)) != row["values"]:
            names.append(name)
    return names + [name for name in kept if name not in STORED]


def main() -> int:
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(made(), indent=0) + "\n")
        return 0
    wrong = differing(json.loads(FILE.read_text()))
    print(f"{FILE.name}: {len(STORED)} types, differing: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
