"""`python -m tests.cuda.sanitized [--whole] [OP...]`: op cases on the rig in this process, for a sanitizer.

The sanitizer is EMU_SANITIZER's, with its library loaded before Python. One case of each op; with `--whole`
one of each kind of case.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from tests.cuda.rig import open_rig
from tests.support.parity.cases import OP_CASES, one_of_each_kind
from tests.support.parity.cases_experts import fused_cases
from tests.support.parity.compare import run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase
from camelid_native.cuda.kernels import KERNELS


def op_of(case: OpCase) -> object:
    return case.op, [weight.type for weight in case.weights.values()] == ["q8_0"]


def run(ops: Sequence[str], *, is_whole: bool) -> int:
    """Runs cases of these ops (none: of all). Returns their number."""
    wanted = [case for case in (*OP_CASES, *fused_cases()) if case.op in (ops or KERNELS)]
    cases = one_of_each_kind(wanted) if is_whole else one_of_each_kind(wanted, op_of)
    asyncio.run(run_on(open_rig(), OpenSpec(), cases))
    return len(cases)


if __name__ == "__main__":
    asked = [word for word in sys.argv[1:] if word != "--whole"]
    print(run(asked, is_whole="--whole" in sys.argv), "cases")
