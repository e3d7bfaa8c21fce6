"""Client libraries against a server that refuses every field it does not know.

A driver is a program in the client's own environment, which prints what it saw as JSON: a plain answer and a
streamed one, their token counts, a forced tool call, an answer under a schema, and the class of an error.
`called` is an answer under a schema by way of a tool call.
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
from tests.support.served import ROOT, Served, served

import camelid

QUESTION = "What is 12 plus 30?"
CITIES, COLORS = {"Oslo", "Rome"}, {"red", "green"}
HERE, CLIENTS = Path(__file__).parent, ROOT / "build" / "clients"
PYTHON, OPENAI2 = CLIENTS / "clients", CLIENTS / "clients-openai2"
TEXT = {"plain", "streamed", "n_parts", "usage"}
CALLS = {"call", "streamed_call"}
BY_TOOL = {"called", "streamed_called"}
COUNTED = {"streamed_usage"}
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
    "langchain-openai": Driver(
        python(PYTHON, "langchain_openai_chat.py"), TEXT | CALLS | COUNTED | {"schema"},
        "OpenAIModelNotFoundError",
    ),
    "langchain-anthropic": Driver(
        python(PYTHON, "langchain_anthropic_chat.py"), TEXT | CALLS | COUNTED | {"schema"},
        "AnthropicModelNotFoundError",
    ),
    # Ollama's API cannot force a tool call.
    "langchain-ollama": Driver(
        python(PYTHON, "langchain_ollama_chat.py"), TEXT | COUNTED | {"schema"}, "ResponseError"
    ),
    "llm": Driver(python(PYTHON, "llm_chat.py"), TEXT | {"schema"}, "NotFoundError"),
    "pydantic-ai-openai": Driver(
        python(PYTHON, "pydantic_ai_agent.py", "openai"), TEXT | BY_TOOL | {"schema"}, "ModelNotFoundError"
    ),
    # Its profile of an unknown Anthropic model has no native schemas.
    "pydantic-ai-anthropic": Driver(
        python(PYTHON, "pydantic_ai_agent.py", "anthropic"), TEXT | BY_TOOL, "ModelNotFoundError"
    ),
    "llama-index": Driver(
        python(OPENAI2, "llama_index_chat.py"), TEXT | CALLS | {"schema"}, "NotFoundError"
    ),
    "litellm-openai": Driver(
        python(OPENAI2, "litellm_chat.py", "openai"), TEXT | CALLS | COUNTED | {"schema"}, "NotFoundError"
    ),
    "litellm-anthropic": Driver(
        python(OPENAI2, "litellm_chat.py", "anthropic"), TEXT | CALLS | COUNTED | {"schema"}, "NotFoundError"
    ),
    "litellm-ollama": Driver(
        python(OPENAI2, "litellm_chat.py", "ollama_chat"), TEXT | COUNTED | {"schema"}, "NotFoundError"
    ),
    "instructor": Driver(
        python(OPENAI2, "instructor_chat.py"), BY_TOOL | {"schema"}, "InstructorRetryException"
    ),
    "js-openai": Driver(
        node("openai.js"), TEXT | CALLS | COUNTED | {"schema", "response"}, "NotFoundError"
    ),
    "js-anthropic": Driver(node("anthropic.js"), TEXT | CALLS | COUNTED, "NotFoundError"),
    "js-ollama": Driver(node("ollama.js"), TEXT | COUNTED | {"schema"}, "ResponseError"),
    "js-ai-sdk": Driver(node("ai_sdk.js"), TEXT | CALLS | COUNTED | {"schema"}, "APICallError"),
}  # fmt: skip


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


@pytest.mark.parametrize("name", DRIVERS)
def test_a_client_works_unchanged(name: str, server: Served, wanted: tuple[str, list[int]]) -> None:
    driver = DRIVERS[name]
    found = results_of(driver, server.url)
    assert found.keys() == driver.values | {"error"}
    assert found["error"] == driver.error
    text, counts = wanted
    for value in {"plain", "streamed", "response"} & found.keys():
        assert found[value] == text
    for value in {"usage", "streamed_usage"} & found.keys():
        assert found[value] == counts
    assert found.get("n_parts", 99) > 5, "the answer came in one piece"
    for value in CALLS & found.keys():
        tool, arguments = found[value]
        assert (tool, arguments.keys()) == ("weather", {"city"})
        assert arguments["city"] in CITIES
    for value in {"schema", *BY_TOOL} & found.keys():
        assert found[value].keys() == {"color", "city"}
        assert (found[value]["color"] in COLORS, found[value]["city"] in CITIES) == (True, True)
