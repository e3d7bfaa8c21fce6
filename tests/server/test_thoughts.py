"""Thoughts on and off by the server's flags, and prompts of a model whose texts begin with a token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.rivals.llama_server_models import write_spm_llama
from tests.support.served import Served, served

ASK = [{"role": "user", "content": "Hi"}]
TEMPLATE = (
    "{{ bos_token }}{{ messages[0].content }}|"
    "{% if not enable_thinking %}closed{% endif %}{% if reasoning_effort %}{{ reasoning_effort }}{% endif %}"
)


def prompt(server: Served, **fields: Any) -> str:
    reply = server.post("/apply-template", {"messages": ASK, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()["prompt"]


@pytest.mark.parametrize(("flags", "end"), [
    ((), ""), (("--reasoning", "on"), ""), (("-rea", "off"), "closed"),
    (("--reasoning-budget", "0"), "closed"),
])  # fmt: skip
def test_thoughts_are_on_unless_a_flag_turns_them_off(
    tmp_path: Path, flags: tuple[str, ...], end: str
) -> None:
    template = tmp_path / "template.jinja"
    template.write_text(TEMPLATE)
    with served("--backend", "cpu", "--chat-template-file", str(template), *flags) as server:
        assert prompt(server) == f"Hi|{end}"
        assert prompt(server, chat_template_kwargs={"enable_thinking": False}) == "Hi|closed"
        assert prompt(server, chat_template_kwargs={"enable_thinking": True}) == "Hi|"
        assert prompt(server, reasoning_effort="high") == f"Hi|{end}high"


def test_a_template_without_a_switch_is_left_alone(tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0].content }}{{ now is defined }}")
    with served("--backend", "cpu", "--chat-template-file", str(template), "-rea", "off") as server:
        assert prompt(server) == "HiFalse"
        reply = server.post("/v1/chat/completions", {"messages": ASK, "max_tokens": 1})
        assert (reply.status_code, "warning" in reply.headers) == (200, False)


def test_a_rendered_prompt_leaves_out_the_token_that_the_completion_adds(
    tmp_path: Path, shared: Path
) -> None:
    model, template = tmp_path / "spm.gguf", tmp_path / "template.jinja"
    write_spm_llama(model, shared / "data" / "vocab" / "llama-spm.gguf")
    template.write_text(TEMPLATE)
    with served(str(model), "--backend", "cpu", "-c", "256", "--chat-template-file", str(template)) as server:
        text = prompt(server)
        assert text == "Hi|"
        done = server.post("/completion", {"prompt": text, "n_predict": 1}).json()
        chat = server.post("/v1/chat/completions", {"messages": ASK, "max_tokens": 1}).json()
        assert done["tokens_evaluated"] == chat["usage"]["prompt_tokens"]
        assert done["prompt"] == "<s> Hi|"


PATHS: dict[str, dict[str, object]] = {
    "/v1/chat/completions": {"messages": ASK, "max_tokens": 1},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 1},
    "/v1/messages": {"messages": ASK, "max_tokens": 1, "model": "m"},
    "/api/chat": {"messages": ASK, "stream": False, "options": {"num_predict": 1}},
    "/api/generate": {"prompt": "Hi", "stream": False, "options": {"num_predict": 1}},
}


def prompt_tokens(body: dict[str, Any]) -> int:
    """The tokens of the prompt, by each dialect's count."""
    counts: dict[str, Any] = body.get("usage") or {"input_tokens": body.get("prompt_eval_count")}
    found = counts.get("prompt_tokens", counts.get("input_tokens"))
    return found + counts.get("cache_read_input_tokens", 0)


def test_variables_of_the_server_reach_every_dialect(tmp_path: Path) -> None:
    """The template writes a variable; one that it does not read disturbs none."""
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[-1].content }}|{% if not enable_thinking %}closed closed{% endif %}")
    flags = ("--chat-template-file", str(template), "--chat-template-kwargs", '{"other": 1}')
    with served("--backend", "cpu", *flags) as server:
        plain = {path: prompt_tokens(server.post(path, body).json()) for path, body in PATHS.items()}
    with served("--backend", "cpu", *flags, "--reasoning", "off") as server:
        closed = {path: prompt_tokens(server.post(path, body).json()) for path, body in PATHS.items()}
    assert len({closed[path] - plain[path] for path in PATHS}) == 1
    assert closed["/v1/messages"] > plain["/v1/messages"]
