"""Whether a request can ever be served here, said before it waits for anything."""

from __future__ import annotations

from collections.abc import Collection

from camelid.backends.base import Capabilities
from camelid.errors import ContextOverflowError, PlanError, RequestError
from camelid.messages import shown
from camelid.programs import Limits
from camelid.sequence import OVERFLOWS, Request


def check_request(request: Request, vocab_size: int, limits: Limits, programs: Collection[str]) -> None:
    """RequestError for what no model of this size can do."""
    _check_prompt(request.prompt_ids, vocab_size)
    _check_count("max_tokens", request.max_tokens)
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
    if request.proposer and (request.sampler_waits or request.sampling.logprobs):
        raise RequestError(
            "speculation needs sampling that the device does by itself; leave out the grammar, logprobs, and "
            "the samplers that it does not have",
            field="speculate",
        )
    for program in request.programs:
        if program not in programs:
            raise PlanError(f"{program} was asked for before its program was compiled", op="sample")


def _check_prompt(prompt_ids: tuple[int, ...], vocab_size: int) -> None:
    if not prompt_ids:
        raise RequestError("the prompt is empty; give at least one token", field="prompt")
    bad = next((i for i in prompt_ids if not 0 <= i < vocab_size), None)
    if bad is not None:
        raise RequestError(f"prompt token {bad} is outside the vocabulary of {vocab_size}", field="prompt")


def _check_count(name: str, n: object) -> None:
    if n is not None and (not isinstance(n, int) or isinstance(n, bool) or n < 1):
        raise RequestError(f"{name} is {shown(n)}, expected an integer from 1 on", field=name)


def _check_seconds(name: str, seconds: object) -> None:
    if seconds is None or (
        isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0
    ):
        return
    raise RequestError(f"{name} is {shown(seconds)}, expected seconds above 0", field=name)


def most_tokens(request: Request, context: int) -> int:
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
