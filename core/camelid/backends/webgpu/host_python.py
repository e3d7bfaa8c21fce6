"""The native host: executes sections (see tape.py) through wgpu-py, without any knowledge of models.

The file is also a program that runs without camelid: `python host_python.py tape.json model.gguf` replays a
tape, compares every token with the recording, and prints the tokens.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import struct
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import wgpu  # pyright: ignore[reportMissingTypeStubs] - wgpu-py ships none

USAGE = {
    "storage": wgpu.BufferUsage.STORAGE,
    "copy_src": wgpu.BufferUsage.COPY_SRC,
    "copy_dst": wgpu.BufferUsage.COPY_DST,
    "map_read": wgpu.BufferUsage.MAP_READ,
}
BINDING = {"read": "read-only-storage", "write": "storage"}
Built = tuple[list[Any], list[Any]]  # pipelines, bind groups
Launch = tuple[Any, Any, list[int]]  # pipeline, bind group, workgroups
GRID_WORDS = 5  # the first words of a step, the counts that grids depend on
Names = Mapping[str, Any]
RESULT_WORDS = 4  # id, status, logit, log-sum-exp
READ = wgpu.MapMode.READ
LANGUAGE = ["packed_4x8_integer_dot_product"]  # WGSL language features; wgpu lists none of those that it has


class WgpuHost:
    """A host on one device. `hook` may wrap the device, e.g. to count created objects."""

    def __init__(self, hook: Callable[[Any], Any] = lambda device: device) -> None:
        self._hook = hook
        self._device: Any = None
        self._buffers: dict[str, Any] = {}
        self._modules: dict[str, Any] = {}  # by WGSL; shared by sections, as the pipelines
        self._pipelines: dict[str, Any] = {}  # by WGSL, layout and constants
        self._programs: dict[int, Program] = {}

    async def open(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Opens the adapter whose name contains `spec["adapter"]`; the strongest adapter if that is empty.

        `spec["limits"]` has the requested limits by name, 0 for the adapter's own.
        """
        adapter = choose_adapter(str(spec.get("adapter", "")), str(spec.get("api", "")))
        wanted = {_dashed(name): value for name, value in spec.get("limits", {}).items()}
        required = {name: value or adapter.limits[name] for name, value in wanted.items()}
        self._device = self._hook(adapter.request_device_sync(required_limits=required))
        self._forget_compiled()  # it belongs to the previous device
        limits = {_camel(name): value for name, value in self._device.limits.items()}
        facts = {k: str(v) for k, v in dict(adapter.info).items()}
        return {"adapter": facts, "limits": limits, "language": LANGUAGE}

    async def load(self, section: Mapping[str, Any], sources: Mapping[str, Any]) -> None:
        """Executes uploads and dispatches in order, each submitted immediately."""
        with ExitStack() as stack:
            stack.enter_context(self._undone(section))
            built = self._build(section)
            files = {name: stack.enter_context(_opened(handle)) for name, handle in sources.items()}
            for command in section["commands"]:
                self._execute(command, built, files)
        for buffer in section["buffers"]:
            if buffer.get("temporary"):
                self._buffers.pop(buffer["name"]).destroy()

    async def allocate(self, section: Mapping[str, Any]) -> None:
        for name in section.get("dropped", ()):
            if name in self._buffers:
                self._buffers.pop(name).destroy()
        with self._undone(section):
            self._build(section)

    def prepare(self, section: Mapping[str, Any]) -> None:
        """Compiles nothing in advance: wgpu-py compiles while it blocks."""

    async def compile(self, section: Mapping[str, Any]) -> int:
        """Creates all objects that the program's steps need. Returns the program's number."""
        number = len(self._programs) + 1
        with self._undone(section):
            built = self._build(section)
            self._programs[number] = Program(self._device, section, built, self._buffers)
        return number

    def run(self, program: int, step: bytes) -> tuple[int, int, int]:
        """Submits one step without waiting for the device, and returns a ticket."""
        slot, n_bytes = self._programs[program].submit(step)
        return program, slot, n_bytes

    async def read(self, ticket: tuple[int, int, int]) -> bytes:
        """Reads a step's results. A ticket can be read once."""
        program, slot, n_bytes = ticket
        await asyncio.sleep(0)  # yield to other tasks: the mapping below blocks
        return self._programs[program].read(slot, n_bytes)

    async def read_state(self, buffer: str, offset: int, n_bytes: int) -> bytes:
        return bytes(self._device.queue.read_buffer(self._buffers[buffer], offset, n_bytes))

    async def write_state(self, buffer: str, offset: int, data: bytes) -> None:
        self.write(buffer, offset, data)

    def write(self, buffer: str, offset: int, data: bytes) -> None:
        """Writes bytes before the next submitted step."""
        self._device.queue.write_buffer(self._buffers[buffer], offset, data)

    def memory(self) -> dict[str, int]:
        return {name: buffer.size for name, buffer in self._buffers.items()}

    async def close(self) -> None:
        for buffer in self._buffers.values():
            buffer.destroy()
        self._buffers.clear()
        self._forget_compiled()
        self._programs.clear()
        self._device = None

    @contextmanager
    def _undone(self, section: Mapping[str, Any]) -> Generator[None]:
        """Destroys the section's buffers if it fails."""
        try:
            yield
        except BaseException:
            for entry in section["buffers"]:
                if entry["name"] in self._buffers:
                    self._buffers.pop(entry["name"]).destroy()
            raise

    def _build(self, section: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
        """Creates a section's buffers, pipelines and bind groups."""
        device = self._device
        for buffer in section["buffers"]:
            self._create_buffer(buffer)
        layouts = {
            key: device.create_bind_group_layout(entries=_entries(access))
            for key, access in section["layouts"].items()
        }
        pipelines = self._compiled(section, layouts)
        groups = [
            device.create_bind_group(layout=layouts[group["layout"]], entries=self._places(group["bindings"]))
            for group in section["groups"]
        ]
        return pipelines, groups

    def _compiled(self, section: Mapping[str, Any], layouts: Names) -> list[Any]:
        """Pipelines of a section. Pipelines of earlier sections are reused, since compilation is slow."""
        keys = [_key(section, entry) for entry in section["pipelines"]]
        todo = {k: e for k, e in zip(keys, section["pipelines"], strict=True) if k not in self._pipelines}
        modules = {entry["module"]: self._module(section, entry["module"]) for entry in todo.values()}
        for key, entry in todo.items():
            self._pipelines[key] = _pipeline(self._device, entry, layouts, modules)
        return [self._pipelines[key] for key in keys]

    def _module(self, section: Mapping[str, Any], name: str) -> Any:
        wgsl: str = section["modules"][name]
        if wgsl not in self._modules:
            self._modules[wgsl] = self._device.create_shader_module(code=wgsl)
        return self._modules[wgsl]

    def _forget_compiled(self) -> None:
        self._modules.clear()
        self._pipelines.clear()

    def _create_buffer(self, entry: Mapping[str, Any]) -> None:
        usage = 0
        for word in entry["usage"]:
            usage |= USAGE[word]
        old = self._buffers.pop(entry["name"], None)
        if old is not None:
            old.destroy()
        self._buffers[entry["name"]] = self._device.create_buffer(size=entry["bytes"], usage=usage)
        if "data" in entry:
            data = base64.b64decode(entry["data"])
            self._device.queue.write_buffer(self._buffers[entry["name"]], 0, data)

    def _places(self, bindings: list[list[Any]]) -> list[dict[str, Any]]:
        return [
            {"binding": i, "resource": {"buffer": self._buffers[name], "offset": offset, "size": size}}
            for i, (name, offset, size) in enumerate(bindings)
        ]

    def _execute(self, command: list[Any], built: Built, files: Mapping[str, Any]) -> None:
        name, *rest = command
        if name == "upload":
            self._upload(files, *rest)
        elif name == "words":
            buffer, at, words = rest
            data = struct.pack(f"<{len(words)}I", *words)
            self._device.queue.write_buffer(self._buffers[buffer], at, data)
        else:
            encoder = self._device.create_command_encoder()
            _encode(encoder, _launches([rest], built, ()))
            self._device.queue.submit([encoder.finish()])

    def _upload(
        self, files: Mapping[str, Any], source: Any, offset: int, n_bytes: int, buffer: str, at: int
    ) -> None:
        if not isinstance(source, str):
            data = base64.b64decode(source[1])[offset : offset + n_bytes]
        else:
            files[source].seek(offset)
            data = files[source].read(n_bytes)
        if len(data) != n_bytes:
            raise OSError(f"source {source!r} ends after {len(data)} of {n_bytes} bytes at {offset}")
        self._device.queue.write_buffer(self._buffers[buffer], at, data + bytes(-n_bytes % 4))


def _opened(handle: Any) -> Any:
    """The open file of a source: of a path, or of a handle that opens itself."""
    return (handle if hasattr(handle, "open") else Path(handle)).open("rb")


class Program:
    """A compiled section. It replays the dispatches, and reads results through a ring of mapped buffers."""

    def __init__(
        self,
        device: Any,
        section: Mapping[str, Any],
        built: Built,
        buffers: Mapping[str, Any],
    ) -> None:
        self._device, self._built = device, built
        self._dispatches = [command[1:] for command in section["commands"]]
        self._counts, self._launches = tuple[int, ...](), list[Launch]()  # of the last step
        self._step, self._step_bytes = buffers[section["step"][0]], section["step"][1]
        self._results = [(buffers[name], *rest) for name, *rest in section["results"]]
        sizes = {entry["name"]: entry["bytes"] for entry in section["buffers"]}
        size = max(16, sum(sizes[name] for name, *_ in section["results"]))
        usage = USAGE["map_read"] | USAGE["copy_dst"]
        self._ring = [device.create_buffer(size=size, usage=usage) for _ in range(section["ring"])]
        self._free = list(range(len(self._ring)))

    def submit(self, step: bytes) -> tuple[int, int]:
        if not self._free:
            raise RuntimeError(f"{len(self._ring)} steps are in flight; read one before the next")
        slot = self._free[0]
        words = struct.unpack(f"<{len(step) // 4}I", step)
        self._device.queue.write_buffer(self._step, 0, step)
        encoder = self._device.create_command_encoder()
        _encode(encoder, self._launches_of(words[:GRID_WORDS]))
        at = 0
        for buffer, offset, word, each in self._results:
            n_bytes = words[word] * each
            if n_bytes:
                encoder.copy_buffer_to_buffer(buffer, offset, self._ring[slot], at, n_bytes)
            at += n_bytes
        self._device.queue.submit([encoder.finish()])
        self._free.remove(slot)  # after the submission, so that a failed step occupies no slot
        return slot, at

    def _launches_of(self, counts: tuple[int, ...]) -> list[Launch]:
        """The launches of a step with these counts, which those of the step before often equal."""
        if counts != self._counts:
            self._counts, self._launches = counts, _launches(self._dispatches, self._built, counts)
        return self._launches

    def read(self, slot: int, n_bytes: int) -> bytes:
        buffer = self._ring[slot]
        try:
            if not n_bytes:
                return b""
            buffer.map_sync(READ, 0, n_bytes)
            data = bytes(buffer.read_mapped(0, n_bytes))
            buffer.unmap()
            return data
        finally:
            self._free.append(slot)


def choose_adapter(name: str, api: str = "") -> Any:
    """The strongest adapter whose description contains `name`, on `api` (Vulkan, Metal, D3D12 or "")."""
    with _runtime_folder():
        every: list[Any] = list(wgpu.gpu.enumerate_adapters_sync())
    adapters = [a for a in every if a.info["backend_type"] in (api or "Vulkan Metal D3D12")]
    texts = [" ".join(map(str, dict(a.info).values())) for a in adapters]
    fitting = [a for a, text in zip(adapters, texts, strict=True) if name.lower() in text.lower()]
    if not fitting:
        found = "; ".join(texts) or "no adapter at all (is a Vulkan, Metal or D3D12 driver installed?)"
        raise LookupError(f"no adapter matches {name or api!r}; found: {found}")
    order = ["DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown", "CPU"]
    return min(fitting, key=lambda a: [*order, a.info["adapter_type"]].index(a.info["adapter_type"]))


@contextmanager
def _runtime_folder() -> Generator[None]:
    """Sets XDG_RUNTIME_DIR in the block if it is missing, as on servers: Mesa would print four lines of
    warnings while drivers are listed."""
    is_missing = "XDG_RUNTIME_DIR" not in os.environ
    if is_missing:
        os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
    try:
        yield
    finally:
        if is_missing:
            del os.environ["XDG_RUNTIME_DIR"]


def _entries(access: list[str]) -> list[dict[str, Any]]:
    visibility = wgpu.ShaderStage.COMPUTE
    kinds = [{"type": BINDING[word]} for word in access]
    return [{"binding": i, "visibility": visibility, "buffer": kind} for i, kind in enumerate(kinds)]


def _key(section: Names, entry: Names) -> str:
    """The cache key of a pipeline: its module, layout and constants."""
    parts = [section["modules"][entry["module"]], section["layouts"][entry["layout"]], entry["constants"]]
    return json.dumps(parts)


def _pipeline(device: Any, entry: Names, layouts: Names, modules: Names) -> Any:
    stage = {"module": modules[entry["module"]], "entry_point": "main", "constants": entry["constants"]}
    shape = device.create_pipeline_layout(bind_group_layouts=[layouts[entry["layout"]]])
    return device.create_compute_pipeline(layout=shape, compute=stage)


def _launches(dispatches: list[Any], built: Built, counts: tuple[int, ...]) -> list[Launch]:
    """The launches of dispatches, without those of an empty grid."""
    pipelines, groups = built
    every = ((pipelines[p], groups[g], [_extent(e, counts) for e in grid]) for p, g, grid in dispatches)
    return [launch for launch in every if all(launch[2])]


def _encode(encoder: Any, launches: list[Launch]) -> None:
    """Records launches into one compute pass."""
    compute = encoder.begin_compute_pass()
    for pipeline, group, workgroups in launches:
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group)
        compute.dispatch_workgroups(*workgroups)
    compute.end()


