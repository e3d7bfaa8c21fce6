"""Train cria: `python -m cria.train --steps N --minutes M [--out build/cria] [--seed 1]`; run again, it resumes.

The run ends after N steps or M minutes, whichever comes first, and the schedule follows whichever is further on.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import cos, pi
from pathlib import Path
from random import Random

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from cria import conversations, drivers
from cria.model import Cria, Spec
from cria.tokenizer import END_OF_TEXT, load_tokenizer, pieces, train_tokenizer

TOKENS_PER_STEP = 8192
LENGTH, LONG_LENGTH, LONG_SHARE = 256, 1024, 0.08
PEAK_RATE, FINAL_RATE, WARMUP = 2e-3, 4e-5, 0.03
VALIDATION_ITEMS = 200

Message = dict[str, str]
Loss = Callable[[Cria, Tensor, Tensor], Tensor]


def rate(progress: float) -> float:
    """Learning rate at a share of the run: a linear warmup, then half a cosine."""
    if progress < WARMUP:
        return PEAK_RATE * (progress + 0.001) / WARMUP
    return FINAL_RATE + (PEAK_RATE - FINAL_RATE) * 0.5 * (1 + cos(pi * (progress - WARMUP) / (1 - WARMUP)))


def encode(talks: list[list[Message]], tokenizer: Tokenizer) -> list[tuple[list[int], list[float]]]:
    """Token ids and weights of each conversation."""
    parts = [list(pieces(messages)) for messages in talks]
    encoded = iter(tokenizer.encode_batch_fast([text for talk in parts for text, _ in talk]))
    return [join(((next(encoded).ids, weight) for _, weight in talk)) for talk in parts]


def join(parts: Iterator[tuple[list[int], float]]) -> tuple[list[int], list[float]]:
    """One list of ids and one of weights."""
    ids, weights = [], []
    for piece, weight in parts:
        ids += piece
        weights += [weight] * len(piece)
    return ids, weights


def batch(seed: int, step: int, length: int, tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
    """Rows of whole conversations, [B, T + 1] ids and weights; a pure function of seed and step, so a run can resume."""
    n_rows = TOKENS_PER_STEP // length
    ids = np.full((n_rows, length + 1), tokenizer.token_to_id(END_OF_TEXT))
    weights = np.zeros((n_rows, length + 1), np.float32)
    used = np.zeros(n_rows, int)
    stream = conversations.conversations(f"{seed}/{step}")
    for talk_ids, talk_weights in encode(list(islice(stream, TOKENS_PER_STEP // 70)), tokenizer):
        row = next((r for r in range(n_rows) if used[r] + len(talk_ids) <= length + 1), None)
        if row is not None:
            place = slice(used[row], used[row] + len(talk_ids))
            ids[row, place], weights[row, place] = talk_ids, talk_weights
            used[row] += len(talk_ids)
    return torch.from_numpy(ids), torch.from_numpy(weights)


def loss_of(model: Cria, ids: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean cross entropy of the next token."""
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(ids[:, :-1])
    losses = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    weights = weights[:, 1:].flatten()
    return (losses * weights).sum() / weights.sum()


def optimizer_of(model: Cria) -> torch.optim.AdamW:
    """AdamW that decays matrices only."""
    matrices = [w for w in model.parameters() if w.ndim == 2]
    vectors = [w for w in model.parameters() if w.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.98), fused=True)


def validation(model: Cria, tokenizer: Tokenizer) -> str:
    """Exact answers by kind of turn: fresh questions in training phrasings, never the grader's."""
    rng, answers = Random("validation"), drivers.torch_answers(model, tokenizer)
    report = []
    for kind in conversations.KINDS:
        turns = [kind(rng) for _ in range(VALIDATION_ITEMS // 4)]
        got = answers([[{"role": "user", "content": question}] for question, _ in turns])
        exact = sum(answer == want for answer, (_, want) in zip(got, turns, strict=True)) / len(turns)
        report.append(f"{kind.__name__} {exact:.2f}")
    return ", ".join(report)


def prepare_tokenizer(out: Path, seed: int) -> Tokenizer:
    """The tokenizer of this run, fitted to its first conversations when it is not there yet."""
    path = out / "tokenizer.json"
    if not path.exists():
        talks = islice(conversations.conversations(f"{seed}/tokenizer"), 30_000)
        train_tokenizer(message["content"] for talk in talks for message in talk).save(str(path))
    return load_tokenizer(path)


@dataclass(slots=True)
class Clock:
    """How far a run is, in steps and in seconds, over all its resumptions."""

    steps: int
    limit_s: float
    step: int = 0
    before_s: float = 0.0
    started: float = field(default_factory=time.monotonic)

    def elapsed_s(self) -> float:
        """Seconds trained so far."""
        return self.before_s + time.monotonic() - self.started

    def progress(self) -> float:
        """The share of the run that is over, 0 to 1."""
        return min(1.0, max(self.step / self.steps, self.elapsed_s() / self.limit_s))


def save(path: Path, model: Cria, optimizer: torch.optim.Optimizer, clock: Clock) -> None:
    """Write a checkpoint, whole or not at all."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**state, "step": clock.step, "elapsed_s": clock.elapsed_s()}, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def resume(path: Path, model: Cria, optimizer: torch.optim.Optimizer, clock: Clock) -> None:
    """Load a checkpoint, if there is one."""
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        clock.step, clock.before_s = saved["step"], saved["elapsed_s"]


def train(args: argparse.Namespace) -> None:
    """The whole run."""
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer, model = prepare_tokenizer(args.out, args.seed), Cria(Spec())
    optimizer, clock = optimizer_of(model), Clock(args.steps, args.minutes * 60)
    checkpoint, loss_fn = args.out / "checkpoint.pt", torch.compile(loss_of, dynamic=False)
    if args.start:
        model.load_state_dict(torch.load(args.start)["model"])
    resume(checkpoint, model, optimizer, clock)
    mean, saved_at = 0.0, time.monotonic()
    while (progress := clock.progress()) < 1:
        length = LONG_LENGTH if progress >= 1 - LONG_SHARE else LENGTH
        rows = batch(args.seed, clock.step, length, tokenizer)
        loss = update(model, optimizer, loss_fn, rows, rate(progress))
        mean = 0.98 * mean + 0.02 * loss if mean else loss
        clock.step += 1
        if clock.step % 50 == 0:
            print(f"step {clock.step} loss {mean:.4f} elapsed_s {clock.elapsed_s():.0f}", flush=True)
        if time.monotonic() - saved_at > args.every_s or clock.progress() == 1:
            save(checkpoint, model, optimizer, clock)
            print(f"step {clock.step} exact: {validation(model, tokenizer)}", flush=True)
            saved_at = time.monotonic()


def update(
    model: Cria, optimizer: torch.optim.Optimizer, loss_fn: Loss, rows: tuple[Tensor, Tensor], lr: float
) -> float:
    """One step of the optimizer; the loss."""
    for group in optimizer.param_groups:
        group["lr"] = lr
    loss = loss_fn(model, *rows)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True, help=f"steps of {TOKENS_PER_STEP} tokens")
    parser.add_argument("--minutes", type=float, default=1e9, help="most minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/cria"))
    parser.add_argument("--every-s", type=float, default=300, help="seconds between checkpoints")
    parser.add_argument("--start", type=Path, help="begin with this checkpoint's weights")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    train(args)


if __name__ == "__main__":
    main()
