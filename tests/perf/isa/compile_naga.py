"""Creates compute pipelines on the first Vulkan adapter with wgpu, whose WGSL compiler is Naga.

`compiled.py` runs this file under a driver's own C library; the Vulkan layer writes one record per pipeline.
Prints the adapter, then per pipeline its first record, the number of its records, times and error.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import wgpu

KINDS = {"read": "read-only-storage", "write": "storage"}
FEATURES = {"shader-f16", "subgroup", "subgroup-barrier"}
LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-compute-workgroup-storage-size",
    "max-storage-buffers-per-shader-stage",
)


def n_records() -> int:
    out = Path(os.environ["ISA_OUT"])
    return out.read_bytes().count(b"\n") if out.exists() else 0


def create(device: Any, entry: dict[str, Any]) -> dict[str, float]:
    """Creates one pipeline; the milliseconds of its module, and of its pipeline."""
    start = time.perf_counter()
    module = device.create_shader_module(code=entry["wgsl"])
    middle = time.perf_counter()
    entries = [
        {"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": KINDS[word]}}
        for i, word in enumerate(entry["access"])
    ]
    layout = device.create_pipeline_layout(
        bind_group_layouts=[device.create_bind_group_layout(entries=entries)]
    )
    stage = {"module": module, "entry_point": "main", "constants": entry["constants"]}
    device.create_compute_pipeline(layout=layout, compute=stage)
    return {"module_ms": 1e3 * (middle - start), "pipeline_ms": 1e3 * (time.perf_counter() - middle)}


def main() -> None:
    adapter = next(
        (a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] == "Vulkan"), None
    )
    if not adapter:
        raise SystemExit("no Vulkan adapter")
    limits = {name: adapter.limits[name] for name in LIMITS}
    device = adapter.request_device_sync(
        required_features=list(FEATURES & set(adapter.features)), required_limits=limits
    )
    print(json.dumps({"device": adapter.info["device"]}), flush=True)
    for entry in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        first, done = n_records(), dict[str, Any]()
        try:
            done = create(device, entry)
        except Exception as error:  # the next pipeline may compile
            done = {"error": str(error)}
        print(json.dumps({"first": first, "records": n_records() - first, **done}), flush=True)


if __name__ == "__main__":
    main()
