"""Ollama's chat and generate requests as jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from camelid.errors import UnsupportedModelError
from camelid.loading.options import LoadOptions
from camelid.requests.build import RequestBuilder
from camelid.requests.options import Message, Prompt
from camelid.server.faces.common import Body
from camelid.server.faces.images import with_images
from camelid.server.faces.thinking import effort_variables, thinking_variables
from camelid.server.fields.ollama import OPTIONS
from camelid.server.fields.table import Values
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.service.fill_in import fill_in_ids, suffix_tokens
from camelid.server.service.job import Job
from camelid.server.service.service import Service

# Option that must equal the loaded model's value -> its load option.
LOAD_OPTIONS = {"num_batch": "chunk", "num_thread": "threads"}


def chat_job(values: Values, service: Service, call: Call, load: LoadOptions) -> Job:
    """The job of a chat request."""
    own = values.own
    options = common_options(own, service, call, load) | think_options(own, service)
    if own.get("tools"):
        options["tools"] = own["tools"]
    return job_of(conversation(own["messages"], service), options, "ollama_chat", call)


def generate_job(values: Values, service: Service, call: Call, load: LoadOptions) -> Job:
    """The job of a generate request."""
    own = values.own
    for kind in ("raw", "suffix"):
        check_alone(own, kind)
    options = common_options(own, service, call, load)
    if own.get("suffix"):
        return fill_in_job(own, options, service, call)
    if own.get("raw"):
        options["special"] = True  # a whole prompt, written with the model's own control tokens
        return job_of(own["prompt"], options, "ollama_generate", call)
    options |= think_options(own, service)
    return job_of(generate_prompt(own, service), options, "ollama_generate", call)


def fill_in_job(own: Mapping[str, Any], options: Body, service: Service, call: Call) -> Job:
    """The job that asks for the text between a prompt and a suffix. Raises ApiError 400."""
    gguf, prompt, suffix = service.host.running.file.gguf, own["prompt"], own["suffix"]
    suffix_tokens(gguf)  # before the request takes a place

    def prepare(builder: RequestBuilder) -> Prompt:
        return fill_in_ids(builder, gguf, prompt, suffix)

    return replace(job_of(prompt, options, "ollama_generate", call), suffix=suffix, prepare=prepare)


def job_of(prompt: Prompt, options: Body, endpoint: str, call: Call) -> Job:
    return Job(
        prompt=prompt, options=options, endpoint=endpoint, request_id=call.request_id, key=call.key
    )  # fmt: skip


def generate_prompt(own: Mapping[str, Any], service: Service) -> Prompt:
    """The prompt as a user's message; a model without a template continues the text."""
    images = own.get("images") or ()
    if not (own.get("system") or images or has_template(service)):
        return own["prompt"]
    system = [{"role": "system", "content": own["system"]}] if own.get("system") else []
    return [*system, {"role": "user", "content": with_images(own["prompt"], images, "images", service)}]


def check_alone(own: Mapping[str, Any], kind: str) -> None:
    """Raises ApiError 400 for a field of conversations beside one of plain prompts."""
    other = next(
        (name for name in ("system", "think", "raw", "images") if own.get(name) and name != kind), None
    )
    if own.get(kind) and other:
        raise ApiError(400, f"{kind} uses no chat template; leave {other} out", param=other)


def has_template(service: Service) -> bool:
    """True for a model with a chat template."""
    try:
        return bool(service.builder.chat.sources)
    except UnsupportedModelError:
        return False


def conversation(messages: Iterable[Body], service: Service) -> list[Message]:
    """The messages in OpenAI's shape. Calls get ids, and a result the id of the call that it answers."""
    open_calls, found = deque[tuple[str, str]](), list[Body]()
    for message in messages:
        made = openai_message(message, open_calls)
        images = message.get("images") or ()
        found.append({**made, "content": with_images(made["content"], images, "messages.images", service)})
    return cast("list[Message]", found)


