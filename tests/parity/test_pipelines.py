"""Pipelines on one native device: sections share equal pipelines. In pages: e2e/test_executor.py."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from tests.parity.test_loop import CountingDevice
from tests.support.parity.adapters import need_driver
from tests.support.parity.add_one import FORBIDDEN, OWN_PIPELINES, program, step

from camelid.backends.webgpu.host_python import WgpuHost

pytestmark = pytest.mark.parity


def test_equal_pipelines_are_created_once() -> None:
    devices: list[CountingDevice] = []

    def hook(device: Any) -> CountingDevice:
        devices.append(CountingDevice(device))
        return devices[-1]

    async def compile_all(host: WgpuHost) -> tuple[list[int], list[int]]:
        """Each program's result, and the number of pipelines after it."""
        await host.open({"adapter": need_driver("llvmpipe")})
        answers, made = list[int](), list[int]()
        for changes, _, _ in OWN_PIPELINES:
            number = await host.compile(program(**changes))
            answers += struct.unpack("<I", await host.read(host.run(number, step(1, 1))))
            made.append(devices[-1].created["create_compute_pipeline"])
        with pytest.raises(Exception, match="match the shader"):
            await host.compile(program(**FORBIDDEN))
        await host.close()
        return answers, made

    async def twice() -> None:
        host = WgpuHost(hook)
        for _ in range(2):  # a closed device's pipelines are not reused
            answers, made = await compile_all(host)
            assert answers == [answer for _, answer, _ in OWN_PIPELINES]
            assert made == [1, 1, 2, 3, 3]
            assert devices[-1].created["create_shader_module"] == 2, "pipelines of one text share a module"

    asyncio.run(twice())
