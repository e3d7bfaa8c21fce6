"""A request as submitted, and its checks: a request that can never be served is refused before it waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal, Protocol, cast

from camelid.backends.base import DeviceArray
from camelid.engine.adapters import NO_ADAPTER, RequestAdapter, RowKeys, with_adapters
from camelid.engine.media import Media
from camelid.engine.programs import (
    ALL_LOGITS,
    CANDIDATES,
    DECODE,
    ENCODE,
    GUIDED,
    INJECTED,
    INJECTED_LOGITS,
    MIXED,
    PROBED,
    VERIFY,
    Limits,
)
from camelid.engine.results import OutputReader, TokenReader
from camelid.engine.speculative import Proposer
from camelid.errors import ContextOverflowError, PlanError, RequestError, shown
from camelid.sampling.drawing import Constraint
from camelid.sampling.mixture import Mixer
from camelid.sampling.params import SamplingParams

Overflow = Literal["error", "shift", "stop"]
OVERFLOWS: tuple[Overflow, ...] = ("error", "shift", "stop")
MAX_TIMEOUT_S = 1e9
# Integer fields with their least and largest values.
INTEGERS = (("max_tokens", 1, inf), ("n_keep", 0, inf), ("priority", -inf, inf))


class Probe(Protocol):
    """Decides on a request by the logits after its prompt, which the request computes anyway."""

    def see(self, logits: memoryview[float]) -> None:
        """Reads the logits, [V], which are overwritten afterwards."""
        ...

    async def redirected(self, request: Request) -> Request | None:
        """After the first token, or the end without one: the request to submit in place of this one, whose
        programs are compiled; None to go on. The request has the time that is left.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A prompt and the parameters of its continuation.

    `all_logits` computes the logits of every prompt row and generates nothing; `score` of (row, logits,
    log-sum-exp) replaces a row's logits as soon as they are read, and an array `into` of the backend gets
    them in the device's memory. `encodes` reads the prompt in one step and returns `n_encoded` rows of floats
    as its logits: one embedding, the scores of a ranking, or a row per token; `token_types` are the types of
    its tokens in a model that has types.
    `max_tokens` None generates up to the context. `overflow` applies to a request longer than the context:
    "error" rejects it, "stop" ends it at the context, "shift" drops half of the tokens after the first
    `n_keep`. A higher `priority` is scheduled first. `queue_timeout_s` bounds the wait for the first step,
    `timeout_s` the whole request. An `is_atomic` prompt is prefilled in one step. `reuses` enables the prefix
    cache, which requests of one `salt` share. `choice` separates the draws of otherwise equal requests.
    `media` are the prompt's images, in order. `source_ids` are the tokens of an encoder in front of the
    decoder; `prompt_ids` are then the decoder's. An `adapter` adds its terms to the model's matrices. A
    `mixer` mixes another distribution into each row. A `route` looks at the request before it is submitted
    and returns the one to submit; with a `probe`, the request may be replaced after its first token.
    """

    prompt_ids: tuple[int, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None
    eos_ids: frozenset[int] = frozenset()
    reader: Callable[[], OutputReader] = TokenReader
    constraint: Callable[[], Constraint] | None = None
    mixer: Mixer | None = None
    proposer: Callable[[], Proposer] | None = None
    all_logits: bool = False
    score: Callable[[int, memoryview[float], float], Any] | None = None
    into: DeviceArray | None = None
    encodes: bool = False
    n_encoded: int = 1
    token_types: tuple[int, ...] = ()
    overflow: Overflow = "error"
    n_keep: int = 0
    priority: int = 0
    queue_timeout_s: float | None = None
    timeout_s: float | None = None
    is_atomic: bool = False
    reuses: bool = True
    salt: str = ""
    choice: int = 0
    token_bytes: Callable[[int], bytes] = lambda token_id: b""
    media: tuple[Media, ...] = ()
    source_ids: tuple[int, ...] = ()
    adapter: RequestAdapter | None = None
    route: Callable[[Request], Awaitable[Request]] | None = None
    probe: Probe | None = None

    @property
    def n_prompt(self) -> int:
        return len(self.prompt_ids)

    @property
    def read_ids(self) -> tuple[int, ...]:
        """The tokens of the text that was given: the encoder's, if there is one in front of the decoder."""
        return self.source_ids or self.prompt_ids

    @property
    def n_read(self) -> int:
        return len(self.read_ids)

    async def routed(self) -> Request:
        """The request to submit in place of this one. Raises as the route."""
        return await self.route(replace(self, route=None)) if self.route else self

    def after(self, seconds: float) -> Request:
        """The request with the time that is left of it after so many seconds."""
        if self.timeout_s is None:
            return self
        return replace(self, timeout_s=max(self.timeout_s - seconds, 0.001))

    @property
    def row_keys(self) -> RowKeys:
        """The adapter's part in the prefix cache's keys of its rows. Raises as `RequestAdapter.first_row`."""
        adapter = self.adapter
        return adapter.row_keys(adapter.first_row(self.prompt_ids)) if adapter else NO_ADAPTER

    @property
    def generates(self) -> bool:
        """True if the prompt is continued."""
        return not self.all_logits and not self.encodes

    @property
    def uses_prefix_cache(self) -> bool:
        """True if cached rows may replace prefill, which needs every row where none is generated."""
        return self.reuses and self.generates

    @property
    def samples_on_host(self) -> bool:
        """True if the host draws the tokens, so that each row waits for the previous one."""
        return bool(self.constraint or self.mixer) or not self.sampling.fits_device

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that the request needs beside `decode` and `mixed`."""
        return (*self._programs, *map(with_adapters, self._adapted_programs))

    @property
    def _programs(self) -> tuple[str, ...]:
        if self.encodes:
            return (ENCODE,)
        if self.source_ids:
            return (ENCODE, *self._text_programs)
        images = (INJECTED_LOGITS if self.all_logits else INJECTED,) if self.media else ()
        return (*images, *self._text_programs)

    @property
    def _adapted_programs(self) -> tuple[str, ...]:
        """The programs whose variant with adapters the request needs."""
        if self.adapter is None:
            return ()
        return (*self._programs, *((DECODE, MIXED) if self.generates else ()))

    @property
    def _text_programs(self) -> tuple[str, ...]:
        if self.all_logits:
            return (ALL_LOGITS,)
        if self.constraint or self.mixer:
            return (GUIDED,)
        host_sampling = () if self.sampling.fits_device else (CANDIDATES, GUIDED)
        logprobs = (CANDIDATES,) if self.sampling.logprobs else ()
        probed = ((GUIDED if host_sampling or logprobs else PROBED),) if self.probe else ()
        return (*host_sampling, *logprobs, *probed, *((VERIFY,) if self.proposer else ()))


def check_request(request: Request, vocab_size: int, limits: Limits, programs: Container[str]) -> None:
    """Raises RequestError for a request that no model of this size can serve.

    Raises PlanError if one of the request's programs has not been compiled.
    """
    if request.route:
        raise RequestError(
            "this model learns, and looks at a prompt before it is submitted; use asubmit, astream or "
            "agenerate",
            field="learn",
        )
    if not request.prompt_ids:
        raise RequestError("the prompt is empty; give at least one token", field="prompt")
    check_ids(request.prompt_ids, vocab_size)
    request.sampling.check_vocab(vocab_size)
    check_choice(request.choice)
    for name, least, most in INTEGERS:
        if name != "max_tokens" or request.max_tokens is not None:
            check_integer(name, getattr(request, name), least, most)
    if type(request.salt) is not str or "\0" in request.salt:  # which parts the salts of adapters
        raise RequestError(
            f"cache_salt is {shown(request.salt)}, expected text without zero characters", field="cache_salt"
        )
    if request.overflow not in OVERFLOWS:
        known = ", ".join(OVERFLOWS)
        raise RequestError(f"overflow is {shown(request.overflow)}, expected {known}", field="overflow")
    for name in ("queue_timeout_s", "timeout_s"):
        _check_seconds(name, getattr(request, name))
    if request.encodes and request.n_prompt > limits.encode_chunk:
        raise RequestError(
            f"the text has {request.n_prompt} tokens, but a step {limits.encode_chunk}; load with a larger "
            "chunk",
            field="prompt",
        )
    if request.is_atomic and request.n_prompt > limits.chunk - limits.parallel + 1:
        raise RequestError(
            f"an atomic prompt has {request.n_prompt} tokens, but a step has room for "
            f"{limits.chunk - limits.parallel + 1} beside other sequences' rows; load with a larger chunk",
            field="is_atomic",
        )
    if request.into is not None and (request.score or not request.all_logits):
        raise RequestError(
            "into is for all_logits without score: the array gets all logits of the prompt",
            field="into",
        )
    if request.proposer and (request.samples_on_host or request.sampling.logprobs):
        raise RequestError(
            "speculation needs sampling on the device; leave out the grammar, logprobs, memory, and samplers "
            "that the device does not have",
            field="speculate",
        )
    _check_media(request, limits)
    _check_source(request, vocab_size, limits)
    _check_adapter(request)
    for program in request.programs:
        if program not in programs:
            raise PlanError(f"the request needs program {program!r}, which is not compiled", op="sample")


def _check_adapter(request: Request) -> None:
    """Raises RequestError for an activated adapter without its tokens in the prompt, or in a request whose
    rows all run in one step.
    """
    if request.adapter:
        request.adapter.first_row(request.prompt_ids)
    if request.adapter and request.adapter.invocation and (request.encodes or request.is_atomic):
        raise RequestError(
            f"adapter {request.adapter.name!r} is activated inside the prompt, but all rows of this request "
            "run in one step; leave is_atomic out, or use an adapter that acts on all rows",
            field="adapter",
        )


def _check_source(request: Request, vocab_size: int, limits: Limits) -> None:
    """Raises RequestError for a request without tokens for the model's encoder, or with tokens for an encoder
    that the model lacks, and ContextOverflowError for too many tokens.
    """
    n, most = len(request.source_ids), limits.source_rows
    check_ids(request.source_ids, vocab_size)
    if bool(n) != bool(most):
        want = f"1 to {most}, as this model's decoder attends to an encoder's rows" if most else "none"
        raise RequestError(f"source_ids has {n} tokens, expected {want}", field="prompt")
    if n > most:
        raise ContextOverflowError(
            f"the prompt has {n} tokens, but the encoder reads at most {most}; shorten the prompt, or load "
            "with a larger context",
            field="prompt", n_prompt=n, n_tokens=n, context_length=most,
        )  # fmt: skip
    if n and request.overflow == "shift":
        raise RequestError(
            "overflow 'shift' drops tokens of the prompt, which an encoder reads whole; set overflow to "
            "'stop'",
            field="overflow",
        )


def _check_media(request: Request, limits: Limits) -> None:
    """Raises RequestError for images in a request that drops rows of its prompt, or larger than a step."""
    if request.media and request.overflow == "shift":
        raise RequestError(
            "overflow 'shift' drops tokens of the prompt, and an image cannot be cut; set overflow to 'stop'",
            field="overflow",
        )
    if request.media and (request.is_atomic or request.into is not None):
        raise RequestError(
            "a prompt with images is neither atomic nor computed into an array", field="prompt"
        )
    if any(each.rows is None for each in request.media):
        raise RequestError(
            "an image of this request is not encoded; agenerate, astream and asubmit encode images",
            field="prompt",
        )
    most = limits.image_rows
    largest = max((each.end - each.start for each in request.media), default=0)
    if most and largest > most:
        raise RequestError(f"an image has {largest} rows, but a step {most}", field="prompt")


def check_ids(token_ids: Iterable[object], vocab_size: int) -> None:
    """Raises RequestError for a value that is no token id of the vocabulary."""
    for i in token_ids:
        if type(i) is not int or not 0 <= i < vocab_size:
            raise RequestError(
                f"prompt token {shown(i)} is outside the vocabulary of {vocab_size}, whose ids are integers "
                "from 0 on",
                field="prompt",
            )


def check_choice(choice: object) -> None:
    """Raises RequestError for a choice that does not fit a u32 step word."""
    check_integer("choice", choice, 0, 2**32 - 1)


def check_integer(name: str, n: object, least: float = -inf, most: float = inf) -> None:
    """Raises RequestError for a value that is no integer, or outside the bounds."""
    if type(n) is int and least <= n <= most:
        return
    bounds = ((f" from {least}", least), (f" up to {most}", most))
    want = "an integer" + "".join(words for words, bound in bounds if abs(bound) < inf)
    raise RequestError(f"{name} is {shown(n)}, expected {want}", field=name)


def _check_seconds(name: str, seconds: object) -> None:
    if seconds is None or (type(seconds) in (int, float) and 0 < cast("float", seconds) <= MAX_TIMEOUT_S):
        return
    raise RequestError(
        f"{name} is {shown(seconds)}, expected seconds above 0 and up to {MAX_TIMEOUT_S:g}", field=name
    )


def max_answer_tokens(request: Request, context: int) -> int:
    """The most tokens of the answer. Raises ContextOverflowError if prompt and answer exceed the context."""
    n_prompt, n_answer = request.n_prompt, request.max_tokens
    if not request.generates:
        n_answer = 0
    elif n_answer is None:
        n_answer = max(context - n_prompt, 1)
    fits = n_prompt + (n_answer if request.overflow == "error" else 1) <= context
    if fits:
        return n_answer
    raise ContextOverflowError(
        f"{n_prompt} prompt tokens and {n_answer} to answer exceed the context of {context}; shorten the "
        "prompt, request fewer tokens, load with a larger context, or set overflow to 'shift' or 'stop'",
        field="prompt", n_prompt=n_prompt, n_tokens=n_prompt + n_answer, context_length=context,
    )  # fmt: skip
