"""POST /completion: llama.cpp's own completions, whole and streamed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from camelid.requests.output_text import Completion
from camelid.server.faces.common import Body, answer_limit_s, model_tokenizer
from camelid.server.faces.native_probs import n_logprobs
from camelid.server.faces.native_prompts import Mixed, mixed_ids, split_prompts, text_biases
from camelid.server.faces.native_reply import NativeChoice
from camelid.server.faces.progress import wants_progress
from camelid.server.fields.native import COMPLETION
from camelid.server.fields.table import Values
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError, native_body
from camelid.server.http.reply import JsonReply, Reply, StreamReply, sse
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.host import Batch
from camelid.server.service.job import Job
from camelid.server.service.service import Service, Started

Prompt = str | tuple[int, ...]


async def completion(server: Server, call: Call) -> Reply:
    """The answers to one prompt or to several."""
    values = COMPLETION.read(call.json(), call)
    prompts = split_prompts(values.own["prompt"])
    service = await server.service(values.own.get("model"))
    with service.text_place():
        jobs = await native_jobs(server, service, call, values, prompts, "completion")
    return await answered(service, call, values, jobs)


async def answered(service: Service, call: Call, values: Values, jobs: Sequence[Job]) -> Reply:
    """The reply to jobs of one set of fields."""
    started = await start_all(service, jobs)
    for each in started:
        call.closing.callback(each.close)
    choices = [NativeChoice(each, choice, 0, values.own, values.own.get("n_predict") == 0)
               for each in started for choice in range(each.job.n)]  # fmt: skip
    for index, choice in enumerate(choices):
        choice.index = index
    if values.own.get("stream"):
        return StreamReply(frames(choices), failed_frame)
    bodies = await whole(choices)
    return JsonReply(bodies if len(bodies) > 1 else bodies[0])


async def native_jobs(
    server: Server, service: Service, call: Call, values: Values, prompts: Sequence[Mixed], endpoint: str
) -> list[Job]:
    """The jobs of all prompts. Raises ApiError 400 for more answers than the server could ever take."""
    own, shifts = values.own, server.slots.shifts_context
    n = own.get("n_cmpl", own.get("n", 1))
    options = await service.in_pool(
        own.get("logit_bias"), lambda: native_options(values, service, shifts=shifts)
    )
    if len(prompts) * n > service.admission.capacity:
        raise ApiError(
            400, f"{len(prompts) * n} answers are asked for at once, the server takes at most "
            f"{service.admission.capacity}; send fewer prompts", param="prompt",
        )  # fmt: skip
    check_slot(own.get("id_slot", -1), service)
    jobs: list[Job] = []
    for each in prompts:
        prompt = await prompt_of(each, service, is_counted=shifts and own.get("n_keep") == -1)
        more: Body = {"special": True} if isinstance(prompt, str) else {}
        if shifts and "n_keep" in own:
            more["n_keep"] = len(prompt) if own["n_keep"] < 0 else own["n_keep"]
        job = Job(
            prompt=prompt, options=options | more, n=n, endpoint=endpoint, request_id=call.request_id,
            key=call.key, id_slot=own.get("id_slot", -1), reports_progress=wants_progress(own),
            max_answer_s=answer_limit_s(own),
        )  # fmt: skip
        jobs.append(job)
    return jobs


async def prompt_of(prompt: Mixed, service: Service, *, is_counted: bool) -> Prompt:
    """A text, which the service tokenizes in its place in the queue, or token ids."""
    if isinstance(prompt, str) and not is_counted:
        return prompt
    tokenizer = model_tokenizer(service)
    work = prompt if isinstance(prompt, str) else list(prompt)
    return tuple(await service.in_pool(work, lambda: mixed_ids(prompt, tokenizer)))  # type: ignore[arg-type]


def native_options(values: Values, service: Service, *, shifts: bool) -> Body:
    """The options of the Python API. Like llama.cpp, an answer ends with the context instead of failing."""
    own, options = values.own, values.options
    options["overflow"] = "shift" if shifts else "stop"
    limit = answer_limit(own)
    if limit is not None:
        options["max_tokens"] = None if limit < 0 else max(limit, 1)
    if shifts and own.get("n_discard"):
        raise ApiError(400, "n_discard is not supported: a shift drops half of the tokens", param="n_discard")
    options["logprobs"] = n_logprobs(own, options)
    tokenizer = model_tokenizer(service)
    biases = text_biases(own["logit_bias"], tokenizer) if "logit_bias" in own else {}
    if own.get("ignore_eos"):  # banned, as in llama.cpp, so that the answer goes on in text
        biases |= dict.fromkeys(sorted(tokenizer.eos_ids), False)
    if biases:
        options["logit_bias"] = biases
    return options


def answer_limit(own: Body) -> int | None:
    """The most tokens that a request asks for, -1 for no bound; None leaves it to the server."""
    names = ("n_predict", "max_completion_tokens", "max_tokens")
    return next((own[name] for name in names if name in own), None)


def check_slot(id_slot: int, service: Service) -> None:
    """Raises ApiError 400 for a slot that does not exist."""
    if id_slot >= len(service.slots):
        raise ApiError(400, f"id_slot is {id_slot}, expected 0 to {len(service.slots) - 1}", param="id_slot")


async def start_all(service: Service, jobs: Sequence[Job]) -> list[Started]:
    """Starts all jobs, or none."""
    started: list[Started] = []
    try:
        for job in jobs:
            await asyncio.sleep(0)  # other tasks between short prompts, which this loop tokenizes
            started.append(await service.start(job))
    except BaseException:
        for each in started:
            each.close()
        raise
    return started


async def whole(choices: Sequence[NativeChoice]) -> list[Body]:
    """The final objects of all choices."""
    bodies: dict[int, Body] = {}
    async with aclosing(batches(choices)) as both:
        async for choice, batch in both:
            choice.read(batch)
            if batch.completion:
                bodies[choice.index] = choice.final(batch.completion, is_streamed=False)
    return [bodies[index] for index in sorted(bodies)]


async def frames(choices: Sequence[NativeChoice]) -> AsyncIterator[bytes]:
    """The chunks of all choices as server-sent events; the final object of each is its last."""
    async with aclosing(batches(choices)) as both:
        async for choice, batch in both:
            bodies = choice.read(batch)
            if batch.completion:
                bodies.append(final_chunk(choice, batch.completion, bodies))
            if bodies:
                yield b"".join(map(sse, bodies))


def final_chunk(choice: NativeChoice, done: Completion, bodies: list[Body]) -> Body:
    """The final object; takes the text withheld up to the end, which has no token, from the last chunk."""
    has_withheld = bodies and not bodies[-1]["tokens"] and bodies[-1]["content"]
    return choice.final(done, is_streamed=True, withheld=bodies.pop()["content"] if has_withheld else "")


async def batches(choices: Sequence[NativeChoice]) -> AsyncGenerator[tuple[NativeChoice, Batch], None]:
    """The batches of all jobs with their choices, as they come; closing the generator cancels the jobs."""
    by_job: dict[Started, list[NativeChoice]] = {}
    for choice in choices:
        by_job.setdefault(choice.started, []).append(choice)
    if len(by_job) == 1:
        (started,) = by_job
        async with aclosing(started.batches()) as one:
            async for batch in one:
                yield by_job[started][batch.choice], batch
        return
    merged = asyncio.Queue[tuple[Started, Batch | Exception | None]](1)
    tasks = [asyncio.ensure_future(_forward(started, merged)) for started in by_job]
    try:
        while by_job:
            started, batch = await merged.get()
            if isinstance(batch, Exception):
                raise batch
            if batch is None:
                del by_job[started]
            else:
                yield by_job[started][batch.choice], batch
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _forward(started: Started, merged: asyncio.Queue[tuple[Started, Batch | Exception | None]]) -> None:
    """Puts a job's batches into a queue, and its error or None at the end."""
    end: Exception | None = None
    try:
        async with aclosing(started.batches()) as own:
            async for batch in own:
                await merged.put((started, batch))
    except Exception as error:
        end = error
    await merged.put((started, end))


def failed_frame(error: ApiError) -> bytes:
    """The last event of a stream that failed after its first byte."""
    return f"data: {json.dumps(native_body(error, ''))}\n\n".encode()


ROUTES = tuple(Route("POST", path, completion, COMPLETION) for path in ("/completion", "/completions"))
