"""One planted error per shader file: the parity gate must see each, or it guards nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.parity.adapters import need_driver
from tests.parity.cases import OP_CASES
from tests.parity.compare import TOLERANCE, errors, reference_result, run_on

from camelid import shaders
from camelid.backends.base import OpenSpec
from camelid.backends.single import OpCase
from camelid.backends.webgpu.backend import open_backend
from camelid.backends.webgpu.kernels import KERNELS
from camelid.backends.webgpu.layouts import LAYOUTS

pytestmark = pytest.mark.parity

MUTATIONS: dict[str, tuple[str, str]] = {
    "prelude": ("step[at + 3u], step[at + 4u]", "step[at + 3u] + 1u, step[at + 4u]"),
    "reduce": ("width = LANES / 2u", "width = LANES / 4u"),
    "codec_f32": ("weights[at + 7u]", "weights[at + 6u]"),
    "codec_f16": ("weights[at + 3u]", "weights[at + 2u]"),
    "codec_q8_0": ("block % 2u == 1u", "block % 2u == 0u"),
    "codec_q4_0": ("- 8.0;", "- 7.0;"),
    "halves": ("half_at(i + 1u) << 16u", "half_at(i + 2u) << 16u"),
    "repack_q8_0": ("1u + 2u * word", "2u * word"),
    "repack_q4_0": ("4u * (unit / 2u)", "0u * (unit / 2u)"),
    "matvec": ("dot(w[1], x[at + 1u])", "dot(w[1], x[at])"),
    "linear": ("total(slot, t)", "total(slot, t) * 1.001"),
    "linear_glu": ("total(pair + pairs, t)", "total(pair, t)"),
    "act_silu": ("exp(-v)", "exp(v)"),
    "embed": ("min(token_of(row_at(group.x)), VOCAB - 1u)", "0u"),
    "norm": ("f32(C) + EPS", "f32(C) + EPS * 300.0"),
    "add_norm": ("let sum = x[at + c] + r[start + c]", "let sum = x[at + c] - r[start + c]"),
    "add": ("+= r[id.y", "-= r[id.y"),
    "glu": ("act(g) *", "g *"),
    "rope": ("a.x * b.y + a.y * b.x", "a.x * b.y - a.y * b.x"),
    "tables": ("step[at + 2u]] =", "0u] ="),
    "copy": ("step[at + 3u] * WIDTH", "WIDTH"),
    "kv_write": ("row.state_row % UNIT_ROWS", "0u"),
    "attention": ("weight_sum *= fade", "weight_sum *= 1.0"),
    "gather_rows": ("3u * id.y", "3u"),
    "sample": ("b.id < a.id", "b.id > a.id"),
}


def cases_with(name: str) -> list[OpCase]:
    """The cases whose modules join this shader, as far as a mutation needs them."""
    if name in {"prelude", "tables"}:
        return [case for case in OP_CASES if case.op in {"kv_write", "attention"}]
    types = [t for t, layout in LAYOUTS.items() if name in (layout.codec, layout.repack)]
    if name == "halves":
        types = ["q8_0"]
    if types:
        return [
            c for c in OP_CASES if any(w.type == types[0] for w in c.weights.values()) and KERNELS[c.op].codec
        ]
    return [c for c in OP_CASES if name in KERNELS[c.op].files or (name == "act_silu" and KERNELS[c.op].act)]


def is_caught(name: str) -> bool:
    cases = cases_with(name)
    results = asyncio.run(run_on(open_backend("Vulkan"), OpenSpec(adapter="llvmpipe"), cases))
    found = [max(errors(got, reference_result(case))) for got, case in zip(results, cases, strict=True)]
    return any(not error <= TOLERANCE for error in found)


def mutated(name: str) -> Callable[[str], str]:
    original = shaders.text
    old, new = MUTATIONS[name]
    assert original(name).count(old) == 1, f"{name}.wgsl must hold {old!r} once"
    return lambda file: original(file).replace(old, new, 1) if file == name else original(file)


def test_every_shader_has_a_mutation() -> None:
    assert sorted(MUTATIONS) == sorted(shaders.names())


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_driver("llvmpipe")
    assert not is_caught(name), "the unchanged shader must pass"
    monkeypatch.setattr(shaders, "text", mutated(name))
    assert is_caught(name)


def test_a_planted_error_of_one_percent_fails_every_op() -> None:
    """The tolerance is tight enough: results that are 1 % off fail in every op that writes numbers."""
    for case in OP_CASES:
        want = reference_result(case)
        off = replace(want, views={r: np.float32(1.01) * a for r, a in want.views.items()})
        off = replace(off, state={n: np.float32(1.01) * a for n, a in want.state.items()})
        numbers = [*want.views.values(), *want.state.values()]
        if any(np.any(a) for a in numbers):
            assert max(errors(off, want)) > TOLERANCE, case.op
