"""POST /v1/completions: one or several prompts, each continued by one or several choices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from camelid.server.faces.common import new_id
from camelid.server.faces.openai_stream import failed_frame
from camelid.server.faces.text_asked import Asked
from camelid.server.faces.text_reply import TextReply
from camelid.server.fields.openai import MAX_PROMPTS, TEXT
from camelid.server.fields.texts import TextOrIds
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.http.reply import JsonReply, Reply, StreamReply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.fill_in import fill_in_ids, suffix_tokens
from camelid.server.service.group import JobGroup
from camelid.server.service.job import Job
from camelid.server.service.service import Service


async def completions(server: Server, call: Call) -> Reply:
    """The continuations of one or several prompts, whole or streamed."""
    values = TEXT.read(call.json(), call)
    service = await server.service(values.own.get("model"))
    if "max_tokens" in service.defaults:  # the server's, else OpenAI's 16
        values.options.setdefault("max_tokens", service.defaults["max_tokens"])
    if server.slots.is_verbose:
        values.own["verbose"] = True
    asked = Asked.of(values)
    if len(asked.prompts) * asked.n_made > MAX_PROMPTS:
        raise ApiError(
            400, f"{len(asked.prompts)} prompts with {asked.n_made} choices each, at most {MAX_PROMPTS} "
            "answers are made by one request; send fewer prompts", param="prompt",
        )  # fmt: skip
    group = await JobGroup.open(service, text_jobs(asked, service, call))
    call.closing.callback(group.close)
    reply = TextReply(service, asked, group, new_id("cmpl-"))
    if asked.is_stream:
        return StreamReply(reply.frames(), failed_frame)
    return JsonReply(await reply.whole())


def text_jobs(asked: Asked, service: Service, call: Call) -> list[list[Job]]:
    """For each prompt the job that scores it, and the job that continues it, where they are asked for."""
    gguf = service.host.running.file.gguf
    if asked.suffix is not None:
        suffix_tokens(gguf)  # before the request takes places

    def job(prompt: TextOrIds, options: Mapping[str, Any], **more: Any) -> Job:
        fills = asked.suffix is not None
        return Job(
            prompt=prompt, suffix=asked.suffix or "", options=options, endpoint="completions",
            prepare=(lambda b: fill_in_ids(b, gguf, str(prompt), asked.suffix or "")) if fills else None,
            request_id=call.request_id, key=call.key, id_slot=asked.id_slot, max_answer_s=asked.max_answer_s,
            reports_progress=asked.is_stream and (asked.with_progress or asked.with_timings),
            heads_first=True, **more,
        )  # fmt: skip

    def chain(prompt: TextOrIds) -> Iterator[Job]:
        if asked.scores_prompt:
            yield job(prompt, asked.options, prompt_logprobs=asked.logprobs or 0)
        if asked.max_tokens != 0:
            options = {**asked.options, "max_tokens": asked.max_tokens, "logprobs": asked.logprobs or 0}
            yield job(prompt, options, n=asked.n_made)

    return [list(chain(prompt)) for prompt in asked.prompts]


ROUTES = (Route("POST", "/v1/completions", completions, TEXT),)
