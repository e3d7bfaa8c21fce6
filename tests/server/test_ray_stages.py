"""A model in stages on a two-node Ray cluster: equal bits, and answers while stages and nodes are killed."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("ray.serve", reason="needs Ray: pip install 'camelid[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # Ray's own warnings are not ours

import ray  # noqa: E402
import ray.serve as serve  # noqa: E402
from tests.support.ray_load import FRONT, Tally, cluster, load, pids_of  # noqa: E402
from tests.support.stage_answers import answers  # noqa: E402

import camelid.ray  # noqa: E402
from camelid.errors import RequestError  # noqa: E402
from camelid.loading.options import LoadOptions  # noqa: E402
from camelid.loading.start import start  # noqa: E402
from camelid.ray.stages import Cut, Stages  # noqa: E402

PORT = 8315
URL = f"http://127.0.0.1:{PORT}"
N_REQUESTS = 48
OPTIONS = LoadOptions(backend="cpu", threads=1, parallel=6)
SEAT = {"num_cpus": 0.5, "resources": {"seat": 1}}
GONE_S = 30.0  # until the processes of an ended application must be gone


@pytest.mark.parametrize(
    ("words", "field"), [({"stages": 0}, "stages"), ({"placement": "NEAR"}, "placement")]
)
def test_what_does_not_exist_is_refused_before_anything_starts(words: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        camelid.ray.app("cria", **words)
    assert caught.value.field == field


def test_each_stage_has_a_place() -> None:
    """A bundle for the replica, and one for each stage with its resources."""
    options = {"num_cpus": 3, "memory": 7, "resources": {"seat": 1}}
    group = Cut(2, "cpu", options, "STRICT_SPREAD").group({"num_cpus": 1, "num_gpus": 0})
    own = {"CPU": 3.0, "memory": 7.0, "seat": 1.0}
    assert group["placement_group_bundles"] == [{"CPU": 1.0}, own, own]
    assert group["placement_group_strategy"] == "STRICT_SPREAD"
    assert Cut().group({"num_cpus": 1}) == {}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with cluster(PORT, seats=2) as nodes:
        yield nodes


@pytest.mark.usefixtures("nodes")
def test_bits_equal_one_process() -> None:
    """With a step under way in each stage, and each stage on a node of its own."""

    async def staged() -> Any:
        stages = Stages(Cut(2, "cpu", {**SEAT, "scheduling_strategy": "SPREAD"}))
        try:
            running = await start("cria", OPTIONS, stages=stages.backends)
            found = await answers(running)
            seen = running.backend.memory().counters["stages_at_once"]
            places = ray.get([actor.node.remote() for actor in stages._actors])
            await running.close()
        finally:
            stages.close()
        assert (seen, len(set(places))) == (2, 2)
        return found

    async def whole() -> Any:
        running = await start("cria", OPTIONS)
        found = await answers(running)
        await running.close()
        return found

    assert asyncio.run(staged()) == asyncio.run(whole())


@pytest.fixture(scope="module")
def expected(nodes: Any) -> Iterator[dict[int, str]]:
    """The texts of a quiet run of the application."""
    words = {"backend": "cpu", "threads": 1, "parallel": 8, "actor_options": FRONT, "gate_options": FRONT}
    serve.run(camelid.ray.app("cria", stages=2, stage_options=SEAT, **words))
    assert len(pids_of("ray::Stage")) == 2
    yield load(URL, N_REQUESTS)[0].texts
    serve.delete("default")
    until = time.monotonic() + GONE_S
    while (left := pids_of("ray::Stage")) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left, "stages outlive their application"


def check(tally: Tally, expected: dict[int, str]) -> None:
    """Every answer is whole at last, with its bits; every attempt that failed says why."""
    assert not tally.lost
    assert tally.texts == expected
    assert tally.errors
    assert set(tally.errors) <= {"503 device_lost", "503 engine_failed", "in the stream: device_lost"}


def test_a_stage_is_killed_under_load(expected: dict[int, str]) -> None:
    before = pids_of("ray::Stage")
    tally, _ = load(URL, N_REQUESTS, lambda: os.kill(before[0], signal.SIGKILL))
    check(tally, expected)
    after = pids_of("ray::Stage")
    assert (len(after), len(set(before) & set(after))) == (2, 1), "Ray started no other stage"


def test_a_node_is_killed_under_load(nodes: Any, expected: dict[int, str]) -> None:
    """Its stage moves to the node that is left."""
    tally, _ = load(
        URL, N_REQUESTS, lambda: nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)
    )
    check(tally, expected)
    assert len(pids_of("ray::Stage")) == 2
