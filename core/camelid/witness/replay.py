"""Computes recorded answers again, and compares them token by token, or by their hashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from camelid.api.llm import LLM
from camelid.engine.request import Request
from camelid.errors import RequestError
from camelid.loading.identity import Identity
from camelid.requests.output_text import ChatPrompt, Completion, NoText
from camelid.sampling.params import SamplingParams
from camelid.witness.chain import Facts, canonical, sha256
from camelid.witness.prompts import GivenPrompt
from camelid.witness.record import ids_sha256, text_sha256

COMPLETE = ("stop", "length", "tool_calls")  # reasons of an answer that nothing cut off


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one replay: None if nothing could be compared. `detail` has the reason or the place."""

    is_equal: bool | None
    detail: str


def identity_mismatch(recorded: Mapping[str, Any], identity: Identity) -> str:
    """The facts of the build that differ from the recorded ones, in words; "" if all are equal."""
    build: Mapping[str, Any] = recorded.get("build", {})
    names = sorted({*build, *identity.build})
    here = identity.build
    return "; ".join(
        f"{name} was {build.get(name)!r:.80}, is {here.get(name)!r:.80}"
        for name in names
        if build.get(name) != here.get(name)
    )


async def replay(llm: LLM, facts: Facts, given: Mapping[str, GivenPrompt]) -> Verdict:
    """Computes the answer of a request record again. `given` are prompts by hash, for a log without content.

    Raises the errors of a request.
    """
    if reason := _forged(facts):
        return Verdict(False, reason)
    prompt = _recorded_prompt(facts) or given.get(facts["prompt_sha256"])
    if reason := _not_computable(facts, prompt):
        return Verdict(None, reason)
    assert prompt, "a reason was given"
    request = restored_request(llm, facts, prompt)
    if not request.max_tokens:
        return Verdict(None, f"it ended before its first token: {facts['finish_reason']}")
    stream = await llm.asubmit(request)
    try:
        async for _ in stream:
            pass
    finally:
        await stream.aclose()
    return compared(facts, stream.completion)


def restored_request(llm: LLM, facts: Facts, prompt: GivenPrompt) -> Request:
    """The engine's request of a record. It stops one token past the recorded answer."""
    parameters = facts["parameters"]
    options: dict[str, Any] = dict(prompt.constraints.get(facts["constraint_sha256"], {}))
    calls = options.pop("tool_calls", None)
    options["adapter"] = recorded_adapters(llm, parameters)
    if not parameters["is_chat"]:
        options["stop"] = parameters["stop"]
    request = llm.request(_with_calls(prompt, calls) if calls else prompt.token_ids, **options)
    return replace(
        request,
        sampling=SamplingParams.from_options(parameters["sampling"]),
        max_tokens=_most_tokens(facts),
        eos_ids=frozenset(parameters["eos_ids"]),
        overflow=parameters["overflow"],
        n_keep=parameters["n_keep"],
        choice=parameters["choice"],
    )


def recorded_adapters(llm: LLM, parameters: Mapping[str, Any]) -> dict[str, float]:
    """The names and scales of the loaded adapters with the recorded hashes; earlier logs have none.

    Raises RequestError for one that is not loaded.
    """
    known = {each.adapter.digest: each.name for each in llm.adapters}
    found: dict[str, float] = {}
    for each in parameters.get("adapters", ()):
        if each["sha256"] not in known:
            raise RequestError(
                f"the adapter {each['name']!r:.200} of hash {each['sha256']:.12} answered, but is not "
                "loaded; give its file with --lora",
                field="adapter",
            )
        found[known[each["sha256"]]] = each["scale"]
    return found


def compared(facts: Facts, completion: Completion) -> Verdict:
    """The verdict on a computed answer."""
    n, computed = _n_tokens(facts), completion.token_ids
    recorded: list[int] | None = facts.get("content", {}).get("answer_ids")
    if ids_sha256(computed[:n]) != facts["answer_sha256"]:
        return Verdict(False, _difference(recorded, computed[:n]) or _hashes(facts, computed[:n]))
    if not _ends_alike(facts, completion):
        return Verdict(
            False,
            f"differs after token {n}: the recorded answer ended ({facts['finish_reason']}), the computed "
            f"one has {len(computed)} tokens ({completion.finish_reason})",
        )
    if _compares_text(facts) and text_sha256(completion.text) != facts["text_sha256"]:
        return Verdict(False, "the tokens are equal, but their text has another hash")
    return Verdict(True, f"equal, {n} tokens")


