"""Peers of a remote backend that lie, break the protocol, stop or die."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

zmq = pytest.importorskip("zmq", reason="needs pyzmq: pip install 'camelid[ray]'")

from tests.backends.test_staged import Kept, one_step, started, started_alone  # noqa: E402
from tests.support.model.stress.shapes import SHAPES  # noqa: E402
from tests.support.stages import TOKEN, named, stage, stage_process  # noqa: E402

from camelid.backends.base import Backend, OpenSpec  # noqa: E402
from camelid.backends.reference.backend import ReferenceBackend  # noqa: E402
from camelid.backends.remote.backend import RemoteBackend  # noqa: E402
from camelid.backends.remote.frames import HEADER, MAX_FRAMES, PROTOCOL, Kind, keys_of, table_bytes  # noqa: E402
from camelid.backends.remote.server import StageServer  # noqa: E402
from camelid.backends.remote.sources import digest  # noqa: E402
from camelid.backends.remote.tables import table_of  # noqa: E402
from camelid.backends.staged.backend import StagedBackend  # noqa: E402
from camelid.errors import (  # noqa: E402
    BackendError,
    CamelidError,
    DeviceLostError,
    ModelFormatError,
    RequestError,
)
from camelid.plan.weights import Part, Weight  # noqa: E402

MODEL = SHAPES["gpt_oss"].model()
N = len(MODEL.spec.layers)
REFERENCE = named("reference")
LOST_S = 1.0


def test_a_wrong_token_is_refused_at_once() -> None:
    with stage(REFERENCE) as server:
        backend, began = RemoteBackend(server.address, "another token of the tests"), time.monotonic()
        with pytest.raises(DeviceLostError, match=r"no stage answers at tcp.*is its token the engine's"):
            asyncio.run(backend.open(OpenSpec()))
        assert time.monotonic() - began < 8, "a refusal took longer than a lost peer"


def test_a_short_token_is_refused() -> None:
    with pytest.raises(RequestError, match="has 5 characters, expected at least 16"):
        keys_of("short")


def test_nobody_at_the_address() -> None:
    backend = RemoteBackend("tcp://127.0.0.1:9", TOKEN, lost_s=LOST_S)
    with pytest.raises(DeviceLostError, match=r"no stage answers at tcp://127\.0\.0\.1:9"):
        asyncio.run(backend.open(OpenSpec()))


class Raw:
    """A peer that holds the token and sends what it likes."""

    def __init__(self, address: str) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.curve_serverkey, _ = keys_of(TOKEN)
        self.socket.curve_publickey, self.socket.curve_secretkey = zmq.curve_keypair()
        self.socket.connect(address)

    def ask(self, *frames: bytes) -> list[bytes]:
        self.socket.send_multipart(frames)
        assert self.socket.poll(30_000), "no reply"
        return self.socket.recv_multipart()

    def hello(self, protocol: object = PROTOCOL) -> list[bytes]:
        return self.ask(HEADER.pack(Kind.HELLO, 1), table_bytes({"protocol": protocol}))

    def close(self) -> None:
        self.socket.close()
        self.context.term()


@pytest.fixture
def raw() -> Iterator[Raw]:
    with stage(REFERENCE) as server:
        peer = Raw(server.address)
        yield peer
        peer.close()


def kind_of(reply: list[bytes]) -> int:
    return HEADER.unpack(reply[0])[0]


def test_another_version_is_refused_by_name(raw: Raw) -> None:
    reply = raw.hello("0, camelid 0.0")
    assert kind_of(reply) == Kind.FAILURE
    assert b"install one version of camelid" in reply[1]
    assert kind_of(raw.hello()) == Kind.REPLY


def test_a_peer_that_does_not_greet_is_refused(raw: Raw) -> None:
    reply = raw.ask(HEADER.pack(Kind.CALL, 1), table_bytes({"call": "memory"}))
    assert (kind_of(reply), b"has not greeted" in reply[1]) == (Kind.FAILURE, True)


DAMAGED: dict[str, list[bytes]] = {
    "no header": [b""],
    "a long header": [bytes(40)],
    "an unknown kind": [HEADER.pack(99, 1)],
    "a stage's kind": [HEADER.pack(Kind.REPLY, 1)],
    "too many frames": [HEADER.pack(Kind.CALL, 1), *[b""] * MAX_FRAMES],
    "no table": [HEADER.pack(Kind.CALL, 1)],
    "a table that is none": [HEADER.pack(Kind.CALL, 1), b"{"],
    "a deep table": [HEADER.pack(Kind.CALL, 1), b"[" * 100_000],
    "a list": [HEADER.pack(Kind.CALL, 1), b"[]"],
    "an unknown call": [HEADER.pack(Kind.CALL, 1), b'{"call": "system"}'],
    "an unknown class": [
        HEADER.pack(Kind.CALL, 1),
        b'{"call": "open", "spec": {"=": "Popen", "args": "sh"}}',
    ],
    "another class": [HEADER.pack(Kind.CALL, 1), b'{"call": "open", "spec": {"=": "Part"}}'],
    "no weights": [HEADER.pack(Kind.CALL, 1), b'{"call": "load", "weights": [1], "sources": {}}'],
    "no plan": [HEADER.pack(Kind.CALL, 1), b'{"call": "compile", "plan": [[[]]]}'],
    "no states": [HEADER.pack(Kind.CALL, 1), b'{"call": "allocate"}'],
    "a step without program": [HEADER.pack(Kind.RUN, 1), b""],
    "an unknown program": [HEADER.pack(Kind.RUN, 1), struct.pack("<I", 3), b""],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_messages_are_answered_and_harm_nothing(raw: Raw, name: str) -> None:
    raw.hello()
    reply = raw.ask(*DAMAGED[name])
    assert kind_of(reply) == Kind.FAILURE
    opened = raw.ask(HEADER.pack(Kind.CALL, 2), table_bytes({"call": "open", "spec": table_of(OpenSpec())}))
    assert kind_of(opened) == Kind.REPLY, "the session ended"


def test_steps_of_wrong_sizes_never_reach_the_backend() -> None:
    with stage(REFERENCE) as server:
        backend = RemoteBackend(server.address, TOKEN)

        async def run() -> None:
            await backend.open(OpenSpec())
            program, step = one_step(await started_alone(backend))
            link = backend._opened()
            for frames in ((step[:-4],), (step, b"more"), ()):
                with pytest.raises(BackendError, match="damaged"):
                    link.ask(Kind.RUN, program.handle, *frames).result(30)
            assert len(await backend.read(backend.run(program, step))) > 0
            await backend.close()

        asyncio.run(run())


def test_every_byte_of_a_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("camelid.backends.remote.sources.BLOCK_BYTES", 1000)
    path, data = tmp_path / "model.bin", random.Random(1).randbytes(4500)
    seen = set[str]()
    for i in range(-1, len(data), 97):
        changed = data if i < 0 else data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :]
        path.write_bytes(changed)
        os.utime(path, ns=(i + 2, i + 2))  # a file system's clock may be coarse
        seen.add(digest(path))
    path.write_bytes(data[:-1])
    assert len(seen | {digest(path)}) == len(range(-1, len(data), 97)) + 1


def test_a_file_that_differs_is_refused(tmp_path: Path) -> None:
    """Its path may be right: a stage compares bytes."""
    path = tmp_path / "model.bin"
    path.write_bytes(bytes(4096))
    weight = Weight(name="w", type="f32", shape=(8,), parts=(Part("m", 0, 32),))
    sources = {"m": {"path": str(path), "digest": digest(path)}}
    with stage(REFERENCE) as server:
        backend = RemoteBackend(server.address, TOKEN)

        async def load() -> None:
            await backend._call("load", weights=table_of([weight]), sources=sources)

        async def run() -> None:
            await backend.open(OpenSpec())
            await load()
            path.write_bytes(bytes(4095) + b"1")
            os.utime(path, ns=(1, 1))  # a file system's clock may be coarse
            with pytest.raises(ModelFormatError, match="differs from the engine's"):
                await load()
            path.unlink()
            with pytest.raises(ModelFormatError, match=r"No such file.*needs the model at this path"):
                await load()
            await backend.close()

        asyncio.run(run())


async def begun(backend: StagedBackend) -> Any:
    await backend.open(OpenSpec())
    return await started(backend)


class Slow(ReferenceBackend):
    """A reference whose steps take a while."""

    async def read(self, ticket: Any) -> Any:
        time.sleep(0.5)
        return await super().read(ticket)


def test_an_engine_that_comes_later_takes_the_stage() -> None:
    with stage(REFERENCE) as server:
        old, new = (RemoteBackend(server.address, TOKEN) for _ in range(2))

        async def run() -> None:
            await old.open(OpenSpec())
            program, step = one_step(await started_alone(old))
            await new.open(OpenSpec())
            with pytest.raises(DeviceLostError, match="another engine has taken this stage"):
                await old.read(old.run(program, step))
            program, step = one_step(await started_alone(new))
            assert await new.read(new.run(program, step))
            await old.close()
            await new.close()

        asyncio.run(run())


def closes(kept: Kept, seconds: float = 10.0) -> bool:
    """True if the backend is closed in time."""
    end = time.monotonic() + seconds
    while not kept.is_closed and time.monotonic() < end:
        time.sleep(0.02)  # between looks at another thread's work
    return kept.is_closed


@pytest.mark.parametrize("says_goodbye", [True, False])
def test_a_stage_frees_its_memory_when_its_engine_goes(says_goodbye: bool) -> None:
    kept: list[Kept] = []

    def make() -> Backend:
        kept.append(Kept())
        return kept[-1]

    with stage(make) as server:
        peer = Raw(server.address)
        peer.hello()
        if says_goodbye:
            peer.socket.send(HEADER.pack(Kind.BYE, 0))
            time.sleep(0.1)
        peer.close()
        assert closes(kept[0])


def test_an_engine_whose_queue_outlives_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """libzmq reports a disconnection before it cuts the queue: a message in between seems to be sent."""
    kept, sent, send = Kept(), list[int](), StageServer._send

    def late(server: StageServer, identity: bytes, *frames: bytes) -> bool:
        if HEADER.unpack(frames[0])[0] != Kind.PING:
            return send(server, identity, *frames)
        sent.append(len(sent))
        return len(sent) <= 3

    monkeypatch.setattr(StageServer, "_send", late)
    with stage(lambda: kept) as server:
        peer = Raw(server.address)
        peer.hello()
        peer.close()
        assert closes(kept)
    assert len(sent) == 4, "a stage probes until the engine is gone"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_stage_that_dies_in_a_step(how: signal.Signals) -> None:
    """Killed, it is noticed at once; stopped, after the time of a lost peer. Later calls fail at once."""
    with stage_process("reference") as (child, address), stage(Slow) as first:
        parts = [RemoteBackend(first.address, TOKEN), RemoteBackend(address, TOKEN, lost_s=LOST_S)]
        backend = StagedBackend(parts, (1,), N)

        async def run() -> None:
            program, step = one_step(await begun(backend))
            ticket = backend.run(program, step)
            child.send_signal(how)
            began = time.monotonic()
            with pytest.raises(DeviceLostError, match=r"stage 2 of 2.*was lost.*load the model again"):
                await backend.read(ticket)
            assert time.monotonic() - began < 4 * LOST_S + 5
            with pytest.raises(DeviceLostError, match="stage 2 of 2"):
                await backend.read(backend.run(program, step))
            began = time.monotonic()
            await backend.close()
            assert time.monotonic() - began < 5, "closing waits for a lost peer"

        asyncio.run(run())


def test_a_closed_backend_says_so() -> None:
    backend = RemoteBackend("tcp://127.0.0.1:9", TOKEN)
    with pytest.raises(CamelidError, match="is not open; call open"):
        asyncio.run(backend.read_state("kv", 1))
    assert backend.memory().weight_bytes == 0
