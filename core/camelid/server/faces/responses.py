"""POST /v1/responses, and the stored responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from camelid.requests.build import RequestBuilder
from camelid.requests.output_text import ChatPrompt
from camelid.requests.transcript import Transcript, transcript_ids, updated_transcript
from camelid.server.faces.chat_completions import known_variables, template_variables, tool_options
from camelid.server.faces.common import (
    Body,
    answer_limit_s,
    check_stream_options,
    model_tokenizer,
    new_id,
    scheduling_options,
)
from camelid.server.faces.images import check_takes_images
from camelid.server.faces.response_items import Item, conversation_messages, has_images, input_items
from camelid.server.faces.response_reply import ResponseReply, Turn, nested
from camelid.server.fields.kinds import Schema
from camelid.server.fields.responses import INPUT_TOKENS, RESPONSES
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.http.reply import JsonReply, Reply, StreamReply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.job import Job
from camelid.server.service.response_store import StoredResponse
from camelid.server.service.service import Service

PAGE, MOST_PAGE = 20, 100  # items in a list
PAGES: Mapping[str, Schema] = {
    "order": {"enum": ["asc", "desc"]},
    "limit": {"type": "integer", "minimum": 1, "maximum": MOST_PAGE},
    "after": {"type": "string"},
}
NOT_AGAIN: Mapping[str, Schema] = {"stream": {"enum": ["false"]}, "starting_after": {"maxLength": 0}}
LOGPROBS = "message.output_text.logprobs"
NO_TOOLS = "there are no built-in tools"
NOT_INCLUDED = {
    "reasoning.encrypted_content": "the reasoning is sent unencrypted",
    "message.input_image.image_url": "an image is stored as it was sent",
}
CHAT_NAMES = ("tools", "tool_choice", "parallel_tool_calls", "variables")


async def responses(server: Server, call: Call) -> Reply:
    """One answer to a conversation, whole or streamed."""
    values = RESPONSES.read(call.json(), call)
    check_stream_options(values.own)
    note_inclusions(values.own, call)
    own, service = values.own, await server.service(values.own.get("model"))
    turn = open_turn(server, call, own, service)
    options = {**values.options, **response_options(own, service, call)}
    if wants_logprobs(own):
        options["logprobs"] = own.get("top_logprobs", 0)
    started = await service.start(response_job(turn, options, call, answer_limit_s(own)))
    call.closing.callback(started.close)
    reply = ResponseReply(
        service, own, turn, id=new_id(server.responses.prefix),
        store=lambda stored: server.responses.add(call.key, stored),
        tokenizer=model_tokenizer(service) if wants_logprobs(own) else None,
    )  # fmt: skip
    if own.get("stream"):
        return StreamReply(reply.frames(started), reply.failed_frame)
    return JsonReply(await reply.whole(started))


async def count_input_tokens(server: Server, call: Call) -> Reply:
    """The number of tokens of a conversation."""
    own = INPUT_TOKENS.read(call.json(), call).own
    service = await server.service(own.get("model"))
    turn = open_turn(server, call, own, service)
    with service.text_place():
        request = await service.request(response_job(turn, response_options(own, service, call), call))
    return JsonReply({"object": "response.input_tokens", "input_tokens": request.n_read})


def open_turn(server: Server, call: Call, own: Mapping[str, Any], service: Service) -> Turn:
    """The conversation up to the answer. Raises ApiError 404 for an unknown previous response."""
    previous, id = None, own.get("previous_response_id")
    if id is not None:
        previous = server.responses.find(call.key, id)
    inputs = input_items(own.get("input"))
    if not (inputs or previous or own.get("instructions")):
        raise ApiError(400, "input is missing: send text or items", param="input")
    items = [*(previous.items if previous else ()), *inputs]
    if has_images(items):
        check_takes_images(service, "input")
    is_same_model = previous is not None and previous.body["model"] == service.shown_name
    transcript: Transcript = previous.transcript if previous and is_same_model else ()
    messages = conversation_messages(items, own.get("instructions"))
    return Turn(inputs, items, messages, transcript)


def response_job(turn: Turn, options: Mapping[str, Any], call: Call, max_answer_s: float = 0.0) -> Job:
    """The job of a turn, whose prompt keeps the token ids that the model drew in earlier turns."""

    def prepare(builder: RequestBuilder) -> ChatPrompt:
        chat = {name: options[name] for name in CHAT_NAMES if name in options}
        rendered = builder.chat.rendered(turn.messages, **chat)
        turn.transcript = updated_transcript(turn.transcript, rendered.rendering, builder.tokenizer)
        turn.text_of = rendered.text_of
        return rendered.prompt(transcript_ids(turn.transcript))

    return Job(
        prompt=turn.messages, options=options, prepare=prepare, endpoint="responses",
        request_id=call.request_id, key=call.key, max_answer_s=max_answer_s,
        heads_first=True,
    )  # fmt: skip


def response_options(own: Mapping[str, Any], service: Service, call: Call) -> Body:
    """The options of tools, format, reasoning and scheduling."""
    found = tool_options(chat_tools(own)) | scheduling_options(own)
    effort = {"reasoning_effort": nested(own, "reasoning").get("effort")}
    variables = known_variables(template_variables({**own, **effort}, service), service, call)
    if variables:
        found["variables"] = variables
    form = nested(own, "text").get("format")
    if form:
        found["response_format"] = chat_format(form)
    return found


def chat_format(form: Item) -> Body:
    """A text format as chat completions have it."""
    if form["type"] != "json_schema":
        return {"type": form["type"]}
    return {"type": "json_schema", "json_schema": {name: form[name] for name in form if name != "type"}}


def chat_tools(own: Mapping[str, Any]) -> Body:
    """Tools and their choice as chat completions have them; allowed tools leave out the others."""
    tools: Sequence[Item] = own.get("tools", ())
    choice: Any = own.get("tool_choice")
    if choice and not isinstance(choice, str):
        tools, choice = chosen_tools(tools, choice)
    return {
        "tools": [chat_tool(tool) for tool in tools],
        "tool_choice": choice,
        "parallel_tool_calls": own.get("parallel_tool_calls"),
    }


def chat_tool(tool: Item) -> Body:
    return {"type": "function", "function": {name: tool[name] for name in tool if name != "type"}}


def chosen_tools(tools: Sequence[Item], choice: Item) -> tuple[Sequence[Item], Any]:
    """Tools and choice for a choice that names tools. Raises ApiError 400 for a tool that is not given."""
    if choice["type"] == "function":
        return tools, {"type": "function", "function": {"name": choice["name"]}}
    names = {tool["name"] for tool in choice["tools"]}
    unknown = sorted(names - {tool["name"] for tool in tools})
    if unknown:
        raise ApiError(
            400, f"tool_choice allows {unknown[0]!r:.80}, which is not in tools", param="tool_choice"
        )
    return [tool for tool in tools if tool["name"] in names], choice["mode"]


def note_inclusions(own: Mapping[str, Any], call: Call) -> None:
    """Warns of additions to outputs that no answer here has."""
    for name in own.get("include", ()):
        if name != LOGPROBS:
            call.warnings.append(f"include {name} has no effect: {NOT_INCLUDED.get(name, NO_TOOLS)}")


def wants_logprobs(own: Mapping[str, Any]) -> bool:
    """True if messages of the answer have log-probabilities."""
    return bool(own.get("top_logprobs")) or LOGPROBS in own.get("include", ())


async def one_response(server: Server, call: Call) -> Reply:
    """A stored response."""
    stored = stored_response(server, call)
    if call.query.get("stream", "false") != "false" or call.query.get("starting_after"):
        raise ApiError(400, "a stored response cannot be streamed again", param="stream")
    return JsonReply(stored.body)


async def delete_response(server: Server, call: Call) -> Reply:
    """Deletes a stored response."""
    server.responses.remove(call.key, call.params["id"])
    return JsonReply({"id": call.params["id"], "object": "response", "deleted": True})


async def cancel_response(server: Server, call: Call) -> Reply:
    """Always an error: closing the connection cancels an answer."""
    stored_response(server, call)
    raise ApiError(
        400, "only a background response can be cancelled, and none is computed in the background; close the "
        "connection of a running request to cancel it", code="not_cancellable",
    )  # fmt: skip


async def list_input_items(server: Server, call: Call) -> Reply:
    """A page of a stored response's own input, latest first unless asked otherwise."""
    items, after = list(stored_response(server, call).inputs), call.query.get("after")
    order, limit = call.query.get("order", "desc"), call.query.get("limit", str(PAGE))
    if order not in ("asc", "desc"):
        raise ApiError(400, "order is neither 'asc' nor 'desc'", param="order")
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit[:9]) <= MOST_PAGE):
        raise ApiError(
            400, f"limit is {limit!r:.20}, expected an integer from 1 to {MOST_PAGE}", param="limit"
        )
    items = items[::-1] if order == "desc" else items
    ids = [item["id"] for item in items]
    if after is not None and after not in ids:
        raise ApiError(400, f"the response has no input item {after!r:.80}", param="after")
    start = ids.index(after) + 1 if after is not None else 0
    page = items[start : start + int(limit)]
    return JsonReply({
        "object": "list", "data": page, "has_more": start + len(page) < len(items),
        "first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None,
    })  # fmt: skip


def stored_response(server: Server, call: Call) -> StoredResponse:
    """The response in the path. Raises ApiError 404."""
    return server.responses.find(call.key, call.params["id"])


ROUTES = (
    *(Route("POST", path, responses, RESPONSES) for path in ("/v1/responses", "/responses")),
    *(
        Route("POST", path, count_input_tokens, INPUT_TOKENS)
        for path in ("/v1/responses/input_tokens", "/responses/input_tokens")
    ),
    Route("GET", "/v1/responses/{id}", one_response, query=NOT_AGAIN),
    Route("DELETE", "/v1/responses/{id}", delete_response),
    Route("POST", "/v1/responses/{id}/cancel", cancel_response),
    Route("GET", "/v1/responses/{id}/input_items", list_input_items, query=PAGES),
)
