"""The witness log of a server: an observer that records each choice of each job once it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from weakref import WeakKeyDictionary

from camelid.engine.results import FinishReason, Timings, Usage
from camelid.loading.identity import Identity, identify
from camelid.requests.build import checked_stops
from camelid.requests.options import Prompt
from camelid.requests.output_text import ChatPrompt, Completion, Event
from camelid.server.service.host import Batch, EngineHost
from camelid.server.service.service import Service, Started
from camelid.witness.log import WitnessLog
from camelid.witness.record import WitnessRecord


@dataclass(slots=True)
class Partial:
    """The answer of one choice as far as it was handed over: the answer of a job that is cancelled."""

    began: float
    token_ids: list[int] = field(default_factory=list[int])
    texts: list[str] = field(default_factory=list[str])

    def add(self, events: Sequence[Event]) -> None:
        """Adds the events of a batch."""
        self.token_ids += [event.token_id for event in events if event.token_id is not None]
        self.texts += [event.text for event in events]

    def completion(self, n_prompt: int, seed: int, reason: FinishReason) -> Completion:
        """The answer so far. Of its times only the total is known."""
        total_s = perf_counter() - self.began
        timings = Timings(
            queue_s=0.0, ttft_s=0.0, prefill_tps=0.0, decode_tps=0.0, inter_token_s=0.0, total_s=total_s,
            n_steps=0,
        )  # fmt: skip
        return Completion(
            text="".join(self.texts),
            token_ids=self.token_ids,
            finish_reason=reason,
            usage=Usage(n_prompt, len(self.token_ids)),
            timings=timings,
            seed=seed,
        )


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A job under way: the model that answers it, and its choices without an end."""

    identity: Identity | None
    choices: dict[int, Partial]


class WitnessObserver:
    """Appends a record for each choice: finished, failed, or cancelled because its client left."""

    image_refusal = "this server keeps a witness log, which cannot replay images; send text alone"

    def __init__(self, log: WitnessLog) -> None:
        self.log = log
        self._models: dict[str, Identity] = {}  # by name, whose model may be replaced while the old answers
        self._identities = WeakKeyDictionary[EngineHost, Identity]()
        self._open: dict[Started, OpenJob] = {}

    async def loaded(self, service: Service) -> None:
        """States a model before its first request. Reads its whole file, in a thread."""
        identity = await identify(service.host.running)
        self._identities[service.host] = self._models[service.name] = identity
        self.log.describe(self._models)

    def submitted(self, started: Started) -> None:
        """Remembers a job."""
        choices = {choice: Partial(perf_counter()) for choice in range(started.job.n)}
        self._open[started] = OpenJob(self._identities.get(started.service.host), choices)

    def advanced(self, started: Started, batch: Batch) -> None:
        """Records a choice with its last batch."""
        job = self._open[started]
        partial = job.choices[batch.choice]
        partial.add(batch.events)
        if batch.is_last:
            del job.choices[batch.choice]
            record = record_of(started, batch.choice, partial, batch.completion, batch.error)
            self.log.append(record, job.identity)

    def closed(self, started: Started) -> None:
        """Records the choices that were cancelled."""
        if job := self._open.pop(started, None):
            for choice, partial in job.choices.items():
                self.log.append(record_of(started, choice, partial, None, None), job.identity)


def record_of(
    started: Started, choice: int, partial: Partial, completion: Completion | None, error: Exception | None
) -> WitnessRecord:
    """The record of a choice that finished, failed with an error, or with neither was cancelled."""
    job, request = started.job, replace(started.request, choice=choice)
    reason = "error" if error else "cancelled"
    seed = request.sampling.seed or 0
    return WitnessRecord.of(
        request,
        completion or partial.completion(request.n_read, seed, reason),
        id=job.request_id,
        key=job.key.name,
        endpoint=job.endpoint,
        model=started.service.name,
        stop=checked_stops(job.options.get("stop", ())),
        is_chat=is_chat(job.prompt),
        prompt=asked_prompt(job.prompt),
        error=type(error).__name__ if error else "",  # its message could quote the prompt
    )


def is_chat(prompt: Prompt | ChatPrompt) -> bool:
    """True for a conversation, whose answer a template's parser reads."""
    return isinstance(prompt, ChatPrompt) or (not isinstance(prompt, str) and not _are_ids(prompt))


def asked_prompt(prompt: Prompt | ChatPrompt) -> Prompt | None:
    """The text or messages of a prompt; None where only its token ids are known."""
    return None if isinstance(prompt, ChatPrompt) or _are_ids(prompt) else prompt


def _are_ids(prompt: Prompt) -> bool:
    return not isinstance(prompt, str) and all(isinstance(item, int) for item in prompt)
