"""An engine whose steps block until a test opens a gate, as a slow device blocks its thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from os import PathLike

from camelid.api.llm import LLM
from camelid.api.runner import Runner
from camelid.backends.base import Program, Ticket
from camelid.backends.null.backend import NullBackend
from camelid.loading.options import LoadOptions
from camelid.loading.start import start

PATIENCE_S = 20.0  # limit of each wait: a hanging test fails


class Gate(NullBackend):
    """`entered` is set when a step waits for `gate`."""

    def __init__(self) -> None:
        super().__init__(lambda sequence, position: 65)
        self.gate, self.entered = threading.Event(), threading.Event()

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        self.entered.set()
        assert self.gate.wait(PATIENCE_S), "no step reached the gate in time"
        return super().run(program, step, inputs)


async def gated(path: str | PathLike[str]) -> tuple[LLM, Gate]:
    running = await start(path, LoadOptions(backend="null", context=128))
    gate = Gate()
    running.engine.backend = gate
    return LLM(running, Runner()), gate
