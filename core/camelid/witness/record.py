"""The record of an answered request: hashes, counts and all parameters that a replay needs."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isinf
from typing import Any, cast

from camelid.engine.request import Request
from camelid.engine.results import Generation, Timings, Usage
from camelid.loading.identity import Identity
from camelid.requests.options import Prompt, constraint_option
from camelid.requests.output_text import Completion
from camelid.sampling.params import SamplingParams
from camelid.witness.chain import Facts, canonical, sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessRecord:
    """One answer to one request, as plain values.

    `key` is the name of the caller's key, never the key. `prompt` is the prompt as it was asked (text or
    messages). `constraint` is the option that the answer's grammar enforces, such as {"regex": "a+"}, or
    {"tool_calls": ...} with the description of the calls that `tool_choice` allows. Prompt, constraint and
    texts are written only to a log with content. `text` None stands for a model without a tokenizer.
    """

    id: str
    key: str | None
    endpoint: str
    model: str
    parameters: Mapping[str, object]
    prompt_ids: tuple[int, ...]
    answer_ids: Sequence[int]
    finish_reason: str
    usage: Usage
    timings: Timings
    text: str | None = None
    reasoning: str = ""
    tool_calls: Sequence[Mapping[str, object]] = ()
    prompt: Prompt | None = None
    constraint: Mapping[str, object] | None = None
    error: str = ""

    @classmethod
    def of(
        cls,
        request: Request,
        completion: Completion | Generation,
        *,
        id: str,
        key: str | None,
        endpoint: str,
        model: str,
        stop: Sequence[str] = (),
        is_chat: bool = False,
        prompt: Prompt | None = None,
        error: str = "",
    ) -> WitnessRecord:
        """The record of a finished request.

        `stop` is the option that the request was built from: it holds only what that became. `is_chat` is
        True for messages that went through the chat template.
        """
        return cls(
            id=id,
            key=key,
            endpoint=endpoint,
            model=model,
            parameters=parameters_of(request, stop, is_chat=is_chat),
            prompt_ids=request.read_ids,
            answer_ids=completion.token_ids,
            finish_reason=completion.finish_reason,
            usage=completion.usage,
            timings=completion.timings,
            prompt=prompt,
            constraint=constraint_option(request.constraint),
            error=error,
            **_texts(completion),
        )

    @property
    def weight(self) -> int:
        """About the bytes of memory that the record holds while it waits to be written."""
        texts = len(self.text or "") + len(self.reasoning) + _n_chars(self.prompt) + _n_chars(self.constraint)
        return 1024 + 8 * (len(self.prompt_ids) + len(self.answer_ids)) + texts

    def facts(self, identity: Identity | None, *, with_content: bool) -> Facts:
        """The record as JSON values. `identity` is that of the loaded model, None if it is unknown."""
        text = self.text
        facts: Facts = {
            "kind": "request",
            "id": self.id,
            "key": self.key,
            "endpoint": self.endpoint,
            "model": self.model,
            "model_sha256": identity and identity.model_sha256,
            "build_sha256": identity and identity.build_sha256,
            "parameters": self.parameters,
            "constraint_sha256": self.constraint and sha256(canonical(self.constraint)),
            "prompt_sha256": ids_sha256(self.prompt_ids),
            "answer_sha256": ids_sha256(self.answer_ids),
            "text_sha256": None if text is None else text_sha256(text),
            "finish_reason": self.finish_reason,
            "error": self.error or None,
            "usage": asdict(self.usage),
            "timings": asdict(self.timings),
        }
        return facts | {"content": self._content()} if with_content else facts

    def _content(self) -> Facts:
        return {
            "prompt_ids": list(self.prompt_ids),
            "answer_ids": list(self.answer_ids),
            "prompt": self.prompt,
            "text": self.text,
            "reasoning": self.reasoning,
            "tool_calls": list(self.tool_calls),
            "constraint": self.constraint,
        }


def _n_chars(value: object) -> int:
    """About the characters of a JSON value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return sum(len(name) + _n_chars(item) for name, item in items)
    if isinstance(value, list | tuple):
        return sum(map(_n_chars, cast("Sequence[object]", value)))
    return 8


def _texts(completion: Completion | Generation) -> dict[str, Any]:
    """The parts of an answer as text; none of a generation, which has token ids alone."""
    if isinstance(completion, Generation):
        return {}
    calls = [asdict(call) for call in completion.tool_calls]
    return {"text": completion.text, "reasoning": completion.reasoning, "tool_calls": calls}


def parameters_of(request: Request, stop: Sequence[str], *, is_chat: bool) -> Facts:
    """The parameters that decide an answer, after all defaults. Without `eos_ids` no end token ends it."""
    return {
        "sampling": sampling_facts(request.sampling),
        "max_tokens": request.max_tokens,
        "stop": list(stop),
        "eos_ids": sorted(request.eos_ids),
        "overflow": request.overflow,
        "n_keep": request.n_keep,
        "choice": request.choice,
        "is_chat": is_chat,
        "is_speculative": request.proposer is not None,
        "scores_prompt": request.all_logits,
        "adapters": adapter_facts(request),
    }


def adapter_facts(request: Request) -> list[Facts]:
    """The adapters that act on a request: their names, hashes of their terms, and scales."""
    parts = request.adapter.parts if request.adapter else ()
    return [{"name": part.name, "sha256": part.digest, "scale": part.scale} for part in parts]


def sampling_facts(sampling: SamplingParams) -> Facts:
    """All sampling options as JSON values; JSON has no infinity, so False stands for a banned token."""
    facts: Facts = {name: getattr(sampling, name) for name in SamplingParams.names()}
    facts["logit_bias"] = [[i, False if isinf(bias) else bias] for i, bias in sampling.logit_bias]
    return facts


def ids_sha256(token_ids: Iterable[int]) -> str:
    """SHA-256 of token ids as little-endian u32."""
    ids = list(token_ids)
    return sha256(struct.pack(f"<{len(ids)}I", *ids))


def text_sha256(text: str) -> str:
    """SHA-256 of a text in UTF-8. A text of a request may hold lone surrogates, which JSON can write."""
    return sha256(text.encode("utf-8", "surrogatepass"))
