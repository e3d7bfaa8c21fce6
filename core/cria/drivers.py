"""What the grader asks: the torch model from a GGUF file or a checkpoint, or Camelid itself."""

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import torch
from jinja2 import Environment
from tokenizers import AddedToken, Tokenizer, models

from cria.model import Cria, Spec
from cria.tokenizer import CHAT_TEMPLATE, END_OF_TEXT, IM_END, blank_tokenizer

Message = dict[str, str]
Answers = Callable[[list[list[Message]]], list[str]]
MAX_TOKENS = 32
BATCH = 64


def render(messages: list[Message]) -> str:
    """The prompt of a conversation, ready for the assistant's turn."""
    return Environment().from_string(CHAT_TEMPLATE).render(messages=messages, add_generation_prompt=True)


def gguf_state(path: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a GGUF file as float32, its blocks decoded."""
    tensors = gguf.GGUFReader(path).tensors
    return {
        t.name: torch.from_numpy(np.array(gguf.dequantize(t.data, t.tensor_type), np.float32))
        for t in tensors
    }


def gguf_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer a GGUF file carries."""
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = blank_tokenizer()
    tokenizer.model = models.BPE({token: i for i, token in enumerate(tokens)}, merges)
    kinds = fields["tokenizer.ggml.token_type"].contents()
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True) for t, kind in zip(tokens, kinds, strict=True) if kind == 3]
    )
    return tokenizer


def shuffled(state: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """The same numbers in every matrix, in a random order: a control that must fail."""
    draw = torch.Generator().manual_seed(seed)
    return {
        name: w.flatten()[torch.randperm(w.numel(), generator=draw)].view_as(w) if w.ndim == 2 else w
        for name, w in state.items()
    }


def load_model(state: dict[str, torch.Tensor]) -> Cria:
    """The torch model with these weights; Linear and Embedding call theirs `X.weight`, as GGUF does."""
    model = Cria(Spec())
    model.load_state_dict(state)
    return model.eval()


@torch.no_grad()
def greedy(model: Cria, prompts: list[list[int]], stop_ids: set[int]) -> list[list[int]]:
    """Greedy continuations of prompts of one length."""
    token_ids = torch.tensor(prompts)
    for _ in range(MAX_TOKENS):
        token_ids = torch.cat((token_ids, model(token_ids)[:, -1].argmax(-1, keepdim=True)), 1)
        if all(stop_ids & set(row[len(prompts[0]) :]) for row in token_ids.tolist()):
            break
    return [until(row[len(prompts[0]) :], stop_ids) for row in token_ids.tolist()]


def until(token_ids: list[int], stop_ids: set[int]) -> list[int]:
    """The ids before the first stop."""
    end = next((i for i, token_id in enumerate(token_ids) if token_id in stop_ids), len(token_ids))
    return token_ids[:end]


def torch_answers(model: Cria, tokenizer: Tokenizer) -> Answers:
    """Answer many conversations; those of one length go through the model together, so nothing is padded."""
    stop_ids = {tokenizer.token_to_id(token) for token in (END_OF_TEXT, IM_END)}

    def answers(conversations: list[list[Message]]) -> list[str]:
        prompts = [tokenizer.encode(render(messages)).ids for messages in conversations]
        replies = [""] * len(prompts)
        for chunk in same_length_chunks(prompts):
            for i, ids in zip(chunk, greedy(model, [prompts[i] for i in chunk], stop_ids), strict=True):
                replies[i] = tokenizer.decode(ids)
        return replies

    return answers


def same_length_chunks(prompts: list[list[int]]) -> list[list[int]]:
    """Indices grouped by prompt length, at most BATCH together."""
    groups: dict[int, list[int]] = {}
    for i, prompt in enumerate(prompts):
        groups.setdefault(len(prompt), []).append(i)
    return [group[at : at + BATCH] for group in groups.values() for at in range(0, len(group), BATCH)]


def gguf_answers(path: Path, shuffle_seed: int | None = None) -> Answers:
    """The shipped file, decoded and run by torch."""
    state = gguf_state(path)
    if shuffle_seed is not None:
        state = shuffled(state, shuffle_seed)
    return torch_answers(load_model(state), gguf_tokenizer(path))


def camelid_answers(path: Path, backend: str) -> Answers:
    """The shipped file, run by Camelid."""
    import camelid

    llm = camelid.load(str(path), backend=backend)
    return lambda conversations: [
        llm.chat(m, max_tokens=MAX_TOKENS, temperature=0).text for m in conversations
    ]
