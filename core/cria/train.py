"""Trains cria: `python -m cria.train --steps N --minutes M --start FIRST.gguf [--out build/cria]`.

The run ends after N steps or M minutes, whichever comes first; the schedule follows the larger share of the
two. A second call resumes the run.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from cria import conversations, drivers, schemas, vocabulary
from cria.model import Cria, Spec
from cria.talk import Talk, exchange
from cria.tokenizer import END_OF_TEXT, IM_END, load_tokenizer, offered, pieces, render, written

ROWS = {256: 6, 512: 3, 1024: 1}  # rows per step by length: attention over long rows costs more
TALKS_PER_STEP = 19
PEAK_RATE, FINAL_RATE, WARMUP, COOLDOWN = 2e-3, 4e-5, 50, 0.3
VALIDATION_ITEMS = 32

Rows = tuple[Tensor, Tensor, Tensor]


def rate(step: int, progress: float) -> float:
    """Learning rate: linear warmup by steps, constant, then linear decay in the last part of the run."""
    if step < WARMUP:
        return PEAK_RATE * (step + 1) / WARMUP
    return PEAK_RATE + (FINAL_RATE - PEAK_RATE) * max(0.0, 1 - (1 - progress) / COOLDOWN)


def encode(talks: list[Talk], tokenizer: Tokenizer) -> list[tuple[list[int], list[bool]]]:
    """Token ids of each conversation, each with True if the loss covers it."""
    parts = [list(pieces(talk)) for talk in talks]
    encoded = iter(tokenizer.encode_batch_fast([text for talk in parts for text, _ in talk]))
    return [join((next(encoded).ids, taught) for _, taught in talk) for talk in parts]


def join(parts: Iterator[tuple[list[int], bool]]) -> tuple[list[int], list[bool]]:
    """Concatenated token ids and loss mask of a conversation's pieces."""
    ids, taught = [], []
    for piece, is_taught in parts:
        ids += piece
        taught += [is_taught] * len(piece)
    return ids, taught


class Sheet:
    """Rows of one length, packed with conversations."""

    def __init__(self, n_rows: int, length: int, padding: int) -> None:
        self.ids = np.full((n_rows, length + 1), padding)
        self.taught = np.zeros((n_rows, length + 1), bool)
        self.talks = np.zeros((n_rows, length + 1), int)  # id of each token's conversation within the row
        self.used = np.zeros(n_rows, int)

    def put(self, ids: list[int], taught: list[bool]) -> bool:
        """Packs a conversation into the first row with room; False if no row has room."""
        fits = np.flatnonzero(self.used + len(ids) <= self.ids.shape[1])
        if len(fits) == 0:
            return False
        row, start = fits[0], self.used[fits[0]]
        place = slice(start, start + len(ids))
        self.ids[row, place], self.taught[row, place], self.talks[row, place] = ids, taught, start + 1
        self.used[row] += len(ids)
        return True

    def tensors(self) -> Rows:
        """Token ids, loss mask and conversation ids, [B, T + 1] each."""
        return torch.from_numpy(self.ids), torch.from_numpy(self.taught), torch.from_numpy(self.talks)


def batch(seed: int, step: int, tokenizer: Tokenizer) -> list[Rows]:
    """The packed rows of a step: a pure function of seed and step, so that a run can resume."""
    sheets = [Sheet(n_rows, length, tokenizer.token_to_id(END_OF_TEXT)) for length, n_rows in ROWS.items()]
    stream = conversations.conversations(f"{seed}/{step}")
    for ids, taught in encode(list(islice(stream, TALKS_PER_STEP)), tokenizer):
        any(sheet.put(ids, taught) for sheet in sheets)
    return [sheet.tensors() for sheet in sheets]


def loss_of(model: Cria, ids: Tensor, taught: Tensor, talks: Tensor) -> Tensor:
    """Summed cross entropy of the answers' tokens; attention stays within a conversation."""
    seen = (talks[:, None, :-1, None] == talks[:, None, None, :-1]).tril()
    places = taught[:, 1:].flatten().nonzero()[:, 0]
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(ids[:, :-1], seen, places)
    return F.cross_entropy(logits.float(), ids[:, 1:].flatten()[places], reduction="sum")


def optimizers_of(model: Cria) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for the embedding and the norms, at one learning rate."""
    inner = [w for name, w in model.named_parameters() if w.ndim == 2 and name.startswith("blk")]
    outer = [w for name, w in model.named_parameters() if w.ndim < 2 or not name.startswith("blk")]
    return [
        torch.optim.Muon(inner, lr=PEAK_RATE, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(outer, lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]


@torch.no_grad()
def exact(model: Cria, tokenizer: Tokenizer, asked: list[tuple[Talk, str]]) -> float:
    """The share of answers that greedy decoding reproduces exactly."""
    right = 0
    for talk, want in asked:
        prompt, answer = (tokenizer.encode(text).ids for text in (render(talk), want + IM_END))
        logits = model(torch.tensor([prompt + answer[:-1]]))[0, len(prompt) - 1 :]
        right += logits.argmax(-1).tolist() == answer
    return right / len(asked)


def question(kind: Callable[[Random], object], rng: Random) -> tuple[Talk, str]:
    """A conversation of one kind, cut before an answer, and that answer."""
    made = kind(rng)
    talk = made if isinstance(made, Talk) else Talk(messages=exchange(*made))
    ends = [i for i, message in enumerate(talk.messages) if message["role"] == "assistant"]
    end = rng.choice(ends) if talk.tools else ends[-1]
    return Talk(messages=talk.messages[:end], tools=talk.tools), written(talk.messages[end])


def validation(model: Cria, tokenizer: Tokenizer) -> str:
    """Shares of exact answers by kind, on new questions in training phrasings, never the grader's."""
    rng, report = Random("validation"), []
    for kind in (*conversations.KINDS, conversations.memory_talk, schemas.talk, conversations.tool_talk):
        asked = [question(kind, rng) for _ in range(VALIDATION_ITEMS)]
        report.append(f"{kind.__name__} {exact(model, tokenizer, asked):.2f}")
    return ", ".join(report)


