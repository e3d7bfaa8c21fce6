"""One planted error per shader file, all in ordinary runs: the parity tests must detect each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain

import numpy as np
import pytest
from tests.support.exhaustive import every
from tests.support.parity.adapters import need_driver
from tests.support.parity.cases import (
    OP_CASES,
    one_of_each_kind,
    sample_of_kernels,
    sample_of_shaders,
    shaders_of,
)
from tests.support.parity.cases_wide import wide_cases
from tests.support.parity.compare import TOLERANCE, errors, reference_result
from tests.support.parity.rounded import q8_cases, reference_case
from tests.support.parity.sections import module_names

from camelid.backends.base import Candidates, OpenSpec, OutputRow
from camelid.backends.common.op_runner import OpCase, OpResult, run_case
from camelid.backends.reference.backend import ReferenceBackend
from camelid.backends.webgpu import shaders
from camelid.backends.webgpu.backend import open_backend
from camelid.backends.webgpu.kernel import GPU_LANES

pytestmark = pytest.mark.parity

MUTATIONS: dict[str, tuple[str, str]] = {
    "prelude": ("step[at + 3u], step[at + 4u]", "step[at + 3u] + 1u, step[at + 4u]"),
    "reduce": ("width = LANES / 2u", "width = LANES / 4u"),
    "philox": ("round < 10u", "round < 9u"),
    "place": ("bits > 0x80000000u", "bits > 0xff800000u"),
    "topk": ("is_below(place, kept[j])", "is_below(kept[j], place)"),
    "adjust": ("logit <= 0.0", "logit > 0.0"),
    "candidates": ("squares += off * off", "squares += off"),
    "chunk": ("select(0u, SPAN, i >= 4u)", "0u"),
    "quants": ("16u * (i % 2u)", "8u * (i % 2u)"),
    "codec_f32": ("row * (K / 4u) + 8u * c + i", "row * (K / 4u) + 8u * c"),
    "codec_f16": ("pair(w.z), pair(w.w)", "pair(w.x), pair(w.w)"),
    "codec_bf16": ("0xffff0000u", "0xfff00000u"),
    "codec_f64": ("exponent - 896u", "exponent - 895u"),
    "codec_i8": ("signed_bytes(w[j])", "signed_bytes(w[0])"),
    "codec_i16": (">> vec2(16u)", ">> vec2(15u)"),
    "codec_i32": ("row * (K / 4u)", "row * (K / 8u)"),
    "codec_i64": ("select(size, -size, is_negative)", "size"),
    "codec_q4_0": ("block, c, 1u", "block + 1u, c, 1u"),
    "codec_q4_1": ("d.yy", "d.xx"),
    "codec_q5_0": ("high >> 16u", "high >> 15u"),
    "codec_q5_1": ("high >> 16u", "high >> 15u"),
    "codec_q8_0": ("2u * block + 1u", "2u * block"),
    "codec_q2_k": ("group + 2u", "group + 1u"),
    "codec_q3_k": ("- 32.0", "- 31.0"),
    "scales_k": ("pair >= 2u", "pair >= 3u"),
    "codec_q4_k": ("at + 1u + part", "at + 1u"),
    "codec_q5_k": ("part / 2u * 2u", "part / 2u"),
    "codec_q6_k": ("part >= 4u", "part >= 5u"),
    "pairs": ("pair(w, 1u), pair(w, 2u)", "pair(w, 2u), pair(w, 1u)"),
    "codec_iq4_nl": ("(row, c), c", "(row, c), c + 1u"),
    "codec_iq4_xs": ("- 32.0", "- 31.0"),
    "codec_mxfp4": ("e - 1u", "e - 2u"),
    "codec_nvfp4": ("- 11", "- 10"),
    "grid_8": ("2u * at + 1u", "2u * at"),
    "grid_4": ("BOOK + at.y", "BOOK + at.x"),
    "signs": ("<< 28u", "<< 27u"),
    "codec_iq2_xxs": ("0.125", "0.1"),
    "codec_iq2_xs": ("entry(pair & 511u)", "entry(pair & 255u)"),
    "codec_iq2_s": ("at + 8u + part", "at + 7u + part"),
    "codec_iq3_xxs": ("+ 0.25", "+ 0.2"),
    "codec_iq3_s": ("(4u * part)", "(2u * part)"),
    "codec_iq1_s": ("-9.0", "-10.0"),
    "codec_iq1_m": ("high << 24u", "high << 28u"),
    "codec_tq1_0": ("odd & 0x3000300u", "odd & 0x1000300u"),
    "codec_tq2_0": ("part / 4u * 2u", "part / 4u"),
    "codec_q1_0": ("c, 4u", "c, 2u"),
    "codec_affine": ("<< (16u - 2u * BITS)", "<< (15u - 2u * BITS)"),
    "codec_affine8": ("dm_of(block).yy", "dm_of(block).xx"),
    "codec_mxfp8": ("0x1p121", "0x1p120"),
    "codec_q2_0": ("vec4(18u)", "vec4(17u)"),
    "repack": ("+ task[START]", "+ task[START] + 1u"),
    "matvec": ("chunk.q[7], input.x[7]", "chunk.q[7], input.x[6]"),
    "product": ("return v.x + v.y + v.z + v.w", "return v.x + v.y + v.z"),
    "matmul": ("quants[at + 3u]", "quants[at + 2u]"),
    "partial": ("quad * LANES", "quad"),
    "packed": ("weights4(p.b.w)", "weights4(p.b.z)"),
    "packed_signed": ("signed_bytes(word)", "bytes(word)"),
    "packed_unsigned": ("bytes(word)", "signed_bytes(word)"),
    "rounded": ("fma(v, vec4(inverse), vec4(WHOLE))", "fma(v, vec4(inverse), vec4(WHOLE + 1.0))"),
    "matvec_q8": ("packed_at(rows.w, c), input", "packed_at(rows.z, c), input"),
    "matmul_q8": ("rows[3], input", "rows[2], input"),
    "matmul_tile": ("lane % 64u / 4u", "lane % 32u / 4u"),
    "matvec_quads": ("total(i % quads, t)", "total(i % quads, t) * 1.001"),
    "matvec_wide": ("own + q", "own"),
    "squares": ("t * PIECES + i", "t * PIECES"),
    "consecutive": ("vec4(0u, 1u, 2u, 3u)", "vec4(0u, 1u, 2u, 2u)"),
    "linear": ("with_bias(sums[r], scale, n)", "with_bias(sums.x, scale, n)"),
    "linear_narrow": ("(16u * (i % 2u))", "(16u * (i & 2u))"),
    "linear_glu": ("gated(v.y, v.w)", "gated(v.y, v.z)"),
    "residual": ("fma(SCALE,", "fma(1.0,"),
    "norm_rope": ("select(k_gain[c], q_gain[c], is_query)", "q_gain[c]"),
    "norm_rope_alone": ("vec2<f32>) {}", "vec2<f32>) { x[column] = 0.0; }"),
    "norm_rope_write": ("column >= TURNED", "column > TURNED"),
    "linear_add": ("sums, scale);", "2.0 * sums, scale);"),
    "linear_add_norm": ("sums, scale))", "2.0 * sums, scale))"),
    "norm_behind": ("SQUARES_AT + quad] =", "SQUARES_AT + quad] = 2.0 *"),
    "nothing_behind": ("{}", "{ y[quad] = 0.0; }"),
    "defer_norm": ("y[at + 3u]", "y[at + 2u]"),
    "low_rank": ("at + first + lane) * inverse", "at) * inverse"),
    "one_expert": ("EXPERTS: u32 = 1u", "EXPERTS: u32 = 2u"),
    "deferred": ("i += PIECES", "i += 2u * PIECES"),
    "bias": ("scale, bias", "scale, -bias"),
    "experts": ("+ slot]", "+ 0u]"),
    "linear_experts": ("1.0, weight_row + n)", "1.0, n)"),
    "linear_heads": ("group.z * X_HEAD", "group.z * K"),
    "concat": ("+ c - A_COLS", "+ c"),
    "concat_apart": ("return b[i]", "return b[0]"),
    "concat_within": ("return a[i]", "return a[0]"),
    "affine": ("value, bias[id.x]", "value, -bias[id.x]"),
    "cutoff": ("off, off, squares", "off, off, 0.9 * squares"),
    "length": ("sqrt(total)", "total"),
    "mix": ("id.x / SIZE * GROUPS", "id.x / SIZE"),
    "router": ("b.id < a.id", "b.id > a.id"),
    "combine": ("slot * C", "slot"),
    "act_silu": ("exp(min(-v, 80.0))", "exp(min(v, 80.0))"),
    "act_sigmoid": ("min(-v, 80.0)", "min(-v, 2.0)"),
    "act_tanh": ("smooth_tanh(v)", "smooth_tanh(2.0 * v)"),
    "act_relu": ("max(v, 0.0)", "max(v, -0.1)"),
    "act_relu2": ("positive * positive", "positive"),
    "act_gelu": ("0.044715", "0.046"),
    "act_gelu_erf": ("v < 0.0", "v > 0.0"),
    "smooth_tanh": ("a < 0.25", "a < 2.5"),
    "gate_plain": ("act(gate) * up", "act(up) * gate"),
    "gate_swiglu_oai": ("clamp(up, -7.0, 7.0)", "min(up, 7.0)"),
    "unary": ("id.y * X_STRIDE", "0u * X_STRIDE"),
    "scale": ("return BY * v", "return v"),
    "clamp": ("-LIMIT, LIMIT", "-LIMIT, 2.0 * LIMIT"),
    "xielu": ("alpha[1] * (", "alpha[0] * ("),
    "temperature": ("position + 1u", "position"),
    "softcap": ("smooth_tanh(v / CAP)", "smooth_tanh(v)"),
    "mul": ("id.x / EACH", "id.x % EACH"),
    "mul_within": ("* X_STRIDE + R_OFFSET", "* X_STRIDE + X_OFFSET"),
    "embed_position": ("+= weights_of", "= weights_of"),
    "rearrange": ("rest / c % b", "rest % b"),
    "embed": ("= SCALE * weights_of", "= weights_of"),
    "norm": ("f32(SIZE) + EPS", "f32(SIZE) + EPS * 300.0"),
    "add_norm": ("x[at + c] + SCALE", "x[at + c] - SCALE"),
    "add": ("+= SCALE * r[id.y", "+= r[id.y"),
    "glu": ("gated(g, up[", "gated(1.0, up["),
    "glu_within": ("both[at + GATE_OFFSET]", "both[at]"),
    "rope": ("/ PAIRS * HEAD_DIM", "/ PAIRS * PAIRS"),
    "turn": ("v.y * by.x))", "v.y * -by.x))"),
    "qkv": (".xzyw", ""),
    "halves": ("group.x - FIRST_GROUPS", "group.x"),
    "kv_pair_f32": ("bitcast<u32>(values.y)", "bitcast<u32>(values.x)"),
    "kv_pair_f16": ("half_bits(values.y)", "half_bits(values.x)"),
    "tables": ("step[at + 2u]] =", "0u] ="),
    "copy": ("step[at + 3u] * WORDS", "WORDS"),
    "pages": ("row % UNIT_ROWS", "0u"),
    "half_bits": ("((bits >> by) & 1u)", "1u"),
    "kv_both": ("{ values[at] = word; }", "{ values[at] = 0u; }"),
    "kv_alone": ("keys[at] = word", "keys[at] = 0u"),
    "kv_write": ("group.x * TILE_WORDS + lane", "lane"),
    "kv_write_f32": ("tile[i]", "tile[i ^ 1u]"),
    "kv_write_f16": ("half_bits(tile[2u * i + 1u])", "half_bits(tile[2u * i])"),
    "kv_write_q8_0": ("floor(2.0 * (size - whole))", "0.0"),
    "kv_write_q4_0": ("size > top", "size >= top"),
    "kv_f32": ("word(tensor, at + 3u)", "word(tensor, at + 2u)"),
    "kv_f16": ("word(tensor, at + 1u)", "word(tensor, at)"),
    "kv_q8_0": ("(width / 32u + 1u) / 2u", "width / 64u"),
    "kv_q4_0": ("(i & 4u)", "(i & 0u)"),
    "visible": ("next - WINDOW)", "next - WINDOW + 1u)"),
    "softmax": ("a.sum * fade", "a.sum"),
    "cached": ("min(state_row - key, BIAS_ROWS - 1u)", "min(state_row - key, BIAS_ROWS - 2u)"),
    "attend": ("tile_sum += prob", "tile_sum += 1.1 * prob"),
    "attention": ("all.out / all.sum", "all.out / (1.1 * all.sum)"),
    "attention_part": ("vec4(part.top, part.sum", "vec4(part.top, 1.0"),
    "attention_join": ("split++", "split += 2u"),
    "attend_rows": ("clamp(i32(key) - i32(row)", "clamp(i32(row) - i32(key)"),
    "pool": ("first + n - 1u", "first"),
    "emit": ("select(0.0, 1.0,", "select(1.0, 0.0,"),
    "gather_rows": ("output_at(id.y)", "output_at(0u)"),
    "sample": ("top_p * sum", "sum"),
    "slots": ("group.held > 0u", "true"),
    "scan": ("place.row * COLS + c] = part", "place.row * COLS + i] = part"),
    "scan_inputs": ("return beta[row * BETA_STRIDE", "return beta[0u * BETA_STRIDE"),
    "scan_mamba2": ("sum += sums[at + l]", "sum += sums[at]"),
    "scan_delta": ("by, sum.z, decay * sum.y", "by, sum.z, sum.y"),
    "scan_sums": ("sum += sums[at + l]", "sum += sums[at]"),
    "rwkv6_inputs": ("query * u[c] * key", "query * key"),
    "scan_rwkv6": ("place.key + place.row % COLS", "place.row"),
    "rwkv7_key": ("a - 1.0", "a"),
    "rwkv7_inputs": ("= rate * unit", "= unit"),
    "scan_rwkv7": ("part[i] * one.decay, one.correction, one.key)", "part[i], one.correction, one.key)"),
    "bonus_rwkv7": ("V_OFFSET + c], share", "V_OFFSET + c], own"),
    "token_shift": ("slot.first + slot.rows - 1u, id.x", "slot.first, id.x"),
    "fine_exp": ("0.693145751953125", "0.6931"),
    "softplus": ("1.0 / 3.0), 1.0", "1.0 / 4.0), 1.0"),
    "act_none": ("return v", "return -v"),
    "conv1d": ("slot.rows + i, id.x", "slot.rows + i - 1u, id.x"),
}

# Files of activations "q8" alone.
Q8_SHADERS = {"rounded", "matvec_q8", "matmul_q8"}
# Files of software adapters alone.
SOFTWARE_SHADERS = {"matvec_wide"}
MOST_CASES = 8  # with a shader, besides one of each kind


@cache
def modules(activations: str = "f32") -> list[set[str]]:
    """The shader files of each case's pipelines, load ops included."""
    cases = q8_cases() if activations == "q8" else OP_CASES
    return [files_of(names) for names in module_names(cases, activations)]


