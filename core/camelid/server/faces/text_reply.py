"""Replies of text completions: changes of choices, as chunks of a stream or joined."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from math import fsum, inf

from camelid.requests.output_text import Completion, Event
from camelid.server.faces.common import Body, created, model_tokenizer, timings, usage
from camelid.server.faces.legacy_logprobs import LegacyLogprobs
from camelid.server.faces.native_reply import final_body
from camelid.server.faces.openai_stream import DONE, ChunkHead
from camelid.server.faces.progress import LiveTimings, prompt_progress
from camelid.server.faces.text_asked import Asked
from camelid.server.service.group import JobGroup, Piece
from camelid.server.service.prompt_progress import PromptProgress
from camelid.server.service.service import Service

KIND = "text_completion"


@dataclass(slots=True)
class Choice:
    """One continuation of one prompt. `echo` is the prompt's text until it is shown."""

    index: int
    echo: str
    live: LiveTimings
    logprobs: LegacyLogprobs | None
    sums: list[float] = field(default_factory=list[float])  # log-probabilities of the answer's tokens

    @property
    def mean_logprob(self) -> float:
        """The mean log-probability of the answer's tokens; an empty answer is the last."""
        return fsum(self.sums) / len(self.sums) if self.sums else -inf

    def change(self, events: Sequence[Event], logprobs: Body | None, reason: str | None) -> Change:
        """The change by some events; the first one shows the echoed prompt."""
        echo, self.echo = self.echo, ""
        self.sums += [event.logprob for event in events if event.token_id is not None]
        self.live.n_answer = len(self.sums)
        return Change(self, echo + "".join(event.text for event in events), logprobs, reason)


@dataclass(frozen=True, slots=True)
class Change:
    """New text and log-probabilities of a choice, and the reason of its end; or a report on its prompt."""

    choice: Choice
    text: str
    logprobs: Body | None
    finish_reason: str | None
    progress: PromptProgress | None = None

    @property
    def is_empty(self) -> bool:
        return not (
            self.text or self.finish_reason or self.progress or (self.logprobs and self.logprobs["tokens"])
        )

    @property
    def is_plain(self) -> bool:
        """True for text alone."""
        return self.finish_reason is None and self.logprobs is None and self.progress is None

    def body(self, index: int) -> Body:
        """As an object of `choices`."""
        return {
            "index": index, "text": self.text, "logprobs": self.logprobs, "finish_reason": self.finish_reason
        }  # fmt: skip


