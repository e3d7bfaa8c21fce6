"""The rig: kernels of `mx.fast.metal_kernel` on the processor.

MLX writes the source of a kernel while it exports a function, without a device. A C++ compiler compiles this
text against `emu/msl.h`, and the runtime runs its threads as fibers. Libraries are kept in build/metal by
their text.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

HERE = Path(__file__).parent / "emu"
BUILD = Path(__file__).parents[2] / "build" / "metal"
FLAGS = (
    "-std=c++20",
    "-O1",
    "-fPIC",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fno-exceptions",
    "-fsigned-char",
    "-w",
)
PROCESSOR = ("-march=x86-64-v3",) if os.uname().machine == "x86_64" else ()
GUARD = 64  # bytes between buffers; a buffer begins at a multiple of it
FILL = 0xFF  # of guards and fresh outputs: NaN as float32 or float16
SIMD_LANES = 32
SIGNATURE = re.compile(r"^\[\[kernel\]\] void (\w+)\((.*?)\) \{", re.DOTALL | re.MULTILINE)
PARAMETER = re.compile(r"^\s*(.*?)(\w+) \[\[(\w+)(?:\((\d+)\))?\]\]", re.MULTILINE)
INSTANCE = re.compile(r"^template \[\[host_name.*decltype\((\w+<.*>)\) .*$", re.MULTILINE)
SHARED = re.compile(r"\bthreadgroup (\w+ \w+)((?:\[[^\]]*\])*);")
ATTRIBUTE = re.compile(r" \[\[.*?\]\]")
ATTRIBUTES: Mapping[str, str] = {
    "thread_index_in_simdgroup": "place->index % 32",
    "simdgroup_index_in_threadgroup": "place->index / 32",
    "thread_index_in_threadgroup": "place->index",
    "threadgroup_position_in_grid": "uint3{place->group[0], place->group[1], place->group[2]}",
}
STREAMED = ("weights", "up_weights", "keys", "values", "tail_keys", "tail_values")
Bytes = npt.NDArray[np.uint8]


class RigError(Exception):
    """A kernel that the rig refuses: what is wrong, and where."""


@contextlib.contextmanager
def printed() -> Iterator[list[str]]:
    """The text that C++ prints to the standard output."""
    texts: list[str] = []
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield texts
        finally:
            ctypes.CDLL(None).fflush(None)
            os.dup2(kept, 1)
            os.close(kept)
            file.seek(0)
            texts.append(file.read().decode())


def compiled(text: str, name: str, *flags: str) -> Path:
    """The shared library of a C++ text, compiled once.

    With -fsanitize=thread the compiler marks accesses of memory; the runtime has the functions that it calls,
    so the sanitizer's library is not linked.
    """
    headers = [path.read_text() for path in sorted(HERE.iterdir())]
    key = hashlib.sha256("\0".join([text, *FLAGS, *PROCESSOR, *flags, *headers]).encode()).hexdigest()[:16]
    target = BUILD / f"{name}-{key}.so"
    if not target.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            source, library = Path(folder, "text.cpp"), Path(folder, "library.so")
            source.write_text(text)
            objects = source.with_suffix(".o")
            _call("g++", *FLAGS, *PROCESSOR, *flags, f"-I{HERE}", "-c", source, "-o", objects, name=name)
            _call("g++", "-shared", objects, "-o", library, name=name)
            library.replace(target)
    return target


def _call(*command: str | Path, name: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RigError(f"{name} does not compile:\n{done.stderr}")


class Range(ctypes.Structure):
    """A buffer in the arena of a launch; `traffic`: bytes accessed, each once per threadgroup."""

    _fields_ = (
        ("begin", ctypes.c_long),
        ("end", ctypes.c_long),
        ("is_output", ctypes.c_int),
        ("traffic", ctypes.c_long),
    )


@functools.cache
def runtime() -> ctypes.CDLL:
    """The fibers; kernels use its symbols."""
    library = ctypes.CDLL(str(compiled((HERE / "runtime.cpp").read_text(), "runtime")), ctypes.RTLD_GLOBAL)
    library.metal_run.restype = ctypes.c_char_p
    return library


@dataclass(frozen=True)
class Source:
    """The text of a kernel as MLX writes it for one call, and the kernel's name without its digest."""

    name: str
    text: str

    @property
    def symbol(self) -> str:
        return self._signature()[1]

    def _signature(self) -> re.Match[str]:
        found = SIGNATURE.search(self.text)
        if not found:
            raise RigError(f"no kernel in this text:\n{self.text}")
        return found

    def arguments(self) -> Iterator[str]:
        """Arguments of the kernel, from its buffers and the place of a thread."""
        for kind, name, attribute, number in PARAMETER.findall(self._signature()[2]):
            if attribute == "buffer":
                yield f"({kind.strip()})buffers[{number}]"
            elif attribute in ATTRIBUTES:
                yield ATTRIBUTES[attribute]
            else:
                raise RigError(f"{self.name}: the rig has no attribute {attribute} of {name}")

    def checked(self) -> str:
        """The text as clang takes it: attributes are Metal's, and threadgroup memory is static."""
        text = INSTANCE.sub("", self.text).replace("[[kernel]] ", "")
        return ATTRIBUTE.sub("", SHARED.sub(r"static threadgroup \1\2;", text))

    def program(self) -> str:
        """The text as C++, with an entry for the runtime."""
        instance = INSTANCE.search(self.text)
        call = f"{instance[1] if instance else self.symbol}({', '.join(self.arguments())});"
        body = SHARED.sub(_shared, INSTANCE.sub("", self.text).replace("[[kernel]] ", ""))
        entry = f'extern "C" void metal_entry(void **buffers, const Place *place) {{ {call} }}'
        return f'#include "msl.h"\n{body}\n{entry}\n'


