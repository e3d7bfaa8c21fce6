"""`python -m tests.cuda.planted NAME`: a kernel with a planted error on the rig, in a process of its own.

Prints the floats that the kernel writes, unless the emulator or a sanitizer ends the process before.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from struct import unpack

from tests.cuda.rig import RigCompiler, open_device

from camelid_native.cuda.compiler import Module
from camelid_native.cuda.signature import signatures

THREADS, BLOCKS = 128, 4
BODIES = {
    "fine": "SHARED(float, a, 128); a[THREAD] = THREAD; SYNC(); y[THREAD] = shuffle(1, 1) + a[127 - LANE];",
    "half a barrier": "if (THREAD < 64) SYNC(); y[THREAD] = 1.0f;",
    "two barriers": "if (THREAD < 64) SYNC();\n else SYNC();\n y[THREAD] = 1.0f;",
    "left before a barrier": "if (THREAD == 0) return; SYNC(); y[THREAD] = 1.0f;",
    "half a shuffle": "float v = 1.0f; if (LANE < 16) v = shuffle_xor(v, 1); y[THREAD] = v;",
    "left before a shuffle": "if (THREAD == 0) return; y[THREAD] = shuffle_xor(1.0f, 1);",
    "too much shared memory": "SHARED(float, a, 32768); a[THREAD] = 1.0f; y[THREAD] = a[THREAD];",
    "a load between words": "y[THREAD] = as_float(load16(y + 1).x);",
    "unwritten shared memory": "SHARED(float, a, 128); y[THREAD] = a[THREAD];",
    "missing barrier": "SHARED(float, a, 128); a[THREAD] = THREAD; y[THREAD] = a[127 - THREAD];",
    "two writers": "SYNC(); y[THREAD / 2] = THREAD;",
    "two blocks": "if (THREAD == 7) y[0] = BLOCK_X;",
    "beyond shared memory": "SHARED(float, a, 128); a[THREAD + 1] = 1.0f; SYNC(); y[THREAD] = a[THREAD];",
    "beyond memory": "y[THREAD + 1] = 1.0f;",
}


@dataclass(frozen=True)
class Text(Module):
    """A module whose text is given."""

    body: str = ""

    @property
    def text(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"{Module('norm').text}\nKERNEL(planted, {THREADS})(float *y) {{\n{self.body}\n}}\n"


def run(name: str) -> list[float]:
    """The floats that a planted kernel writes."""
    module, device = Text("planted", body=BODIES[name]), open_device()
    signature = signatures(module.text)["planted"]
    loaded = device.module(RigCompiler().image(module, ""))
    y = device.allocate(4 * THREADS)
    at, held = device.pinned(4 * THREADS)
    grid = (BLOCKS if name == "two blocks" else 1, 1, 1)
    device.launch(
        device.kernel(loaded, signature.symbol), grid, signature.threads, signature.packed({"y": y})
    )
    device.copy(at, y, 4 * THREADS)
    device.wait(device.mark())
    return list(unpack(f"<{THREADS}f", held))


if __name__ == "__main__":
    print(*run(sys.argv[1]))