class TextReply:
    """The reply to one request for text completions."""

    def __init__(self, service: Service, asked: Asked, group: JobGroup, id: str) -> None:
        self._service, self._asked, self._group, self._id = service, asked, group, id
        self._choices = [self._make(i) for i in range(len(group.chains) * asked.n_made)]
        self._scored: dict[int, Completion] = {}
        self._answered: dict[int, list[Completion]] = {}
        self._verbose: Body = {}

    def _make(self, index: int) -> Choice:
        """A choice before its first token."""
        number = index // self._asked.n_made
        prompt_ids = self._group.chains[number][-1].request.read_ids
        echo = self._asked.prompts[number] if self._asked.has_echo else ""
        if not isinstance(echo, str):
            echo = model_tokenizer(self._service).decode(prompt_ids)
        live = LiveTimings(len(prompt_ids))
        if self._asked.logprobs is None:
            return Choice(index, echo, live, None)
        tokenizer = model_tokenizer(self._service)
        opens = tokenizer.is_control(prompt_ids[-1])
        return Choice(index, echo, live, LegacyLogprobs(tokenizer, opens=opens))

    async def changes(self) -> AsyncGenerator[Change, None]:
        """The changes of all choices, as they come."""
        async with aclosing(self._group.pieces()) as pieces:
            async for piece in pieces:
                changes = await self._of_prompt(piece) if piece.is_scoring else self._of_answer(piece)
                for change in changes:
                    if not change.is_empty:
                        yield change

    async def _of_prompt(self, piece: Piece) -> list[Change]:
        """The echoed prompt of every choice, once it is scored; its end without answers."""
        done, chain = piece.batch.completion, self._group.chains[piece.chain]
        if done is None:
            return []
        self._scored[piece.chain] = done
        first = piece.chain * self._asked.n_made
        prompt_ids, reason = chain[0].request.prompt_ids, "length" if len(chain) == 1 else None

        def change(choice: Choice) -> Change:
            known = choice.logprobs if self._asked.has_echo else None
            logprobs = known and known.of_prompt(prompt_ids, piece.batch.scores)
            return choice.change((), logprobs, reason)

        choices = self._choices[first : first + self._asked.n_made]
        texts = [choice.echo for choice in choices if choice.logprobs]
        return await self._service.in_pool(texts, lambda: [*map(change, choices)])

    def _of_answer(self, piece: Piece) -> Iterator[Change]:
        batch = piece.batch
        choice = self._choices[piece.chain * self._asked.n_made + batch.choice]
        choice.live.note(batch)
        if self._asked.with_progress:
            yield from (Change(choice, "", None, None, report) for report in batch.progress)
        if batch.completion:
            self._answered.setdefault(piece.chain, []).append(batch.completion)
            if self._asked.is_verbose and not self._verbose:
                body = final_body(piece.started, batch.choice, batch.completion, {})
                self._verbose = {"__verbose": body | {"tokens": []}}
        logprobs = choice.logprobs.of_events(batch.events) if choice.logprobs else None
        yield choice.change(batch.events, logprobs, batch.completion and batch.completion.finish_reason)

    async def frames(self) -> AsyncIterator[bytes]:
        """The reply as server-sent events."""
        head = ChunkHead.of(
            self._id, KIND, self._service, self._group.adapter, with_usage=self._asked.with_usage
        )
        n_ends = 0
        async with aclosing(self.changes()) as changes:
            async for change in changes:
                n_ends += change.finish_reason is not None
                is_last = n_ends == len(self._choices) and change.finish_reason is not None
                more = self._more(change, is_last=is_last)
                if not more and change.is_plain:
                    yield head.text(change.choice.index, change.text)
                    continue
                yield head.chunk([change.body(change.choice.index)], more)
        if self._asked.with_usage:
            yield head.usage(self._usage(), self._timings())
        yield DONE

    def _more(self, change: Change, *, is_last: bool) -> Body:
        """Further fields of a chunk: a report on the prompt, or timings."""
        if change.progress:
            return {"prompt_progress": prompt_progress(change.progress)}
        if is_last:  # the usage has a chunk of its own only where it is asked for
            counts = {} if self._asked.with_usage else {"usage": self._usage()}
            return counts | {"timings": self._timings()}
        return {"timings": change.choice.live.body()} if self._asked.with_timings else {}

    async def whole(self) -> Body:
        """The reply as one object."""
        found: list[list[Change]] = [[] for _ in self._choices]
        async with aclosing(self.changes()) as changes:
            async for change in changes:
                found[change.choice.index].append(change)
        best = [joined(found[choice.index]) for choice in self._best()]
        return {
            "id": self._id,
            "object": KIND,
            "created": created(),
            "model": self._service.shown_name,
            "system_fingerprint": self._service.fingerprint_of(self._group.adapter),
            "choices": [change.body(i) for i, change in enumerate(best)],
            "usage": self._usage(),
            "timings": self._timings(),
            **self._verbose,
        }

    def _best(self) -> Iterator[Choice]:
        """The choices to return: of each prompt all, or the n likeliest."""
        for first in range(0, len(self._choices), self._asked.n_made):
            made = self._choices[first : first + self._asked.n_made]
            ranked = sorted(made, key=lambda choice: -choice.mean_logprob)
            yield from made if self._asked.n == self._asked.n_made else ranked[: self._asked.n]

    def _usage(self) -> Body:
        """The usage of all prompts; rows that this request itself scored were computed, not cached."""
        parts = [
            usage(self._answered.get(i) or [self._scored[i]]) for i in range(len(self._group.chains))
        ]  # fmt: skip
        counts = ("prompt_tokens", "completion_tokens", "total_tokens")
        n_cached = sum(
            part["prompt_tokens_details"]["cached_tokens"]
            for i, part in enumerate(parts)
            if i not in self._scored
        )
        return {
            **{name: sum(part[name] for part in parts) for name in counts},
            "prompt_tokens_details": {"cached_tokens": n_cached},
        }

    def _timings(self) -> Body:
        first = self._answered.get(0)
        return timings(first[0] if first else self._scored[0])


def joined(changes: Sequence[Change]) -> Change:
    """The sum of a choice's changes."""
    logprobs = [change.logprobs for change in changes if change.logprobs]
    names = logprobs[0] if logprobs else ()
    return Change(
        changes[-1].choice,
        "".join(change.text for change in changes),
        {name: [item for body in logprobs for item in body[name]] for name in names} or None,
        changes[-1].finish_reason,
    )
