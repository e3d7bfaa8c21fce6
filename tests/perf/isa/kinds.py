"""Kinds of machine instructions, one table per instruction set."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.perf.isa.listings import Code

Pattern = tuple[str, str]  # kind, and a regular expression that matches at an instruction's beginning
Width = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Isa:
    """An instruction set.

    `kinds` are tried in order; an instruction that none matches is arithmetic. `width` returns the bytes per
    lane of a load, `bare` an instruction without predicate and destination.
    """

    kinds: Sequence[Pattern]
    width: Width
    bare: Callable[[str], str] = str.strip
    count: Callable[[str], int] = lambda op: 1


@dataclass(frozen=True, slots=True)
class Mix:
    """Lane instructions by kind, and loads by bytes per lane."""

    kinds: Mapping[str, int] = field(default_factory=dict[str, int])
    loads: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def arithmetic(self) -> int:
        return sum(self.kinds.get(kind, 0) for kind in ("alu", "convert", "dot"))


def _amd_width(op: str) -> int:
    """`dword` counts words, `b`, `u` and `i` bits; before RDNA3 smaller loads have names of their own."""
    found = re.search(r"_load_(?:d16_)?(?:hi_)?(dwordx?|[sui]?byte|[sui]?short|[bui])(\d*)", op)
    unit, number = (found[1], int(found[2] or 1)) if found else ("dword", 1)
    if unit in ("b", "u", "i"):
        return number // 8
    return 4 * number if "dword" in unit else 1 if "byte" in unit else 2


def _nvidia_bare(op: str) -> str:
    body = re.sub(r"^@\S+\s+", "", op.strip()).split("//")[0]
    has_target = "=" in body.split("[")[0]
    uniform = "uniform " if re.match(r"u[rp]\d", body) else ""
    return uniform + (body.split("=", 1)[1] if has_target else body).strip()


def _nvidia_width(op: str) -> int:
    found = re.search(r"\.[biu](\d+)", op)
    return int(found[1]) // 8 if found else 4


def _apple_width(op: str) -> int:
    size = 2 if re.search(r"\bi16\b", op) else 4 if re.search(r"\b[if]32\b", op) else 1
    mask = re.search(r", (x?y?z?w?),", op)
    return size * len(mask[1] if mask else "x")


def _intel_bare(op: str) -> str:
    """A send without its operands, by the note behind it; all others without their predicate.

    (W) marks an instruction that is the same for all lanes.
    """
    plain = re.sub(r"^\([^)]*\)\s*", "", op.strip())
    if plain.startswith("send"):
        return "send " + op.split("//")[-1].strip()
    return f"uniform {plain}" if op.strip().startswith("(W)") else plain


def _intel_width(op: str) -> int:
    if mask := re.search(r"(?:untyped_read|load\w*)[^ ]*?:([xyzw]+)", op):
        return 4 * len(mask[1])
    vector = re.search(r"d32x(\d)", op)
    return 4 * int(vector[1] if vector else 1)


def _adreno_bare(op: str) -> str:
    return re.sub(r"^(\([^)]*\)\s*)+", "", op.strip())


def _adreno_width(op: str) -> int:
    if mask := re.search(r"\(([xyzw]+)\)", op):
        return 4 * len(mask[1])
    many = re.search(r"\.[us](\d+)\.(\d)\.", op)
    return int(many[1]) // 8 * int(many[2]) if many else 4


def _adreno_count(op: str) -> int:
    repeat = re.search(r"\(rpt(\d)\)", op)
    return 1 + int(repeat[1] if repeat else 0)


ISAS: dict[str, Isa] = {
    "amd": Isa(
        (
            ("scratch", r"scratch_"),
            ("load", r"(buffer|global|flat)_load"),
            ("store", r"(buffer|global|flat)_(store|atomic)"),
            ("lds", r"ds_"),
            ("dot", r"v_(dot|wmma)"),
            ("convert", r"v_cvt"),
            ("alu", r"v_"),
            ("flow", r"\S*branch"),
            ("scalar", r""),
        ),
        _amd_width,
        count=lambda op: 2 if op.startswith("v_dual") else 1,
    ),
    "nvidia": Isa(
        (
            ("scratch", r"(ld|st)\.local"),
            ("load", r"ld\.global"),
            ("store", r"(st\.global|atom|red)"),
            ("lds", r"(ld\.shared|st\.shared|lds|sts|shfl|redux)"),
            ("dot", r"(idp|hmma|imma)"),
            ("convert", r"(i2f|f2f|f2i|i2i)"),
            ("flow", r"(bra|bssy|bsync|bclear|nop|bar|bmov|exit|membar|ccctl|warpsync|break)"),
            ("scalar", r"uniform "),
        ),
        _nvidia_width,
        _nvidia_bare,
    ),
    "apple": Isa(
        (
            ("scratch", r"stack"),
            ("load", r"(load|ldg)\b"),
            ("store", r"(store|atomic)"),
            ("lds", r"(lload|lstore|threadgroup|simd|quad)"),
            ("flow", r"(if|else|while|jmp|push|pop|break|barrier|stop|wait|nop)"),
            ("convert", r"(convert|itof|ftoi)"),
        ),
        _apple_width,
    ),
    "intel": Isa(
        (
            ("scratch", r"send .*(scratch|bti\(255\))"),
            ("lds", r"send .*(bti\(254\)|slm)"),
            ("load", r"send .*(untyped_read|load)"),
            ("store", r"send .*(write|store|atomic)"),
            ("flow", r"(send|while|if|else|endif|break|jmpi|sync|halt|nop|illegal)"),
            ("dot", r"(dp4a|dpas)"),
            ("scalar", r"uniform "),
            ("convert", r"mov\S* .*:f .*:u?[bwd]\b|mov\S* .*:u?[bwd] .*:h?f\b"),
        ),
        _intel_width,
        _intel_bare,
    ),
    "adreno": Isa(
        (
            ("scratch", r"(ldp|stp)"),
            ("load", r"(isam|ldib|ldg|ldc)"),
            ("store", r"(stib|stg|atomic)"),
            ("lds", r"(ldl|stl)"),
            ("flow", r"(br|jump|nop|fence|bar|end|predt|prede|kill|getone|shps|shpe)"),
            ("dot", r"dp[24]acc"),
            ("convert", r"cov"),
        ),
        _adreno_width,
        _adreno_bare,
        _adreno_count,
    ),
}


def kind_of(isa: Isa, op: str) -> str:
    bare = isa.bare(op)
    return next((kind for kind, pattern in isa.kinds if re.match(pattern, bare)), "alu")


def mix_of(isa: Isa, ops: Iterable[str]) -> Mix:
    """The instructions of a loop by kind."""
    kinds, loads = Counter[str](), Counter[int]()
    for op in ops:
        kind = kind_of(isa, op)
        kinds[kind] += isa.count(op)
        if kind == "load":
            loads[isa.width(isa.bare(op))] += 1
    return Mix(dict(kinds), dict(sorted(loads.items())))


def hot_loop(isa: Isa, code: Code) -> Sequence[str]:
    """The loop with the largest share of dot products; of equal ones, the one that loads most bytes.

    Without loops the whole code.
    """

    def rank(body: Sequence[str]) -> tuple[float, int, int]:
        mix = mix_of(isa, body)
        share = mix.kinds.get("dot", 0) / max(len(body), 1)
        return share, sum(width * n for width, n in mix.loads.items()), -len(body)

    return max(code.loops, key=rank, default=code.ops)
