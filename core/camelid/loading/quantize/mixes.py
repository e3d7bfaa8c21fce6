"""Mixes: for each type of a file, the types of the parts of a model. Source: behaviour of llama.cpp's
quantizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from camelid.loading.quantize.rules import (
    Place,
    Rule,
    always,
    before,
    both,
    eight_experts,
    either,
    falcon,
    first,
    first_in_order,
    imatrix,
    many_experts,
    middle,
    no,
    sensitive,
    shared_heads,
    where,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """A type of a file: the type of most matrices; general.file_type (LLAMA_FTYPE_MOSTLY_* of llama.cpp);
    rules of parts that differ; types of the output matrix and of the token embedding, "" for the mix's
    own."""

    type: str
    file_type: int
    rules: Mapping[str, Rule] = field(default_factory=dict[str, Rule])
    output: str = "q6_k"
    embedding: str = ""


def _values(rule: Rule, own: str) -> Rule:
    """Types of attention's values: at least q5_k in 70B models, q8_0 beside eight experts."""

    def of(place: Place) -> str:
        name = rule(place) or own
        if eight_experts(place):
            return "q8_0"
        return "q5_k" if place.facts.is_70b and name in ("q3_k", "q4_k") else name

    return of


def _mix(own: str, file_type: int, *, output: str = "q6_k", **rules: Rule) -> Mix:
    """A mix of at least 3 bits, in which keys and values beside eight experts are q8_0."""
    keys = rules.get("attn_k", always(""))
    shared: dict[str, Rule] = {
        "attn_v": _values(rules.get("attn_v", always("")), own),
        "attn_k": where(eight_experts, "q8_0", keys),
    }
    return Mix(type=own, file_type=file_type, rules={**rules, **shared}, output=output)


def _low(own: str, file_type: int, parts: str, outputs: str, embedding: str) -> Mix:
    """A mix below 3 bits: `parts` is the type of values and of the first eighth of ffn_down."""
    rules = {
        "attn_v": where(either(shared_heads, many_experts), "q4_k", always(parts)),
        "attn_k": where(eight_experts, "q4_k"),
        "ffn_down": where(first_in_order(8), parts),
        "attn_output": where(eight_experts, "q5_k", always(outputs)),
    }
    return Mix(type=own, file_type=file_type, rules=rules, output="q5_k", embedding=embedding)


def _outputs(others: str = "", *, of_falcon: str = "", beside_experts: str = "q5_k") -> Rule:
    """Types of attention's output."""
    of_eight = where(eight_experts, beside_experts, always(others))
    return where(falcon, of_falcon, of_eight)


FIRST_TWO = before(2)
NO_IMATRIX_FIRST = both(first(8), no(imatrix))

