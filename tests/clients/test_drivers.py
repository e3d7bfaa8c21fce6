"""Client libraries against a server that refuses every field it does not know.

A driver is a program in the client's own environment, which prints what it saw as JSON: a plain answer, its
token counts, a tool call and an answer under a schema, each whole and streamed, and the class of an error.
The call is forced where the API has a choice of tools. `called` is an answer under a schema by way of a tool
call; `told` is an answer after the client ran the tool.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.exhaustive import exhaustive
from tests.support.served import ROOT, Served, served

import camelid

QUESTION = "What is 12 plus 30?"
RESULT = "12"  # the tool's, which the model tells
CITIES, COLORS = {"Oslo", "Rome"}, {"red", "green"}
HERE, CLIENTS = Path(__file__).parent, ROOT / "build" / "clients"
PYTHON, OPENAI2 = CLIENTS / "clients", CLIENTS / "clients-openai2"
TEXT = {"plain", "streamed", "n_parts", "usage"}
CALLS = {"call", "streamed_call"}
BY_TOOL = {"called", "streamed_called"}
COUNTED = {"streamed_usage"}
SCHEMA = {"schema", "streamed_schema", "n_schema_parts"}
TOLD = {"told", "streamed_told"}
RESPONSES = {
    "response", "streamed_response", "n_response_parts", "response_usage", "response_call",
    "streamed_response_call", "response_schema", "streamed_response_schema",
}  # fmt: skip
# How often a client reports a part at least: some report a growing object once a field.
LEAST_PARTS = {"n_parts": 6, "n_response_parts": 6, "n_schema_parts": 2}
pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@dataclass(frozen=True)
class Driver:
    """A driver's command, the values that it reports, and the class of its error for an unknown model."""

    command: tuple[str, ...]
    values: set[str]
    error: str


def python(environment: Path, *command: str) -> tuple[str, ...]:
    script, *arguments = command
    return (str(environment / "bin" / "python"), str(HERE / "drivers" / script), *arguments)


def node(script: str) -> tuple[str, ...]:
    return ("node", str(HERE / "js" / script))


DRIVERS = {
    "openai": Driver(
        python(PYTHON, "openai_client.py"), TEXT | CALLS | COUNTED | SCHEMA | RESPONSES, "NotFoundError"
    ),
    "openai-2": Driver(
        python(OPENAI2, "openai_client.py"), TEXT | CALLS | COUNTED | SCHEMA | RESPONSES, "NotFoundError"
    ),
    "anthropic": Driver(
        python(PYTHON, "anthropic_client.py"), TEXT | CALLS | COUNTED | SCHEMA, "NotFoundError"
    ),
    "ollama": Driver(
        python(PYTHON, "ollama_client.py"), TEXT | CALLS | COUNTED | SCHEMA, "ResponseError"
    ),
    "langchain-openai": Driver(
        python(PYTHON, "langchain_openai_chat.py"), TEXT | CALLS | COUNTED | SCHEMA,
        "OpenAIModelNotFoundError",
    ),
    "langchain-anthropic": Driver(
        python(PYTHON, "langchain_anthropic_chat.py"), TEXT | CALLS | COUNTED | SCHEMA | BY_TOOL,
        "AnthropicModelNotFoundError",
    ),
    "langchain-ollama": Driver(
        python(PYTHON, "langchain_ollama_chat.py"), TEXT | CALLS | COUNTED | SCHEMA, "ResponseError"
    ),
    "llm": Driver(python(PYTHON, "llm_chat.py"), TEXT | CALLS | SCHEMA | TOLD, "NotFoundError"),
    "pydantic-ai-openai": Driver(
        python(PYTHON, "pydantic_ai_agent.py", "openai"), TEXT | BY_TOOL | SCHEMA | TOLD,
        "ModelNotFoundError",
    ),
    "pydantic-ai-anthropic": Driver(
        python(PYTHON, "pydantic_ai_agent.py", "anthropic"), TEXT | BY_TOOL | SCHEMA | TOLD,
        "ModelNotFoundError",
    ),
    "llama-index": Driver(
        python(OPENAI2, "llama_index_chat.py"), TEXT | CALLS | SCHEMA | {"called"}, "NotFoundError"
    ),
    "litellm-openai": Driver(
        python(OPENAI2, "litellm_chat.py", "openai"), TEXT | CALLS | COUNTED | SCHEMA, "NotFoundError"
    ),
    "litellm-anthropic": Driver(
        python(OPENAI2, "litellm_chat.py", "anthropic"), TEXT | CALLS | COUNTED | SCHEMA, "NotFoundError"
    ),
    "litellm-ollama": Driver(
        python(OPENAI2, "litellm_chat.py", "ollama_chat"), TEXT | CALLS | COUNTED | SCHEMA, "NotFoundError"
    ),
    "instructor": Driver(
        python(OPENAI2, "instructor_chat.py"), BY_TOOL | SCHEMA, "InstructorRetryException"
    ),
    "js-openai": Driver(
        node("openai.js"), TEXT | CALLS | COUNTED | SCHEMA | RESPONSES, "NotFoundError"
    ),
    "js-anthropic": Driver(node("anthropic.js"), TEXT | CALLS | COUNTED | SCHEMA, "NotFoundError"),
    "js-ollama": Driver(node("ollama.js"), TEXT | CALLS | COUNTED | SCHEMA, "ResponseError"),
    "js-ai-sdk": Driver(node("ai_sdk.js"), TEXT | CALLS | COUNTED | SCHEMA, "APICallError"),
}  # fmt: skip


