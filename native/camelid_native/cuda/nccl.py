"""Sums over GPUs by NCCL, through CuPy's interface of it.

A ring sends 2 (n - 1) / n of a sum's bytes from each device; copies between all devices send n - 1 of it.
The order of a ring's sums depends on the number of rows, so other requests may change bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from camelid.errors import BackendError
from camelid_native.cuda.device_driver import CURRENT
from camelid_native.cuda.program import CudaProgram, Launch
from camelid_native.cuda.sums import Collective

FLOAT32, SUM = 7, 0  # ncclDataType_t, ncclRedOp_t
WAY_OUT = "on NVIDIA install 'camelid[cuda]' and nvidia-nccl-cu12 (or cuda13 and -cu13), or omit collective"


class Nccl:
    """A communicator of each GPU, by the driver's numbers."""

    def __init__(self, numbers: Sequence[int]) -> None:
        """Raises BackendError without CuPy, NCCL or a connection."""
        try:
            self._api: Any = import_module("cupy.cuda.nccl")
        except ImportError as error:
            raise BackendError(
                f"cuda: NCCL needs CuPy, which cannot be imported: {error}; {WAY_OUT}", backend="cuda"
            ) from None
        if not self._api.available:
            raise BackendError(f"cuda: CuPy finds no NCCL; {WAY_OUT}", backend="cuda")
        self._communicators: Sequence[Any] = self._call(
            lambda: self._api.NcclCommunicator.initAll(list(numbers))
        )

    def all_reduce(self, programs: Sequence[CudaProgram], launches: Sequence[Launch]) -> None:
        """Enqueues the sum of all devices' parts, in place."""
        self._call(self._api.groupStart)
        try:
            for communicator, program, launch in zip(self._communicators, programs, launches, strict=True):
                if own := launch.sum:
                    n, stream = own.n_bytes // 4, program.device.stream()
                    self._call(communicator.allReduce, own.at, own.at, n, FLOAT32, SUM, stream)
        finally:
            self._call(self._api.groupEnd)

    def close(self) -> None:
        """Frees the communicators. NCCL waits for the end of graphs with its sums: free programs before."""
        for communicator in self._communicators:
            with suppress(BackendError):
                self._call(communicator.destroy)
        self._communicators = ()

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls NCCL, which may change the thread's device. Raises BackendError."""
        try:
            return function(*arguments)
        except self._api.NcclError as error:
            raise BackendError(f"cuda: NCCL: {error}", backend="cuda") from error
        finally:
            CURRENT.device = None


class NcclSums(Collective):
    """The sums of a plan's programs by NCCL."""

    def __init__(self, nccl: Nccl, programs: Sequence[CudaProgram]) -> None:
        """Runs a first sum, since NCCL connects devices then: no graph may hold that."""
        self._nccl, self._programs = nccl, programs
        first = [next((one for one in program.launches if one.sum), None) for program in programs]
        if sums := [launch for launch in first if launch]:
            self.all_reduce(sums)

    def all_reduce(self, launches: Sequence[Launch]) -> None:
        self._nccl.all_reduce(self._programs, launches)

    def settle(self) -> None:
        """Nothing: NCCL keeps its events."""
