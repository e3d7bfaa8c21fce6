"""Parts of replies that several dialects share: ids, usage, timings, log-probabilities."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from camelid.requests.output_text import Completion, Event
from camelid.server.http.errors import ApiError
from camelid.server.service.service import Service
from camelid.text.tokenizers.tokenizer import Tokenizer

Body = dict[str, Any]


def new_id(prefix: str) -> str:
    """A random id, such as chatcmpl-…"""
    return f"{prefix}{secrets.token_urlsafe(18)}"


def created() -> int:
    """The time in whole seconds of the epoch, as OpenAI's objects have it."""
    return int(time.time())


def scheduling_options(own: Mapping[str, Any]) -> Body:
    """The option of priority."""
    return {"priority": -own["priority"]} if own.get("priority") else {}  # lower is earlier, as in vLLM


def answer_limit_s(own: Mapping[str, Any]) -> float:
    """The time limit of the answer in seconds, 0 for none."""
    return max(own.get("t_max_predict_ms", 0), 0) / 1e3


def check_stream_options(own: Mapping[str, Any]) -> None:
    """Raises ApiError 400 for options of a stream that is not asked for, as OpenAI does."""
    if own.get("stream_options") and not own.get("stream"):
        raise ApiError(400, "stream_options needs stream: true", param="stream_options")


def usage(completions: Sequence[Completion]) -> Body:
    """OpenAI's usage object; the choices share one prompt."""
    first = completions[0].usage
    n_answer = sum(done.usage.completion_tokens for done in completions)
    return {
        "prompt_tokens": first.prompt_tokens,
        "completion_tokens": n_answer,
        "total_tokens": first.prompt_tokens + n_answer,
        "prompt_tokens_details": {"cached_tokens": first.cached_tokens},
    }


def timings(done: Completion) -> Body:
    """llama.cpp's timings object of a finished answer."""
    times, n_cached = done.timings, done.usage.cached_tokens
    counts = n_cached, done.usage.prompt_tokens - n_cached, done.usage.completion_tokens
    fields = timing_fields(*counts, times.ttft_s - times.queue_s, times.total_s - times.ttft_s)
    return {**fields, "prompt_per_second": times.prefill_tps, "predicted_per_second": times.decode_tps}


def timing_fields(n_cached: int, n_prompt: int, n_answer: int, prompt_s: float, answer_s: float) -> Body:
    """llama.cpp's timings, in milliseconds and tokens a second; `n_prompt` counts computed tokens."""
    prompt_s, answer_s = max(prompt_s, 0.0), max(answer_s, 0.0)
    return {
        "cache_n": n_cached,
        "prompt_n": n_prompt,
        "prompt_ms": 1e3 * prompt_s,
        "prompt_per_token_ms": 1e3 * prompt_s / max(n_prompt, 1),
        "prompt_per_second": n_prompt / prompt_s if prompt_s else 0.0,
        "predicted_n": n_answer,
        "predicted_ms": 1e3 * answer_s,
        "predicted_per_token_ms": 1e3 * answer_s / max(n_answer, 1),
        "predicted_per_second": n_answer / answer_s if answer_s else 0.0,
    }


def token_logprobs(events: Iterable[Event], tokenizer: Tokenizer) -> list[Body]:
    """OpenAI's `logprobs.content`: tokens with bytes, log-probability and the likeliest alternatives."""
    return [
        {
            **token_logprob(event.token_id, event.logprob, tokenizer),
            "top_logprobs": [token_logprob(i, value, tokenizer) for i, value in event.top_logprobs],
        }
        for event in events
        if event.token_id is not None
    ]


def token_logprob(token_id: int, value: float, tokenizer: Tokenizer) -> Body:
    """One token with its bytes; an incomplete character shows as U+FFFD."""
    data = tokenizer.token_bytes(token_id)
    return {
        "id": token_id, "token": data.decode("utf-8", "replace"), "bytes": list(data),
        "logprob": finite(value),
    }  # fmt: skip


def finite(value: float) -> float:
    """A log-probability as JSON has it: no infinities."""
    return max(value, -9999.0)


def model_tokenizer(service: Service) -> Tokenizer:
    """The model's tokenizer. Raises RequestError for a file without one."""
    return service.builder.tokenizer
