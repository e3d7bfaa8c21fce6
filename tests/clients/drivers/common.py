"""The requests that every driver makes, and its report: one JSON object on standard output."""

from __future__ import annotations

import json
import os
from typing import Any, Literal

from pydantic import BaseModel

URL = os.environ["CAMELID_URL"]
OPENAI_URL = f"{URL}/v1"
KEY = "a key that this server does not need"
MODEL, UNKNOWN = "cria", "nope"
QUESTION = "What is 12 plus 30?"
WEATHER_QUESTION = "What is the weather in Oslo?"  # cria calls a tool on it unasked
MAX_TOKENS = 80
CITIES = ("Oslo", "Rome")
WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": list(CITIES)}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
WEATHER_RESULT = '{"weather": 12}'
TOOL: dict[str, Any] = {"type": "function", "function": WEATHER}
CHOICE: dict[str, Any] = {"type": "function", "function": {"name": "weather"}}


class Answer(BaseModel):
    """An answer with a color and a city."""

    color: Literal["red", "green"]
    city: Literal["Oslo", "Rome"]


SCHEMA: dict[str, Any] = Answer.model_json_schema()


def error_of(call: Any) -> str:
    """The class of the exception that a call raises."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "none"


def report(**found: Any) -> None:
    """Prints the results."""
    print(json.dumps(found))
