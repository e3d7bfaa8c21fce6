"""Drivers of the grader: the torch model of a GGUF file or a checkpoint, or Camelid itself."""

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from cria.model import Cria, Spec
from cria.talk import Talk
from cria.tokenizer import END_OF_TEXT, IM_END, called, gguf_tokenizer, render

Past = tuple[torch.Tensor, torch.Tensor]
Answers = Callable[[list[Talk]], list[str]]
MAX_TOKENS = 96
BATCH = 32


def gguf_state(path: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a GGUF file, decoded to float32."""
    tensors = gguf.GGUFReader(path).tensors
    return {
        t.name: torch.from_numpy(np.array(gguf.dequantize(t.data, t.tensor_type), np.float32))
        for t in tensors
    }


def shuffled(state: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """The weights with the values of every matrix in random order: a negative control for the grader."""
    draw = torch.Generator().manual_seed(seed)
    return {
        name: w.flatten()[torch.randperm(w.numel(), generator=draw)].view_as(w) if w.ndim == 2 else w
        for name, w in state.items()
    }


def load_model(state: dict[str, torch.Tensor]) -> Cria:
    """The torch model of a state dict; Linear and Embedding name their weight `X.weight`, as GGUF does."""
    model = Cria(Spec(vocab_size=len(state["token_embd.weight"])))
    model.load_state_dict(state)
    return model.eval()


@torch.no_grad()
def greedy(model: Cria, prompts: list[list[int]], stop_ids: set[int]) -> list[list[int]]:
    """Greedy continuations. Prompts are padded at the end, which causal attention never reads."""
    ends = torch.tensor([len(prompt) for prompt in prompts])
    width = int(ends.max())
    logits, past = read(
        model, torch.tensor([prompt + [0] * (width - len(prompt)) for prompt in prompts]), ends
    )
    replies: list[list[int]] = [[] for _ in prompts]
    for _ in range(MAX_TOKENS):
        token_ids = logits.argmax(-1)
        for reply, token_id in zip(replies, token_ids.tolist(), strict=True):
            reply.append(token_id)
        if all(stop_ids & set(reply) for reply in replies):
            break
        logits = advance(model, past, token_ids, ends)
        ends = ends + 1
    return [until(reply, stop_ids) for reply in replies]


def read(model: Cria, token_ids: torch.Tensor, ends: torch.Tensor) -> tuple[torch.Tensor, list[Past]]:
    """Logits after each prompt's last token, [B, V], and each layer's KV cache, padded for the answer."""
    n_rows, t = token_ids.shape
    x, past = model.token_embd(token_ids), []
    for layer in model.blk:
        q, k, v = layer.project(x, model.cos[:t], model.sin[:t])
        past.append((F.pad(k, (0, 0, 0, MAX_TOKENS)), F.pad(v, (0, 0, 0, MAX_TOKENS))))
        x = layer.finish(x, layer.attend(q, k, v, None))
    last = model.output_norm(x[torch.arange(n_rows), ends - 1])
    return F.linear(last, model.token_embd.weight), past


def advance(model: Cria, past: list[Past], token_ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Logits after one more token per row, [B, V]; writes its keys and values at the row's position."""
    rows, x = torch.arange(len(places)), model.token_embd(token_ids)[:, None]
    cos, sin = (table[places][:, None, None] for table in (model.cos, model.sin))
    seen = (torch.arange(past[0][0].shape[2]) <= places[:, None])[:, None, None]
    for layer, (keys, values) in zip(model.blk, past, strict=True):
        q, k, v = layer.project(x, cos, sin)
        keys[rows, :, places], values[rows, :, places] = k[:, :, 0], v[:, :, 0]
        x = layer.finish(x, layer.attend(q, keys, values, seen))
    return F.linear(model.output_norm(x[:, 0]), model.token_embd.weight)


def until(token_ids: list[int], stop_ids: set[int]) -> list[int]:
    """The token ids before the first stop id."""
    end = next((i for i, token_id in enumerate(token_ids) if token_id in stop_ids), MAX_TOKENS)
    return token_ids[:end]


def torch_answers(model: Cria, tokenizer: Tokenizer) -> Answers:
    """Answers conversations in batches of similar length."""
    stop_ids = {tokenizer.token_to_id(token) for token in (END_OF_TEXT, IM_END)}

    def answers(talks: list[Talk]) -> list[str]:
        prompts = [tokenizer.encode(render(talk)).ids for talk in talks]
        order = sorted(range(len(talks)), key=lambda i: len(prompts[i]))
        replies = [""] * len(talks)
        for chunk in (order[at : at + BATCH] for at in range(0, len(order), BATCH)):
            for i, ids in zip(chunk, greedy(model, [prompts[i] for i in chunk], stop_ids), strict=True):
                replies[i] = tokenizer.decode(ids)
        return replies

    return answers


def gguf_answers(path: Path, shuffle_seed: int | None = None) -> Answers:
    """Answers of a GGUF file, run by torch."""
    state = gguf_state(path)
    if shuffle_seed is not None:
        state = shuffled(state, shuffle_seed)
    return torch_answers(load_model(state), gguf_tokenizer(path))


def camelid_answers(path: Path, backend: str) -> Answers:
    """Answers of a GGUF file, run by Camelid."""
    import camelid

    llm = camelid.load(str(path), backend=backend)

    def answer(talk: Talk) -> str:
        got = llm.chat(talk.messages, tools=talk.tools or None, max_tokens=MAX_TOKENS, temperature=0)
        calls = [call for call in got.tool_calls if call.complete]
        return got.text + "".join(called(call.name, json.loads(call.arguments)) for call in calls)

    return lambda talks: [answer(talk) for talk in talks]
