"""`python -m tests.cuda.sanitized [OP...]`: op cases on the rig in this process, for a sanitizer's reports.

The sanitizer is EMU_SANITIZER's, with its library loaded before Python.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from tests.cuda.rig import open_rig
from tests.support.parity.cases import OP_CASES, one_of_each_kind
from tests.support.parity.compare import run_on

from camelid.backends.base import OpenSpec
from camelid_native.cuda.kernels import KERNELS


def run(ops: Sequence[str]) -> int:
    """Runs one case of each kind of these ops (none: of all). Returns their number."""
    wanted = [case for case in OP_CASES if case.op in (ops or KERNELS)]
    cases = one_of_each_kind(wanted)
    asyncio.run(run_on(open_rig(), OpenSpec(), cases))
    return len(cases)


if __name__ == "__main__":
    print(run(sys.argv[1:]), "cases")
