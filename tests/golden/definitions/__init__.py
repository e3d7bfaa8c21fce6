"""Float64 definitions of architectures that transformers has no class for, by model_type.

Each is written from its paper and the published modelling facts, in NumPy, and shares no code with Camelid.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.golden.definitions.decoder import Decoder
from tests.golden.definitions.encoders import ENCODERS
from tests.golden.definitions.gpts import GPTS
from tests.golden.definitions.llamas import LLAMAS
from tests.golden.definitions.mixtures import MIXTURES
from tests.golden.definitions.recurrent import RECURRENT
from tests.golden.definitions.rwkv6 import RWKV6
from tests.golden.definitions.varied import VARIED

DEFINITIONS: dict[str, Callable[..., Decoder]] = {
    **LLAMAS, **GPTS, **MIXTURES, **VARIED, **ENCODERS, **RECURRENT, **RWKV6,
}  # fmt: skip