# Ordinary runs hold a client of each API in each language, and a program whose client calls tools by itself.
ORDINARY = {"openai", "anthropic", "ollama", "pydantic-ai-openai", "js-openai", "js-ai-sdk"}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    if not PYTHON.exists() or not OPENAI2.exists() or not (HERE / "js" / "node_modules").exists():
        pytest.skip("no client libraries: `make clients` installs them")
    with served("--backend", "cpu", "--strict") as made:
        yield made


@pytest.fixture(scope="module")
def wanted() -> tuple[str, list[int]]:
    """The library's own answer, and its token counts."""
    with camelid.load("cria", backend="cpu") as llm:
        done = llm.chat([{"role": "user", "content": QUESTION}], temperature=0)
        return done.text, [done.usage.prompt_tokens, done.usage.completion_tokens]


def results_of(driver: Driver, url: str) -> dict[str, Any]:
    """The last line of a driver's output."""
    program = shutil.which(driver.command[0], path=f"{os.environ['PATH']}:{ROOT / '.venv' / 'bin'}")
    assert program, f"{driver.command[0]} is missing"
    env = {**os.environ, "CAMELID_URL": url, "NO_PROXY": "127.0.0.1"}
    env.pop("PYTHONPATH", None)
    done = subprocess.run(
        [program, *driver.command[1:]], capture_output=True, text=True, env=env, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def is_right(name: str, value: Any, text: str, counts: list[int]) -> bool:
    """Checks a value that a client printed, by the last word of the value's name."""
    match name.rpartition("_")[2]:
        case "parts":
            return value >= LEAST_PARTS[name]
        case "usage":
            return value == counts
        case "call":
            tool, arguments = value
            return tool == "weather" and arguments.keys() == {"city"} and arguments["city"] in CITIES
        case "schema" | "called":
            return value.keys() == {"color", "city"} and value["color"] in COLORS and value["city"] in CITIES
        case "told":
            return RESULT in value
        case _:
            return value == text


@pytest.mark.parametrize("name", [name if name in ORDINARY else exhaustive(name) for name in DRIVERS])
def test_a_client_works_unchanged(name: str, server: Served, wanted: tuple[str, list[int]]) -> None:
    driver = DRIVERS[name]
    found = results_of(driver, server.url)
    assert found.keys() == driver.values | {"error"}
    assert found.pop("error") == driver.error
    assert {key: value for key, value in found.items() if not is_right(key, value, *wanted)} == {}