def files_of(names: Sequence[str]) -> set[str]:
    """The shader files of modules; some names also tell the operands that a module binds."""
    return {file for name in names for file in name.split("+")} & {*shaders.names()}


def cases_with(name: str) -> list[OpCase]:
    """Cases that use this shader: one of each kind and about MOST_CASES more."""
    if name in {"prelude", "tables"}:
        return [case for case in OP_CASES if case.op in {"kv_write", "attention"}][:6]
    if name in SOFTWARE_SHADERS:
        return wide_cases()
    if name in Q8_SHADERS:
        return [case for case, files in zip(q8_cases(), modules("q8"), strict=True) if name in files][::5]
    cases = [case for case, files in zip(OP_CASES, modules(), strict=True) if name in files]
    if name in {"deferred", "squares"}:  # part of every product, but only these divide by a norm
        return [case for case in cases if case.op.startswith("norm_linear")]
    return [*one_of_each_kind(cases), *cases[:: max(1, len(cases) // MOST_CASES)]]


async def first_wrong(cases: Sequence[OpCase], activations: str = "f32") -> OpCase | None:
    """The first case with a wrong result. Later cases do not run: a driver compiles mutated
    pipelines again.
    """
    backend = open_backend("Vulkan")
    await backend.open(OpenSpec(adapter="llvmpipe", activations=activations))
    for case in cases:
        want = await run_case(ReferenceBackend(), reference_case(case) if activations == "q8" else case)
        if not max(errors(await run_case(backend, case), want)) <= TOLERANCE:
            await backend.close()
            return case
    return None


def mutated(name: str) -> Callable[[str], str]:
    original = shaders.text
    old, new = MUTATIONS[name]
    assert original(name).count(old) == 1, f"{name}.wgsl must hold {old!r} once"
    return lambda file: original(file).replace(old, new, 1) if file == name else original(file)


def test_every_shader_has_a_mutation() -> None:
    assert sorted(MUTATIONS) == sorted(shaders.names())
    for name in MUTATIONS:
        assert mutated(name)(name) != shaders.text(name)


SAMPLES = {
    "one of each kind": one_of_each_kind(OP_CASES),
    "one of each kind by shaders": one_of_each_kind(OP_CASES, shaders_of),
    "kernels": sample_of_kernels(OP_CASES),
    "shaders": sample_of_shaders(OP_CASES),
}


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_sample_uses_every_shader(sample: str) -> None:
    few = files_of([*chain.from_iterable(module_names(SAMPLES[sample]))])
    assert few == set.union(*modules()) >= {"matvec", "attention"}


@pytest.mark.parametrize("name", every(6, [*MUTATIONS]))
def test_mutation_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the kernels that a GPU gets, and one of software adapters."""
    need_driver("llvmpipe")
    if name not in SOFTWARE_SHADERS:
        monkeypatch.setattr("camelid.backends.webgpu.backend.SOFTWARE_LANES", GPU_LANES)
    activations = "q8" if name in Q8_SHADERS else "f32"
    with monkeypatch.context() as patch:
        patch.setattr(shaders, "text", mutated(name))
        caught = asyncio.run(first_wrong(cases_with(name), activations))
    assert caught is not None
    assert asyncio.run(first_wrong([caught], activations)) is None, "the unchanged shader fails"


def test_a_planted_error_of_one_percent_fails_every_op() -> None:
    """The tolerance is strict enough: an error of 1 % fails in every op that writes numbers."""
    for case in OP_CASES:
        want = reference_result(case)
        off = replace(want, views={r: np.float32(1.01) * a for r, a in want.views.items()})
        off = replace(off, state={n: np.float32(1.01) * a for n, a in want.state.items()})
        off = replace(off, rows=[_off(row) for row in want.rows])
        numbers = [*want.views.values(), *want.state.values(), *([row.log_sum_exp] for row in want.rows)]
        if any(np.any(np.isfinite(a) & (np.asarray(a) != 0.0)) for a in numbers):
            assert max(errors(off, want)) > TOLERANCE, case.op


def _off(row: OutputRow) -> OutputRow:
    return row._replace(logit=1.01 * row.logit, log_sum_exp=1.01 * row.log_sum_exp)


def test_planted_errors_of_candidates_and_rings_fail() -> None:
    """Outputs besides views: an id, a logit, mean or variance, an id in a ring."""
    case = next(case for case in OP_CASES if case.features == {"all_logits", "candidates"} and case.history)
    want = reference_result(case)
    for name, value in (
        ("ids", memoryview(bytes(4 * 60)).cast("I")),
        ("logits", memoryview(bytes(4 * 60)).cast("f")),
        ("mean", 1.01 * _candidates(want).mean),
        ("variance", 1.01 * _candidates(want).variance),
    ):
        bad = want.rows[0]._replace(candidates=replace(_candidates(want), **{name: value}))
        assert max(errors(replace(want, rows=[bad, *want.rows[1:]]), want)) > TOLERANCE, name
    assert max(errors(replace(want, rings=[want.rings[0]] * len(want.rings)), want)) > TOLERANCE


def _candidates(result: OpResult) -> Candidates:
    candidates = result.rows[0].candidates
    assert candidates is not None
    return candidates