def _extent(entry: int | list[int], counts: tuple[int, ...]) -> int:
    if isinstance(entry, int):
        return entry
    word, per = entry
    return -(-counts[word] // per)


def _dashed(name: str) -> str:
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name)


def _camel(name: str) -> str:
    first, *rest = name.split("-")
    return first + "".join(word.capitalize() for word in rest)


async def replay(tape: Names, sources: Names, adapter: str = "") -> list[tuple[int, int]]:
    """Executes a tape. Returns (recorded id, replayed id) for every output row."""
    host = WgpuHost()
    info = await host.open({**tape["open"], "adapter": adapter or tape["open"].get("adapter", "")})
    print(f"adapter: {info['adapter'].get('device')}", file=sys.stderr)
    for section in tape["sections"]:
        if section["kind"] == "load":
            await host.load(section, sources)
        elif section["kind"] == "allocate":
            await host.allocate(section)
        else:
            await host.compile(section)
    pairs: list[tuple[int, int]] = []
    for step in tape["steps"]:
        data = await host.read(host.run(step["program"], bytes.fromhex(step["words"])))
        ids = struct.unpack(f"<{len(data) // 4}I", data)[::RESULT_WORDS][: len(step["ids"])]
        pairs += zip(step["ids"], ids, strict=True)
    await host.close()
    return pairs


def main(arguments: list[str]) -> int:
    """Runs `host_python.py tape.json model.gguf [adapter]`.

    Returns 0 if every token equals the recording, else 1.
    """
    if len(arguments) not in (2, 3):
        print("usage: python host_python.py TAPE.json MODEL.gguf [ADAPTER]", file=sys.stderr)
        return 2
    tape = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    pairs = asyncio.run(replay(tape, {"model": arguments[1]}, *arguments[2:]))
    print(" ".join(str(replayed) for _, replayed in pairs))
    wrong = sum(recorded != replayed for recorded, replayed in pairs)
    print(f"{len(pairs)} tokens, {wrong} differ from the recording", file=sys.stderr)
    return 1 if wrong or not pairs else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
