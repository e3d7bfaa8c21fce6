"""The quantizers beside llama.cpp's: error, speed of one thread, and divergence of cria.

`python -m tests.perf.quantize_table` prints the tables of quantize.md. llama-cpp-python must be installed
(`make rivals` builds it). Seconds are processor time, the least of several alternating runs, since other
processes share the machine. cria is published in q8_0; that file is the base of its divergences.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from click.testing import CliRunner
from numpy.typing import NDArray

from camelid.backends.common.codecs import decode
from camelid.backends.common.quantizers import QUANTIZERS
from camelid.cli.main import main as camelid
from camelid.formats.quants import quant, row_bytes
from camelid.loading.quantize.mixes import MIXES
from camelid_native.cpu.quantizer import CpuQuantizer
from cria.conversations import conversations

Floats = NDArray[np.float32]
ROWS, COLS, RUNS = 64, 2048, 3
TYPES = ("q8_0", *QUANTIZERS)
CONTEXT, CHUNKS = 256, 12


def sample() -> tuple[Floats, Floats]:
    """Rows of Student's t with 6 degrees of freedom, as weights of models have, and log-normal importance."""
    rng = np.random.default_rng(0)
    rows = (rng.standard_t(6, (ROWS, COLS)) * 0.03).astype(np.float32)
    return rows, np.exp(rng.normal(0, 1, COLS)).astype(np.float32)


class Rival:
    """`ggml_quantize_chunk` of an installed llama-cpp-python."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("llama_cpp")
        if spec is None or spec.origin is None:
            raise SystemExit("llama-cpp-python is not installed; make rivals builds it")
        self.c = ctypes.CDLL(str(Path(spec.origin).with_name("lib") / "libggml-base.so"))
        self.c.ggml_quantize_chunk.restype = ctypes.c_size_t
        self.c.ggml_quantize_requires_imatrix.restype = ctypes.c_bool

    def needs_importance(self, name: str) -> bool:
        return bool(self.c.ggml_quantize_requires_imatrix(quant(name).id))

    def rows(self, name: str, rows: Floats, importance: Floats | None) -> NDArray[np.uint8]:
        raw = np.zeros(len(rows) * row_bytes(name, COLS), np.uint8)
        at = None if importance is None else importance.ctypes.data
        counts = (ctypes.c_int64(0), ctypes.c_int64(len(rows)), ctypes.c_int64(COLS))
        places = (ctypes.c_void_p(rows.ctypes.data), ctypes.c_void_p(raw.ctypes.data))
        self.c.ggml_quantize_chunk(quant(name).id, *places, *counts, ctypes.c_void_p(at))
        return raw


def error(name: str, raw: NDArray[np.uint8], rows: Floats, importance: Floats | None) -> float:
    weights = np.ones(COLS) if importance is None else importance.astype(np.float64)
    miss = rows.astype(np.float64) - decode(name, raw.tobytes(), rows.size).reshape(rows.shape)
    return float((weights * miss**2).sum() / (weights * rows.astype(np.float64) ** 2).sum())


def seconds(run: Callable[[], object]) -> float:
    began = process_time()
    run()
    return process_time() - began


def print_types() -> None:
    rival, own, (rows, importance) = Rival(), CpuQuantizer(), sample()
    print(
        "| type | bits a weight | error | llama.cpp's | ratio | with importance | llama.cpp's | ratio |",
        end="",
    )
    print(" M values/s, one thread | llama.cpp | ratio |\n" + "|---" * 11 + "|")
    for name in TYPES:
        row = quant(name)
        cells = [name, f"{8 * row.block_bytes / row.block:.4g}"]
        for each in (None, importance):
            mine = error(name, own.rows(name, rows, each), rows, each)
            if each is None and rival.needs_importance(name):
                cells += [f"{mine:.4g}", "needs importance", ""]
                continue
            theirs = error(name, rival.rows(name, rows, each), rows, each)
            cells += [f"{mine:.4g}", f"{theirs:.4g}", f"{mine / theirs:.3f}"]
        given = importance if rival.needs_importance(name) else None
        times = [
            (seconds(lambda: own.rows(name, rows, given)), seconds(lambda: rival.rows(name, rows, given)))  # noqa: B023 - called at once
            for _ in range(RUNS)
        ]
        mine, theirs = (min(pair) for pair in zip(*times, strict=True))
        speed = rows.size / 1e6
        cells += [f"{speed / mine:.1f}", f"{speed / theirs:.1f}", f"{theirs / mine:.2f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


def cria_text(path: Path) -> Path:
    """Conversations as cria was trained on, of a seed of their own."""
    talks = islice(conversations("quantize_table"), 2000)
    path.write_text("\n".join(message["content"] or "" for talk in talks for message in talk.messages))
    return path


def call(*words: object) -> str:
    done = CliRunner().invoke(camelid, [str(word) for word in words])
    if done.exit_code:
        raise SystemExit(done.output)
    return done.stdout


def print_cria() -> None:
    print("| cria | MB | mean KL | 99 % | top token kept | perplexity ratio |\n" + "|---" * 6 + "|")
    with tempfile.TemporaryDirectory() as folder:
        imatrix, target = Path(folder, "i.gguf"), Path(folder, "q.gguf")
        text = cria_text(Path(folder, "text.txt"))
        common = ("-f", text, "-c", CONTEXT, "--chunks", CHUNKS, "--backend", "cpu")
        call("imatrix", "cria", *common, "-o", imatrix)
        for name in MIXES:
            if name in ("f32", "f16", "bf16", "q8_0", "mxfp4_moe"):
                continue
            call("quantize", "cria", target, name, "--imatrix", imatrix, "--allow-requantize")
            got: dict[str, Any] = json.loads(call("perplexity", target, *common, "--kl", "cria", "--json"))
            size = target.stat().st_size / 1e6
            figures = f"{got['kl_mean']:.4f} | {got['kl_99']:.3f} | {100 * got['top1']:.1f} %"
            print(f"| {name} | {size:.2f} | {figures} | {got['perplexity_ratio']:.3f} |", flush=True)


if __name__ == "__main__":
    print_types()
    print()
    print_cria()
