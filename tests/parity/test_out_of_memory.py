"""A device without memory: a clear error, nothing left behind, and what ran before goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.gguf_files import write_tiny_llama
from tests.support.parity.adapters import need_driver

pytestmark = [pytest.mark.parity, pytest.mark.faults]

# Under a bound of the process' memory, which lavapipe's buffers share.
SCRIPT = """
import resource, sys
import camelid

how = {"backend": "vulkan", "adapter": "llvmpipe", "parallel": 1}
small = camelid.load(sys.argv[1], context=64, **how)
answer = small.generate("a", max_tokens=4, temperature=0).token_ids
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (700 << 20), resource.RLIM_INFINITY))
try:
    camelid.load(sys.argv[1], context=250_000, **how)
except camelid.OutOfMemoryError as error:
    print(error)
    print(error.want_bytes, error.held_bytes)
with camelid.load(sys.argv[1], context=20_000, **how) as llm:
    assert llm.generate("a", max_tokens=4, temperature=0).token_ids == answer
assert small.generate("a", max_tokens=4, temperature=0).token_ids == answer
"""


@pytest.mark.exhaustive  # ordinary runs have a full device of `cuda` (`tests/cuda/test_memory.py`)
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS bounds memory on Linux only")
def test_an_absurd_context_is_told_and_leaves_no_memory(tmp_path: Path) -> None:
    need_driver("llvmpipe")
    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, seed=5, n_layers=6, context=1 << 20)
    command = [sys.executable, "-c", SCRIPT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    message, numbers = done.stdout.splitlines()
    want, held = map(int, numbers.split())
    assert f"allocate needs {want:,} bytes beside {held:,} in use, more than llvmpipe" in message
    assert "use a smaller context, kv_type or quantization" in message
    assert want > 700 << 20 > held > 0
