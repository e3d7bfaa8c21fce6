"""llama.cpp's reply to a completion: chunks while it runs, and the final object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from camelid.requests.output_text import Completion, Event
from camelid.server.faces.common import Body, model_tokenizer, timings
from camelid.server.faces.native_probs import TokenProbs
from camelid.server.faces.native_settings import generation_settings
from camelid.server.faces.progress import LiveTimings, prompt_progress
from camelid.server.service.host import Batch
from camelid.server.service.service import Started
from camelid.text.tokenizers.tokenizer import Tokenizer


@dataclass(slots=True, eq=False)
class NativeChoice:
    """One choice of a native reply. `index` counts the answers of a call with several prompts or choices."""

    started: Started
    choice: int
    index: int
    own: Mapping[str, Any]
    is_prompt_only: bool = False
    live: LiveTimings = field(init=False)
    probs: TokenProbs | None = field(init=False)
    events: list[Event] = field(default_factory=list[Event])
    probabilities: list[Body] = field(default_factory=list[Body])

    def __post_init__(self) -> None:
        self.live = LiveTimings(self.started.request.n_read)
        self.probs = TokenProbs.of(self.started, self.choice, self.own)

    def read(self, batch: Batch) -> list[Body]:
        """The chunks of a batch; notes its events for the final object."""
        self.live.note(batch)
        if self.is_prompt_only:
            return self._progress(batch)
        return [*self._progress(batch), *(self.chunk(event) for event in batch.events)]

    def _progress(self, batch: Batch) -> list[Body]:
        if not self.own.get("return_progress"):
            return []
        return [{**self._head("", ()), "prompt_progress": prompt_progress(each)} for each in batch.progress]

    def chunk(self, event: Event) -> Body:
        """The chunk of one token; its text is empty while a character or stop sequence is incomplete."""
        token_ids = [] if event.token_id is None else [event.token_id]
        self.live.n_answer += len(token_ids)
        self.events.append(event)
        body = self._head(event.text, token_ids)
        if self.own.get("timings_per_token"):
            body["timings"] = self.live.body()
        if self.probs and token_ids:
            self.probabilities.append(self.probs.of_event(event))
            body["completion_probabilities"] = self.probabilities[-1:]
        return body

    def _head(self, content: str, token_ids: Sequence[int]) -> Body:
        return {
            "index": self.index,
            "content": content,
            "tokens": list(token_ids),
            "stop": False,
            "id_slot": self.started.slot_ids.get(self.choice, -1),
            "tokens_predicted": self.live.n_answer,
            "tokens_evaluated": self.live.n_prompt,
        }

    def final(self, done: Completion, *, is_streamed: bool, withheld: str = "") -> Body:
        """The final object; a stream's has only the text that its chunks withheld."""
        body = final_body(self.started, self.choice, done, self.own, is_prompt_only=self.is_prompt_only)
        body["index"] = self.index
        if is_streamed:
            body |= {"content": withheld, "tokens": []}
        elif not self.own.get("return_tokens"):
            body["tokens"] = []
        if self.probabilities and not is_streamed:
            body["completion_probabilities"] = self.probabilities
        return selected(body, self.own.get("response_fields"))


def final_body(
    started: Started, choice: int, done: Completion, own: Mapping[str, Any], *, is_prompt_only: bool = False
) -> Body:
    """llama.cpp's final object of one choice."""
    request, service = started.request, started.service
    tokenizer = model_tokenizer(service)
    word = done.stop_sequence or ""
    text, token_ids = ("", []) if is_prompt_only else (done.text, done.token_ids)
    settings, times = generation_settings(request, started.job.options, own), timings(done)
    if is_prompt_only:
        settings |= {"n_predict": 0, "max_tokens": 0}
        times |= {"predicted_n": 0, "predicted_ms": 0.0, "predicted_per_second": 0.0}
    n_tokens = request.n_read + len(done.token_ids)
    return {
        "index": choice,
        "content": text,
        "tokens": token_ids,
        "id_slot": started.slot_ids.get(choice, -1),
        "stop": True,
        "model": service.shown_name,
        "tokens_predicted": len(token_ids),
        "tokens_evaluated": request.n_read,
        "generation_settings": settings,
        "prompt": shown_text(request.prompt_ids, tokenizer),
        "has_new_line": "\n" in text,
        "truncated": is_truncated(started, done),
        "stop_type": "word" if word else "eos" if done.finish_reason in ("stop", "tool_calls") else "limit",
        "stopping_word": word,
        "tokens_cached": n_tokens - bool(done.token_ids),  # the last token drawn has no row
        "timings": times,
    }


def is_truncated(started: Started, done: Completion) -> bool:
    """True if the context ended the answer, or dropped tokens for it."""
    context, request = started.service.context, started.request
    n_tokens = request.n_read + len(done.token_ids)
    is_at_limit = request.max_tokens is not None and len(done.token_ids) >= request.max_tokens
    return n_tokens > context or (n_tokens == context and not is_at_limit)


def shown_text(token_ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """The tokens' own texts, control tokens included; as llama.cpp shows a prompt."""
    return b"".join(map(tokenizer.token_bytes, token_ids)).decode("utf-8", "replace")


def selected(body: Body, paths: Sequence[str] | None) -> Body:
    """The values at some paths such as "timings/prompt_n"; the whole body without paths."""
    if not paths:
        return body
    found: Body = {}
    for path in paths:
        value: Any = body
        for name in path.split("/"):
            value = cast("Body", value).get(name, MISSING) if isinstance(value, dict) else MISSING
        if value is not MISSING:
            found[path] = value
    return found


MISSING = object()
