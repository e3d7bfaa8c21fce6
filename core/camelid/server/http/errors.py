"""Errors as replies: status and facts once, bodies in the shape of each dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from camelid.errors import (
    CamelidError,
    ContextOverflowError,
    DeviceLostError,
    OutOfMemoryError,
    RequestError,
    TemplateError,
    UnsupportedModelError,
)

# Status -> type of the error object, as llama.cpp's server and OpenAI's API name it.
TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    500: "server_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
# Status -> type of the error object in Anthropic's API.
ANTHROPIC_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
# Codes of requests that a less busy machine serves.
BUSY_CODES = frozenset({"grammar_workers_busy", "tokenizer_busy", "worker_not_started"})
# Field of chat completions -> the same field of responses.
RESPONSES_FIELDS: Mapping[str, str] = {
    "response_format": "text.format", "messages": "input", "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
}  # fmt: skip
Body = dict[str, Any]


class ApiError(CamelidError):
    """An error with an HTTP status. `kind` replaces the `type` that belongs to the status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: object,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code, self.param, self.type = code, param, kind or TYPES.get(status, "invalid_request_error")
        self.headers = dict(headers or {})
        if status == 501:  # OpenAI's client repeats every error of the server
            self.headers.setdefault("x-should-retry", "false")
        self.more = more


def retry_later(status: int, message: str, seconds: float, code: str) -> ApiError:
    """A refusal that the client may repeat after some seconds (1 to 60)."""
    wait = str(min(max(round(seconds), 1), 60))
    return ApiError(status, message, code=code, headers={"retry-after": wait, "x-should-retry": "true"})


def api_error(error: BaseException) -> ApiError:
    """The reply for an exception. An exception outside `CamelidError` is a bug: 500 without its text."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ContextOverflowError):
        return _overflow(error)
    if isinstance(error, RequestError | TemplateError):
        param = error.facts.get("field")
        code = error.facts.get("code")
        if code in BUSY_CODES:
            return retry_later(503, error.message, 5, str(code))
        return ApiError(
            400, error.message, param=str(param) if param else None, code=str(code) if code else None
        )
    if isinstance(error, UnsupportedModelError):
        return ApiError(501, without_folders(error), code="not_supported")
    if isinstance(error, DeviceLostError):  # the model is loaded again at once
        return retry_later(503, error.message, 2, "device_lost")
    if isinstance(error, OutOfMemoryError):
        return retry_later(503, error.message, 5, "out_of_memory")
    if isinstance(error, CamelidError):
        return ApiError(500, without_folders(error), code=type(error).__name__)
    return ApiError(500, f"{type(error).__name__} in the server; its log has the traceback", code="bug")


def without_folders(error: CamelidError) -> str:
    """The message of an error; of the path of a file in it, the name alone."""
    path = str(error.facts.get("path") or "")
    return error.message.replace(path, PurePath(path).name) if path else error.message


def _overflow(error: ContextOverflowError) -> ApiError:
    facts = error.facts
    return ApiError(
        400,
        f"the request exceeds the available context size: {error.message}",
        code="context_length_exceeded",
        kind="exceed_context_size_error",
        param=str(facts.get("field", "prompt")),
        n_prompt_tokens=facts.get("n_prompt"),
        n_ctx=facts.get("context_length"),
    )


def openai_body(error: ApiError, request_id: str) -> Body:  # noqa: ARG001 - the dialects' common signature
    """OpenAI's error object, with llama.cpp's additional facts."""
    return {
        "error": {
            "message": error.message,
            "type": error.type,
            "param": error.param,
            "code": error.code,
            **error.more,
        }
    }


def responses_body(error: ApiError, request_id: str) -> Body:
    """OpenAI's error object; fields of chat completions, which the engine has, by their names here."""
    body = openai_body(error, request_id)
    body["error"]["param"] = RESPONSES_FIELDS.get(error.param or "", error.param)
    return body


def native_body(error: ApiError, request_id: str) -> Body:  # noqa: ARG001
    """The error object of llama.cpp's server: the code is the status."""
    return {"error": {"code": error.status, "message": error.message, "type": error.type, **error.more}}


def anthropic_body(error: ApiError, request_id: str) -> Body:
    """Anthropic's error object."""
    kind = ANTHROPIC_TYPES.get(error.status, "api_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": error.message},
        "request_id": request_id,
    }


def ollama_body(error: ApiError, request_id: str) -> Body:  # noqa: ARG001
    """Ollama's error object."""
    return {"error": error.message}


Dialect = Callable[[ApiError, str], Body]
# Prefix of a path -> dialect of its errors; the first match counts.
DIALECTS: tuple[tuple[str, Dialect], ...] = (
    ("/v1/messages", anthropic_body),
    ("/v1/responses", responses_body),
    ("/v1/", openai_body),
    ("/api/", ollama_body),
    ("/", native_body),
)


def dialect_of(path: str) -> Dialect:
    """The dialect of a path's errors."""
    return next((body for prefix, body in DIALECTS if path.startswith(prefix)), native_body)
