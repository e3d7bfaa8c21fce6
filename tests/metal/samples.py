"""The source of each kernel, and of each codec: what MLX generates for small cases, without running it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tests.metal.on_rig import METAL, RigBackend, decoded
from tests.metal.rig import Rig, Source

from camelid.backends.common.codecs import CODECS
from camelid.backends.common.op_runner import run_case
from camelid.backends.proof.cases import all_cases
from camelid.formats.quants import quant

TYPE = "q8_0"


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
            asyncio.run(run_case(RigBackend(rig), planned.made().case))
    return found | {f"{one.name} {TYPE}": one for one in rig.sources.values()}