def openai_message(message: Body, open_calls: deque[tuple[str, str]]) -> Body:
    """One message; `open_calls` are ids and names of calls without a result."""
    made: Body = {"role": message["role"], "content": message.get("content", "")}
    if message.get("thinking"):
        made["reasoning_content"] = message["thinking"]
    if message.get("tool_calls"):
        calls = [openai_call(call, len(open_calls) + i) for i, call in enumerate(message["tool_calls"])]
        open_calls.extend((call["id"], call["function"]["name"]) for call in calls)
        made["tool_calls"] = calls
    if message["role"] == "tool":
        name = message.get("tool_name", "")
        answered = message.get("tool_call_id") or answered_call(name, open_calls)
        made |= {"tool_call_id": answered} if answered else {}
        made |= {"name": name} if name else {}
    return made


def openai_call(call: Body, number: int) -> Body:
    """A call; Mistral's templates want ids of nine letters and digits."""
    function = {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
    return {"id": call.get("id") or f"call{number:05d}", "type": "function", "function": function}


def answered_call(name: str, open_calls: deque[tuple[str, str]]) -> str | None:
    """The id of the first open call of a tool; of any tool without a name."""
    found = next((each for each in open_calls if not name or each[1] == name), None)
    if found:
        open_calls.remove(found)
    return found[0] if found else None


def common_options(own: Mapping[str, Any], service: Service, call: Call, load: LoadOptions) -> Body:
    """The options of both kinds of request. An answer longer than the context ends there."""
    options = sampling_options(own.get("options") or {}, service, call, load)
    options["overflow"] = "stop"
    if own.get("top_logprobs") and not own.get("logprobs"):
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    if own.get("logprobs"):
        options["logprobs"] = own.get("top_logprobs", 0)
    if own.get("format"):
        schema = own["format"]
        options |= (
            {"response_format": {"type": "json_object"}} if schema == "json" else {"json_schema": schema}
        )
    return {name: value for name, value in options.items() if value != {}}


def think_options(own: Mapping[str, Any], service: Service) -> Body:
    """The option of the template's variables: `think`, and the server's defaults."""
    think = own.get("think")
    asked = {} if think is None else think_variables(think, service)
    variables = service.template_variables(asked) if has_template(service) else {}
    return {"variables": variables} if variables else {}


def think_variables(think: bool | str, service: Service) -> Body:
    """Variables of the template for `think`; a level is "on" where the template has no levels."""
    if not has_template(service):
        raise ApiError(400, "this model cannot think; leave think out", param="think")
    chat = service.builder.chat
    if isinstance(think, str) and "reasoning_effort" in chat.variables:
        return effort_variables(chat, think, "think")
    return thinking_variables(chat, bool(think), "think")


def sampling_options(body: Mapping[str, Any], service: Service, call: Call, load: LoadOptions) -> Body:
    """The options of the field `options`; load options must equal the loaded model's."""
    values = OPTIONS.read(body, call)
    own, options = values.own, values.options
    if own.get("num_ctx", 0) > service.context:
        raise ApiError(
            400, f"num_ctx is {own['num_ctx']}, but the model is loaded with a context of {service.context}; "
            "ask for less, or load the model with a larger context", param="num_ctx",
        )  # fmt: skip
    if own.get("num_ctx", service.context) < service.context:
        call.warnings.append(f"num_ctx has no effect: the model keeps its context of {service.context}")
    for name, load_name in LOAD_OPTIONS.items():
        check_loaded(name, own.get(name), getattr(load, load_name))
    most = own.get("num_predict", -1)
    if most == 0:
        raise ApiError(400, "num_predict is 0, expected at least 1, or -1 for no bound", param="num_predict")
    if "num_predict" in own:
        options["max_tokens"] = most if most > 0 else None
    return options


def check_loaded(name: str, value: int | None, loaded: int | None) -> None:
    """Raises ApiError 400 for an option of loading that differs from the loaded model's; 0 is any."""
    if value and value != loaded:
        known = "the server's own choice" if loaded is None else str(loaded)
        raise ApiError(
            400, f"{name} is {value}, but the model is loaded with {known}; leave {name} out", param=name
        )  # fmt: skip
