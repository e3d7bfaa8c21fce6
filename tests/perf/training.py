"""Training of an adapter: Camelid on cpu beside torch with PEFT, on the same task.

`python -m tests.perf.training --torch PYTHON [--model cria|FILE.gguf] [--rounds 5]`, where PYTHON is an
interpreter with torch, transformers and peft, prints tokens per second of one optimizer step (rank 8, all
linear maps of the layers, AdamW, gradient clipping) and each process's peak memory. FILE.gguf is of
`tests.perf.shapes`. Sides alternate as A B B A, each in a process of its own; a figure is the median of a
side's turns. `--clock cpu` divides by processor time per thread, which other load on the machine affects
less. Tokens are those of the examples, without padding. `camelid+` keeps the results of products (`keeps`
of TrainingSettings).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, process_time
from typing import Any

from tests.perf.training_torch import Examples, open_torch

CRIA = Path(__file__).parents[2] / "core" / "camelid" / "data" / "cria.gguf"
SIDES = ("torch", "camelid", "camelid+")
KEEPS = {"camelid": "layers", "camelid+": "products"}
RANK, LEAST_S = 8, 1.0  # seconds of a turn
CLOCKS: dict[str, Callable[[], float]] = {"wall": perf_counter, "cpu": process_time}


@dataclass(frozen=True, slots=True)
class Task:
    """Lengths of the examples' prompts and answers."""

    n: int
    prompt: tuple[int, int]
    answer: tuple[int, int]

    def examples(self, vocab: int) -> Examples:
        rng = Random(27)

        def ids(low: int, high: int) -> list[int]:
            return [rng.randrange(1, vocab) for _ in range(rng.randint(low, high))]

        return [(ids(*self.prompt), ids(*self.answer)) for _ in range(self.n)]


TASKS = {
    "feedback": Task(20, (30, 70), (8, 30)),
    "few": Task(6, (30, 70), (8, 30)),
    "long": Task(4, (150, 250), (60, 120)),
}


def open_camelid(path: Path, task: Task, threads: int, keeps: str) -> Callable[[], float]:
    from tests.support.model.file_runs import load_gguf

    from camelid.backends.base import OpenSpec
    from camelid.training.examples import Example
    from camelid.training.settings import TrainingSettings
    from camelid.training.train import TrainingPlans, started
    from camelid_native.cpu.backend import CpuBackend

    loaded = load_gguf(path)
    vocab = loaded.model.spec.vocab_size
    examples = [Example(prompt=p, answer=a) for p, a in task.examples(vocab)]
    settings = TrainingSettings(rank=RANK, alpha=2 * RANK, steps=1 << 19, rate=1e-4, keeps=keeps)
    backend = CpuBackend()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(backend.open(OpenSpec(threads=threads)))
    plans = TrainingPlans.of(loaded.model, examples, settings)
    trainer = loop.run_until_complete(started(loaded.sources, backend, plans=plans, settings=settings))

    def step() -> float:
        found = loop.run_until_complete(trainer.step(examples))
        assert found is not None
        trainer.steps.append(found)
        return found.loss

    return step


def shape_of(path: Path) -> dict[str, Any]:
    """The fields of transformers' LlamaConfig."""
    from tests.support.model.file_runs import load_gguf

    s = load_gguf(path).model.spec
    return {
        "hidden_size": s.hidden_size, "intermediate_size": s.ffn_size, "num_hidden_layers": len(s.layers),
        "num_attention_heads": s.n_heads, "num_key_value_heads": s.n_kv_heads, "head_dim": s.head_dim,
        "vocab_size": s.vocab_size, "tie_word_embeddings": s.is_tied, "max_position_embeddings": 1024,
    }  # fmt: skip


def serve(args: argparse.Namespace) -> None:
    """A side's process: a turn for each line of stdin, a line of JSON for each turn."""
    task, shape = TASKS[args.task], json.loads(args.shape)
    if args.side == "torch":
        step = open_torch(shape, task.examples(shape["vocab_size"]), rank=RANK, threads=args.threads)
    else:
        step = open_camelid(Path(args.path), task, args.threads, KEEPS[args.side])
    step()
    for _ in sys.stdin:
        since, now, n = {name: clock() for name, clock in CLOCKS.items()}, perf_counter(), 0
        while perf_counter() - now < LEAST_S or not n:
            loss, n = step(), n + 1
        seconds = {name: (clock() - since[name]) / n for name, clock in CLOCKS.items()}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": seconds, "peak_mb": peak, "loss": loss}), flush=True)


class Side:
    """A side in a process of its own."""

    def __init__(self, name: str, python: str, args: argparse.Namespace, shape: dict[str, Any]) -> None:
        self.name = name
        self.turns: list[dict[str, Any]] = []
        command = [python, "-m", "tests.perf.training", "--side", name, "--path", str(args.path)]
        command += ["--task", args.task, "--threads", str(args.threads), "--shape", json.dumps(shape)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def turn(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        self.turns.append(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def seconds(self, clock: str) -> float:
        return median(turn["seconds"][clock] for turn in self.turns)

    def peak_mb(self) -> float:
        return max(turn["peak_mb"] for turn in self.turns)


def compare(args: argparse.Namespace) -> None:
    shape = shape_of(args.path)
    examples = TASKS[args.task].examples(shape["vocab_size"])
    n_tokens = sum(len(prompt) + len(answer) for prompt, answer in examples)
    pythons = {"torch": args.torch}
    sides = [Side(name, pythons.get(name, sys.executable), args, shape) for name in SIDES]
    for number in range(args.rounds):
        for side in sides if number % 2 == 0 else sides[::-1]:
            side.turn()
    for side in sides:
        side.close()
    report(sides, n_tokens, args)


def report(sides: Sequence[Side], n_tokens: int, args: argparse.Namespace) -> None:
    def rate(side: Side) -> float:
        shared = args.threads if args.clock == "cpu" else 1
        return n_tokens * shared / side.seconds(args.clock)

    print(
        f"{args.path.name}, {args.task}: {n_tokens} tokens a step, {args.threads} threads, clock {args.clock}"
    )
    print("| side | tokens/s | ratio to torch | peak MB |\n|---|---|---|---|")
    for side in sides:
        ratio = rate(side) / rate(sides[0])
        print(f"| {side.name} | {rate(side):.0f} | {ratio:.2f} | {side.peak_mb():.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", help="Interpreter with torch, transformers and peft.")
    parser.add_argument("--path", "--model", type=Path, default=CRIA)
    parser.add_argument("--task", choices=list(TASKS), default="feedback")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--shape", help=argparse.SUPPRESS)
    args = parser.parse_args()
    serve(args) if args.side else compare(args)


if __name__ == "__main__":
    main()