def _with_calls(prompt: GivenPrompt, calls: Mapping[str, object]) -> ChatPrompt:
    """A conversation whose answer is held to the grammar of its calls. Its text is not compared."""
    return ChatPrompt(list(prompt.token_ids), lambda stops: NoText(), calls)


def _recorded_prompt(facts: Facts) -> GivenPrompt | None:
    """The prompt in a log with content."""
    content: Mapping[str, Any] | None = facts.get("content")
    return GivenPrompt.of(tuple(content["prompt_ids"]), content["constraint"]) if content else None


def _forged(facts: Facts) -> str:
    """The part of a record's content that does not have its hash, in words; "" if all have."""
    content: Mapping[str, Any] | None = facts.get("content")
    if not content:
        return ""
    found = {"prompt": ids_sha256(content["prompt_ids"]), "answer": ids_sha256(content["answer_ids"])}
    if content["constraint"]:
        found["constraint"] = sha256(canonical(content["constraint"]))
    different = [name for name, value in found.items() if value != facts[f"{name}_sha256"]]
    return f"its {different[0]} does not have the recorded hash" if different else ""


def _not_computable(facts: Facts, prompt: GivenPrompt | None) -> str:
    """The reason why there is nothing to compute or compare; "" if there is."""
    if facts["parameters"].get("scores_prompt"):
        return "it scored its prompt and generated nothing"
    if prompt is None:
        return "its prompt is unknown: the log has no content, and no given prompt has its hash"
    if facts["constraint_sha256"] not in (None, *prompt.constraints):
        return (
            'its constraint is unknown: give it beside the prompt, as "constraint", or the tools and '
            "tool_choice of its messages"
        )
    return ""


def _n_tokens(facts: Facts) -> int:
    return facts["usage"]["completion_tokens"]


def _most_tokens(facts: Facts) -> int:
    """One token more than recorded, which shows an end; the recorded number for an answer cut off."""
    n, most = _n_tokens(facts), facts["parameters"]["max_tokens"]
    if facts["finish_reason"] not in COMPLETE:
        return n
    return n + 1 if most is None else min(n + 1, most)


def _ends_alike(facts: Facts, completion: Completion) -> bool:
    """True if the computed answer ends where the recorded one does.

    Stop sequences of a conversation may match markers that only its template's parser shows, so such an
    answer is computed without them, and its end is not compared.
    """
    reason, parameters = facts["finish_reason"], facts["parameters"]
    if reason not in COMPLETE or (parameters["is_chat"] and parameters["stop"] and reason != "length"):
        return True
    want = "stop" if reason == "tool_calls" else reason
    return completion.finish_reason == want and len(completion.token_ids) == _n_tokens(facts)


def _compares_text(facts: Facts) -> bool:
    """True if the text depends on the tokens alone, not on the parser of a conversation."""
    is_plain = not facts["parameters"]["is_chat"] and facts["text_sha256"] is not None
    return is_plain and facts["finish_reason"] in COMPLETE


def _difference(recorded: Sequence[int] | None, computed: Sequence[int]) -> str:
    """The first token that differs, in words; "" if the recorded tokens are unknown."""
    if recorded is None:
        return ""
    pairs = enumerate(zip(recorded, computed, strict=False))
    at, found = next(((i, pair) for i, pair in pairs if pair[0] != pair[1]), (0, None))
    if found:
        return f"differs at token {at}: recorded {found[0]}, computed {found[1]}"
    return f"differs at token {min(len(recorded), len(computed))}: the computed answer ends there"


def _hashes(facts: Facts, computed: Sequence[int]) -> str:
    return (
        f"differs: {_n_tokens(facts)} recorded tokens with hash {facts['answer_sha256']}, "
        f"computed {len(computed)} with hash {ids_sha256(computed)}"
    )