def _shared(found: re.Match[str]) -> str:
    """A declaration of threadgroup memory: one for all fibers, which starts as NaN."""
    name = found[1].split()[1]
    return f"static threadgroup {found[1]}{found[2]}; metal_fresh((void *)&{name}, sizeof {name});"


def captured(kernel: Any, inputs: Sequence[mx.array], how: Mapping[str, Any]) -> str:
    """The source that MLX generates for a call of a kernel."""

    def traced(*arrays: mx.array) -> Any:
        return kernel(inputs=list(arrays), **how, verbose=True)

    with printed() as texts, tempfile.TemporaryDirectory() as folder:
        mx.export_function(str(Path(folder, "kernel.mlxfn")), traced, *inputs)
    return texts[0].split("```", 1)[1].rsplit("```", 1)[0]


@dataclass
class Rig:
    """A stand-in of `mx.fast.metal_kernel`.

    With `is_traced`, each access of a buffer is checked, and `traffic` sums accessed bytes by the buffer's
    name: those of weights and of the KV cache for each threadgroup, others at most once a launch. `order` 1
    runs the threads backwards. `sources` are the texts of all calls; without `runs` outputs are zeros.
    """

    order: int = 0
    is_traced: bool = False
    runs: bool = True
    traffic: dict[str, int] = field(default_factory=dict[str, int])
    sources: dict[str, Source] = field(default_factory=dict[str, Source])

    def metal_kernel(self, **facts: Any) -> Any:
        """As `mx.fast.metal_kernel`, with arguments by name."""
        real: Any = mx.fast.metal_kernel(**facts)
        title = facts["name"].rpartition("_")[0]
        names = [*facts["input_names"], *facts["output_names"]]

        def call(*, inputs: Sequence[Any], **how: Any) -> list[mx.array]:
            source = Source(title, captured(real, inputs, how))
            self.sources[source.text] = source
            return self._run(source, names, list(inputs), how)

        return call

    def _run(
        self, source: Source, names: Sequence[str], inputs: Sequence[Any], how: Mapping[str, Any]
    ) -> list[mx.array]:
        given = [np.ascontiguousarray(np.array(array)) for array in inputs]
        kinds = [np.dtype(str(dtype).split(".")[-1]) for dtype in how["output_dtypes"]]
        made = [np.empty(shape, kind) for shape, kind in zip(how["output_shapes"], kinds, strict=True)]
        if not self.runs:
            return [mx.array(np.zeros_like(array)) for array in made]
        arena = Arena.of(given, made)
        if how.get("init_value") is not None:
            for view, array in zip(arena.views()[len(given) :], made, strict=True):
                view.view(array.dtype)[:] = how["init_value"]
        self._launch(source, arena, how["grid"], how["threadgroup"])
        for name, one in zip(names, arena.ranges, strict=True):
            once = one.traffic if name in STREAMED else min(one.traffic, one.end - one.begin)
            self.traffic[name] = self.traffic.get(name, 0) + once
        outputs = zip(arena.views()[len(given) :], made, strict=True)
        return [mx.array(raw.view(array.dtype).reshape(array.shape)) for raw, array in outputs]

    def _launch(self, source: Source, arena: Arena, grid: Sequence[int], size: Sequence[int]) -> None:
        if any(n % m for n, m in zip(grid, size, strict=True)) or np.prod(size) % SIMD_LANES:
            raise RigError(f"{source.name}: grid {grid} is not whole threadgroups of {size}")
        flags = ("-fsanitize=thread",) if self.is_traced else ()
        library = ctypes.CDLL(str(_library(source.program(), source.name, *flags)))
        groups = (ctypes.c_uint32 * 3)(*(n // m for n, m in zip(grid, size, strict=True)))
        arena.trace(self.is_traced)
        problem = runtime().metal_run(
            library.metal_entry, arena.pointers(), groups, (ctypes.c_uint32 * 3)(*size), self.order
        )
        if problem:
            raise RigError(f"{source.name}: {problem.decode()}")
        arena.check(source.name)


@functools.cache
def _library(text: str, name: str, *flags: str) -> Path:
    runtime()
    return compiled(text, name, *flags)


@dataclass
class Arena:
    """The buffers of a launch, with guards around each."""

    memory: Bytes
    ranges: ctypes.Array[Range]
    stamps: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, inputs: Sequence[npt.NDArray[Any]], outputs: Sequence[npt.NDArray[Any]]) -> Arena:
        ranges: list[Range] = []
        end = GUARD
        for i, array in enumerate([*inputs, *outputs]):
            ranges.append(Range(end, end + array.nbytes, int(i >= len(inputs)), 0))
            end = -(-(end + array.nbytes + GUARD) // GUARD) * GUARD
        raw = np.full(end + GUARD, FILL, np.uint8)
        held = (Range * len(ranges))(*ranges)
        arena = cls(raw[-raw.ctypes.data % GUARD :][:end], held, np.zeros(end, np.uint32))
        for view, array in zip(arena.views(), inputs, strict=False):
            view[:] = array.reshape(-1).view(np.uint8)
        return arena

    def views(self) -> list[Bytes]:
        return [self.memory[one.begin : one.end] for one in self.ranges]

    def pointers(self) -> Any:
        base = self.memory.ctypes.data
        return (ctypes.c_void_p * len(self.ranges))(*(base + one.begin for one in self.ranges))

    def trace(self, is_traced: bool) -> None:
        self.ranges = (Range * len(self.ranges))(*self.ranges)
        base = ctypes.c_void_p(self.memory.ctypes.data if is_traced else None)
        stamps = ctypes.c_void_p(self.stamps.ctypes.data)
        runtime().metal_trace(base, ctypes.c_long(len(self.memory)), self.ranges, len(self.ranges), stamps)

    def check(self, name: str) -> None:
        """Raises RigError if a guard was written."""
        starts = [0, *(one.end for one in self.ranges)]
        ends = [*(one.begin for one in self.ranges), len(self.memory)]
        if not all((self.memory[a:b] == FILL).all() for a, b in zip(starts, ends, strict=True)):
            raise RigError(f"{name}: a write outside of all buffers")
