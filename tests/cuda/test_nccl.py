"""Sums by NCCL: its calls over simulated devices, and a model on them.

The double of NCCL checks the calls of a group, and adds by copies between devices: NCCL needs a GPU.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cuda.rig import live, open_rig, open_rigs
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.errors import BackendError, RequestError
from camelid_native.cuda import backend, nccl
from camelid_native.cuda.device_driver import DriverDevice
from camelid_native.cuda.program import SLOTS
from camelid_native.cuda.sums import PeerSums

HOW: dict[str, Any] = {"backend": "cuda", "tensor_parallel": 2, "context": 64, "adapter": "3,1"}


class NcclError(RuntimeError):
    pass


class Double:
    """NCCL as CuPy has it."""

    available, NcclError = True, NcclError

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.group: list[tuple[Any, ...]] | None = None
        self.sums: list[tuple[PeerSums, Any]] = []  # of the sums under way
        self.alive, self.opened, self.graphs = 0, list[list[int]](), set[Any]()
        self.NcclCommunicator = SimpleNamespace(initAll=self.init_all)

    def init_all(self, numbers: list[int]) -> list[Any]:
        self.opened.append(numbers)
        self.alive += len(numbers)
        return [SimpleNamespace(allReduce=self.of(i), destroy=self.destroy) for i in range(len(numbers))]

    def of(self, rank: int) -> Any:
        def all_reduce(*arguments: int) -> None:
            assert self.group is not None, "outside of a group"
            self.group.append((rank, *arguments))

        return all_reduce

    def destroy(self) -> None:
        assert not self.graphs, "NCCL waits for graphs with its sums"
        self.alive -= 1

    def groupStart(self) -> None:
        self.group = []

    def groupEnd(self) -> None:
        assert self.group is not None
        self.calls.append(tuple(self.group))
        peers, launches = self.sums[-1]
        streams = [program.device.stream() for program in peers._programs]
        want = [
            (rank, one.sum.at, one.sum.at, one.sum.n_bytes // 4, 7, 0, streams[rank])
            for rank, one in enumerate(launches)
        ]
        assert self.group == want
        self.group = None
        peers.all_reduce(launches)
        peers.settle()


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Double:
    made = Double()
    own = nccl.Nccl.all_reduce

    def followed(self: nccl.Nccl, programs: Any, launches: Any) -> None:
        made.sums.append((PeerSums(programs), launches))
        own(self, programs, launches)

    capture, drop = DriverDevice.capture, DriverDevice.drop

    def captured(self: DriverDevice, work: Any) -> Any:
        graph = capture(self, work)
        made.graphs.add(graph.value)
        return graph

    def dropped(self: DriverDevice, graph: Any) -> None:
        made.graphs.remove(graph.value)
        drop(self, graph)

    monkeypatch.setattr(DriverDevice, "capture", captured)
    monkeypatch.setattr(DriverDevice, "drop", dropped)
    monkeypatch.setattr(nccl, "import_module", lambda name: made)
    monkeypatch.setattr(nccl.Nccl, "all_reduce", followed)
    monkeypatch.setattr(backend, "open_parallel", open_rigs)
    monkeypatch.setattr(backend, "open_backend", open_rig)
    return made


@pytest.fixture
def path(tmp_path: Path) -> str:
    write_tiny_llama(tmp_path / "tiny.gguf", seed=3, hidden=64, head_dim=16, ffn=128, context=64)
    return str(tmp_path / "tiny.gguf")


def test_a_model_s_sums_are_groups_of_nccl(double: Double, path: str) -> None:
    before = live()
    with camelid.load(path, **HOW) as llm:
        want, promise = llm.logits([1, 5, 9]), llm.capabilities.promise
        assert llm.capabilities.device.count("NCCL") == 0 and promise == "A" and not double.calls
    with camelid.load(path, **HOW, collective="nccl") as llm:
        assert double.opened == [[3, 1]] and double.alive == 2
        can = llm.capabilities
        assert (can.promise, can.device.endswith("; sums by NCCL")) == ("none", True)
        assert llm.logits([1, 5, 9]) == want
        in_graphs = SLOTS * 2 * llm.spec.n_layers
        assert double.calls and len(double.calls) % (1 + in_graphs) == 0, "a first sum is in no graph"
    assert double.alive == 0 and live() == before


def test_a_failure_of_nccl_is_named_and_frees_the_devices(double: Double, path: str) -> None:
    before = live()

    def fail(*_: Any) -> None:
        raise NcclError("unhandled system error")

    double.NcclCommunicator.initAll = fail
    with pytest.raises(BackendError, match="NCCL: unhandled system error"):
        camelid.load(path, **HOW, collective="nccl")
    double.available = False
    with pytest.raises(BackendError, match=r"finds no NCCL; on NVIDIA install .*, or omit collective"):
        camelid.load(path, **HOW, collective="nccl")
    assert live() == before


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"collective": "ring", "tensor_parallel": 2}, "'ring', expected peer or nccl"),
        ({"collective": "nccl"}, "tensor_parallel is 1; give 2 or more GPUs, or omit collective"),
        (
            {"collective": "nccl", "tensor_parallel": 2, "backend": "reference"},
            "backend 'reference' has one way to sum; it is for cuda",
        ),
    ],
)
def test_the_option_is_checked(options: dict[str, Any], told: str, path: str) -> None:
    with pytest.raises(RequestError, match=told):
        camelid.load(path, **options)
