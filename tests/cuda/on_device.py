"""`python -m tests.cuda.on_device PART [--rig]`: the first minutes of a lent GPU, one JSON object per part.

    facts   the device, and the time to compile the kernels of cria
    ops     every parity case of every op against the reference
    bits    a hash of each case's outputs, but for weights whose products a matrix instruction rounds; with
            --against FILE the cases whose bits differ from that run
    cria    greedy tokens of the first 50 prompts against the reference, eight at a time
    company bits of an answer alone and among others

`--rig` runs the part on the processor's emulator instead, for a trial and for the hashes to compare with.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tests.cuda.rig import open_rig
from tests.parity.test_cria import ALL, PARALLEL, SEED, answer, mismatches, wanted
from tests.support import promise_runs
from tests.support.gguf_files import write_tiny_llama
from tests.support.parity.cases import OP_CASES
from tests.support.parity.compare import TOLERANCE, errors, reference_result, run_on
from tests.support.promise_runs import SITUATIONS, Case, alone

import camelid
from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult
from camelid.backends.proof.gate import inputs_of
from camelid.loading.model_file import open_model
from camelid_native.cuda import backend
from camelid_native.cuda.kernels import KERNELS
from camelid_native.cuda.types import EXACT_TYPES, HALF_TYPES
from cria.graded_items import first_prompts

CRIA = Path(camelid.__file__).with_name("data") / "cria.gguf"
Found = Mapping[str, Any]


def cases() -> list[OpCase]:
    """Cases of ops with kernels, whose weights all round x, or none."""

    def rounds(case: OpCase) -> set[bool]:
        weights = (case.weights[role] for role in ("weight", "v_weight") if role in case.weights)
        return {weight.type in EXACT_TYPES for weight in weights}

    return [case for case in OP_CASES if case.op in KERNELS and len(rounds(case)) < 2]


def results(chosen: list[OpCase]) -> list[OpResult]:
    """The results of the cases, with x rounded as the backend rounds it."""
    opened = backend.open_backend()
    tested = [inputs_of(case, opened.capabilities())[0] for case in chosen]
    return asyncio.run(run_on(opened, OpenSpec(), tested))


def facts(_: argparse.Namespace) -> Found:
    start = time.perf_counter()
    with camelid.load(str(CRIA), backend="cuda", parallel=1) as llm:
        ready = time.perf_counter() - start
        told = llm.generate("Hello", max_tokens=32, ignore_eos=True, temperature=0.0)
        return {"device": llm.capabilities.device, "ready_s": ready, "decode_tps": told.timings.decode_tps}


def ops(_: argparse.Namespace) -> Found:
    chosen, can = cases(), backend.open_backend().capabilities()
    found = [max(errors(result, reference_result(inputs_of(case, can)[1])))
             for case, result in zip(chosen, results(chosen), strict=True)]  # fmt: skip
    wrong = [
        f"{c.op} {dict(c.attrs)}: {e:.1e}" for c, e in zip(chosen, found, strict=True) if not e <= TOLERANCE
    ]
    return {"cases": len(found), "worst": max(found), "wrong": wrong}


def bits(args: argparse.Namespace) -> Found:
    chosen = [case for case in cases() if not HALF_TYPES & {w.type for w in case.weights.values()}]
    hashes = [
        hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in result.views.values())).hexdigest()
        for result in results(chosen)
    ]
    if not args.against:
        return {"hashes": hashes}
    before = json.loads(args.against.read_text())["hashes"]
    differ = [i for i, (a, b) in enumerate(zip(hashes, before, strict=True)) if a != b]
    return {"cases": len(hashes), "differ": [f"{i} {chosen[i].op}" for i in differ]}


def cria(_: argparse.Namespace) -> Found:
    prompts, want = first_prompts(SEED, ALL), wanted(CRIA, ALL)

    async def together() -> list[list[int]]:
        async with await camelid.aload(str(CRIA), backend="cuda", parallel=PARALLEL) as llm:
            return list(await asyncio.gather(*(answer(llm, prompt) for prompt in prompts)))

    return {"prompts": ALL, "wrong": mismatches(CRIA, prompts, asyncio.run(together()), want)}


def company(_: argparse.Namespace) -> Found:
    with TemporaryDirectory() as folder:
        path = Path(folder, "tiny.gguf")
        write_tiny_llama(path, seed=3, hidden=256, head_dim=64, ffn=512, context=512)
        file = asyncio.run(open_model(str(path)))
        case = Case(model=file.model, sources=file.sources, backend="cuda", kv_type="f16")
        want = asyncio.run(alone(case))
        ways = ("among 8 others", "run ahead", "chunks of 7", "prefix found", "preempted", "forked")
        return {way: asyncio.run(SITUATIONS[way](case)) == want for way in ways}


PARTS: Mapping[str, Callable[[argparse.Namespace], Found]] = {
    "facts": facts, "ops": ops, "bits": bits, "cria": cria, "company": company,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--rig", action="store_true", help="the emulator in place of the device")
    parser.add_argument("--against", type=Path, help="output of another run of the part bits")
    args = parser.parse_args()
    if args.rig:
        backend.open_backend = open_rig
    backends: Any = promise_runs.BACKENDS
    backends["cuda"] = backend.open_backend
    print(json.dumps(PARTS[args.part](args)))


if __name__ == "__main__":
    main()
