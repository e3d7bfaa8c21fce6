"""Whether a request can ever be served here, said before it waits for anything."""

from __future__ import annotations

from collections.abc import Container, Iterable
from math import inf
from typing import cast

from camelid.backends.base import Capabilities
from camelid.engine.programs import Limits
from camelid.engine.sequence import OVERFLOWS, Request
from camelid.errors import ContextOverflowError, PlanError, RequestError, shown

MAX_TIMEOUT_S = 1e9
# Fields that are integers, with the least and the most.
INTEGERS = (("max_tokens", 1, inf), ("n_keep", 0, inf), ("priority", -inf, inf))


def check_request(request: Request, vocab_size: int, limits: Limits, programs: Container[str]) -> None:
    """RequestError for what no model of this size can do."""
    if not request.prompt_ids:
        raise RequestError("the prompt is empty; give at least one token", field="prompt")
    check_ids(request.prompt_ids, vocab_size)
    request.sampling.check_vocab(vocab_size)
    check_choice(request.choice)
    for name, least, most in INTEGERS:
        if name != "max_tokens" or request.max_tokens is not None:
            check_integer(name, getattr(request, name), least, most)
    if type(request.salt) is not str:
        raise RequestError(f"cache_salt is {shown(request.salt)}, expected text", field="cache_salt")
    if request.overflow not in OVERFLOWS:
        known = ", ".join(OVERFLOWS)
        raise RequestError(f"overflow is {shown(request.overflow)}, expected {known}", field="overflow")
    for name in ("queue_timeout_s", "timeout_s"):
        _check_seconds(name, getattr(request, name))
    if request.is_atomic and request.n_prompt > limits.chunk - limits.parallel + 1:
        raise RequestError(
            f"an atomic prompt has {request.n_prompt} tokens, and a step holds "
            f"{limits.chunk - limits.parallel + 1} besides others' rows; load with a larger chunk",
            field="is_atomic",
        )
    if request.proposer and (request.samples_on_host or request.sampling.logprobs):
        raise RequestError(
            "speculation needs sampling that the device does by itself; leave out the grammar, logprobs, and "
            "the samplers that it does not have",
            field="speculate",
        )
    for program in request.programs:
        if program not in programs:
            raise PlanError(f"{program} was asked for before its program was compiled", op="sample")


def check_ids(token_ids: Iterable[object], vocab_size: int) -> None:
    """RequestError for what is no token of this vocabulary."""
    for i in token_ids:
        if type(i) is not int or not 0 <= i < vocab_size:
            raise RequestError(
                f"prompt token {shown(i)} is outside the vocabulary of {vocab_size}, whose ids are integers "
                "from 0 on",
                field="prompt",
            )


def check_choice(choice: object) -> None:
    """RequestError for what a step has no word for."""
    check_integer("choice", choice, 0, 2**32 - 1)


def check_integer(name: str, n: object, least: float = -inf, most: float = inf) -> None:
    """RequestError for what is no integer, or out of bounds."""
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
    """The most tokens that the answer may have. ContextOverflowError if prompt and answer do not fit."""
    n_prompt, asked = request.n_prompt, request.max_tokens
    if request.all_logits:
        asked = 0
    elif asked is None:
        asked = max(context - n_prompt, 1)
    fits = n_prompt + (asked if request.overflow == "error" else 1) <= context
    if fits:
        return asked
    raise ContextOverflowError(
        f"{n_prompt} prompt tokens and {asked} to answer exceed the context of {context}; shorten the "
        "prompt, ask for fewer tokens, load with a larger context, or let overflow be 'shift' or 'stop'",
        field="prompt", n_tokens=n_prompt + asked, context_length=context,
    )  # fmt: skip


def check_depth(asked: int | None, capabilities: Capabilities) -> int:
    """Steps that may be in flight: as asked, else as many as the backend allows."""
    most = capabilities.max_in_flight
    if asked is None:
        return most
    if type(asked) is not int or not 1 <= asked <= most:
        raise RequestError(
            f"max_in_flight is {asked!r}, expected an integer from 1 to {most}, the most that backend "
            f"{capabilities.name!r} allows",
            field="max_in_flight",
        )
    return asked