def prepare_tokenizer(out: Path, first: Path, seed: int) -> Tokenizer:
    """The run's tokenizer; the first call extends the first edition's with merges of 6,000 conversations."""
    path = out / "tokenizer.json"
    if not path.exists():
        talks = islice(conversations.conversations(f"{seed}/tokenizer"), 6_000)
        texts = (message["content"] for talk in talks for message in offered(talk))
        vocabulary.grown(drivers.gguf_tokenizer(first), texts).save(str(path))
    return load_tokenizer(path)


def start(model: Cria, tokenizer: Tokenizer, path: Path) -> None:
    """Loads the weights of a GGUF file; a new token's embedding is the mean of its parts' embeddings."""
    state, before = drivers.gguf_state(path), drivers.gguf_tokenizer(path)
    rows = state["token_embd.weight"]
    words = [tokenizer.decode([i]) for i in range(len(rows), tokenizer.get_vocab_size())]
    new = [rows[before.encode(word).ids].mean(0) for word in words]
    model.load_state_dict(state | {"token_embd.weight": torch.cat((rows, torch.stack(new)))})


@dataclass(slots=True)
class Clock:
    """Progress of a run in steps and seconds, over all resumptions."""

    steps: int
    limit_s: float
    step: int = 0
    before_s: float = 0.0
    started: float = field(default_factory=time.monotonic)

    def elapsed_s(self) -> float:
        """Seconds trained so far."""
        return self.before_s + time.monotonic() - self.started

    def progress(self) -> float:
        """The completed share of the run, 0 to 1."""
        return min(1.0, max(self.step / self.steps, self.elapsed_s() / self.limit_s))


def save(path: Path, model: Cria, optimizers: list[torch.optim.Optimizer], clock: Clock) -> None:
    """Writes a checkpoint atomically."""
    state = {"model": model.state_dict(), "optimizers": [optimizer.state_dict() for optimizer in optimizers]}
    torch.save({**state, "step": clock.step, "elapsed_s": clock.elapsed_s()}, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def resume(path: Path, model: Cria, optimizers: list[torch.optim.Optimizer], clock: Clock) -> None:
    """Loads a checkpoint, if it exists."""
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        clock.step, clock.before_s = saved["step"], saved["elapsed_s"]


def train(args: argparse.Namespace) -> None:
    """Runs or resumes the training."""
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer, model = prepare_tokenizer(args.out, args.start, args.seed), Cria(Spec())
    optimizers, clock = optimizers_of(model), Clock(args.steps, args.minutes * 60)
    checkpoint = args.out / "checkpoint.pt"
    stable = args.out / "stable.pt"
    start(model, tokenizer, args.start)
    resume(checkpoint, model, optimizers, clock)
    mean, saved_at = 0.0, time.monotonic()
    while (progress := clock.progress()) < 1:
        if progress >= 1 - COOLDOWN and not stable.exists():
            save(stable, model, optimizers, clock)  # starting point of a longer run
        loss = update(model, optimizers, batch(args.seed, clock.step, tokenizer), rate(clock.step, progress))
        mean = 0.98 * mean + 0.02 * loss if mean else loss
        clock.step += 1
        if clock.step % 50 == 0:
            print(f"step {clock.step} loss {mean:.4f} elapsed_s {clock.elapsed_s():.0f}", flush=True)
        if time.monotonic() - saved_at > args.every_s or clock.progress() == 1:
            save(checkpoint, model, optimizers, clock)
            print(f"step {clock.step} exact: {validation(model, tokenizer)}", flush=True)
            saved_at = time.monotonic()


def update(model: Cria, optimizers: list[torch.optim.Optimizer], sheets: list[Rows], lr: float) -> float:
    """Runs one optimizer step and returns the mean loss per token."""
    total, mean = sum(int(taught[:, 1:].sum()) for _, taught, _ in sheets), 0.0
    for rows in sheets:
        loss = loss_of(model, *rows) / total
        loss.backward()
        mean += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        optimizer.zero_grad()
    return mean


def main() -> None:
    """Parses the command line and trains."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True, help="steps of 4096 tokens")
    parser.add_argument("--minutes", type=float, default=1e9, help="maximum minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/cria"))
    parser.add_argument("--every-s", type=float, default=300, help="seconds between checkpoints")
    parser.add_argument("--start", type=Path, required=True, help="GGUF file with the initial weights")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    train(args)


if __name__ == "__main__":
    main()