MIXES: Mapping[str, Mix] = {
    "f32": Mix(type="f32", file_type=0, output=""),
    "f16": Mix(type="f16", file_type=1, output=""),
    "bf16": Mix(type="bf16", file_type=32, output=""),
    "q8_0": _mix("q8_0", 7, output=""),
    "q5_1": _mix("q5_1", 9),
    "q5_0": _mix("q5_0", 8, ffn_down=where(both(first(8), imatrix), "q5_1")),
    "q4_1": _mix("q4_1", 3),
    "q4_0": _mix("q4_0", 2, ffn_down=where(both(first(8), imatrix), "q4_1")),
    "q6_k": _mix("q6_k", 18),
    "q5_k_m": _mix(
        "q5_k", 17,
        attn_v=where(sensitive, "q6_k"), ffn_down=where(sensitive, "q6_k"),
    ),
    "q5_k_s": _mix("q5_k", 16),
    "q4_k_m": _mix(
        "q4_k", 15,
        attn_v=where(sensitive, "q6_k"), attn_output=_outputs(),
        ffn_down=where(
            falcon, where(first(16), "q6_k", where(sensitive, "q5_k")), where(sensitive, "q6_k")
        ),
    ),
    "q4_k_s": _mix(
        "q4_k", 14,
        attn_v=where(before(4), "q5_k"), attn_output=_outputs(),
        ffn_down=where(both(first(8), no(falcon)), "q5_k"),
    ),
    "q3_k_l": _mix(
        "q3_k", 13,
        attn_v=always("q5_k"),
        attn_output=_outputs("q5_k", of_falcon="q4_k", beside_experts=""),
        ffn_down=where(falcon, "q4_k", always("q5_k")),
    ),
    "q3_k_m": _mix(
        "q3_k", 12,
        attn_v=where(FIRST_TWO, "q5_k", always("q4_k")), attn_output=_outputs("q4_k"),
        ffn_down=where(first(16), "q5_k", where(either(no(falcon), sensitive), "q4_k")),
    ),
    "q3_k_s": _mix("q3_k", 11, attn_output=_outputs()),
    "q2_k": _mix(
        "q2_k", 10,
        attn_v=where(shared_heads, "q4_k", always("q3_k")), attn_output=_outputs("q3_k"),
        ffn_down=always("q3_k"),
    ),
    "q2_k_s": _mix(
        "q2_k", 21, attn_v=where(shared_heads, "q4_k"), ffn_down=where(first(8), "q4_k")
    ),
    "iq4_nl": _mix(
        "iq4_nl", 25,
        attn_v=where(shared_heads, "q5_k"), attn_output=_outputs(), ffn_down=where(NO_IMATRIX_FIRST, "q5_k"),
    ),
    "iq4_xs": _mix(
        "iq4_xs", 30,
        attn_v=where(shared_heads, "q5_k"), attn_output=_outputs(), ffn_down=where(NO_IMATRIX_FIRST, "q5_k"),
    ),
    "iq3_m": _mix(
        "iq3_s", 27,
        attn_v=always("q4_k"), attn_output=_outputs("q4_k"),
        ffn_down=where(either(first(8), both(eight_experts, sensitive)), "q4_k"),
    ),
    "iq3_s": _mix("iq3_s", 26, attn_v=where(shared_heads, "q4_k"), attn_output=_outputs()),
    "iq3_xs": _mix(
        "iq3_s", 22,
        attn_v=where(shared_heads, "q4_k"), attn_k=always("iq3_xxs"), attn_q=always("iq3_xxs"),
        attn_output=_outputs(), ffn_gate=where(middle, "iq3_xxs"), ffn_up=where(middle, "iq3_xxs"),
    ),
    "iq3_xxs": replace(
        _mix(
            "iq3_xxs", 23, output="q5_k",
            attn_v=where(shared_heads, "q4_k", where(no(imatrix), "iq3_s")),
            attn_k=always("iq2_s"), attn_q=always("iq2_s"), attn_output=_outputs("iq3_s"),
            ffn_down=where(no(imatrix), "q3_k"),
        ),
        embedding="iq3_s",
    ),
    "iq2_m": _low("iq2_s", 29, parts="iq3_s", outputs="iq3_s", embedding="iq3_s"),
    "iq2_s": _low("iq2_xs", 28, parts="iq3_s", outputs="iq3_s", embedding="iq3_s"),
    "iq2_xs": _low("iq2_xs", 20, parts="q2_k", outputs="", embedding="q2_k"),
    "iq2_xxs": _low("iq2_xxs", 19, parts="q2_k", outputs="", embedding="q2_k"),
    "iq1_m": _low("iq1_m", 31, parts="q2_k", outputs="iq2_xxs", embedding="q2_k"),
    "iq1_s": _low("iq1_s", 24, parts="q2_k", outputs="iq2_xxs", embedding="q2_k"),
    "tq2_0": replace(_mix("tq2_0", 37), embedding="q4_k"),
    "tq1_0": replace(_mix("tq1_0", 36), embedding="q4_k"),
    "q2_0": replace(_mix("q2_0", 41), embedding="q4_k"),
    "q1_0": _mix("q1_0", 40),
    "mxfp4_moe": Mix(type="mxfp4", file_type=38),
}  # fmt: skip
ALIASES = {"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}  # as in llama.cpp
NEEDS_IMATRIX = frozenset({"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs"})
