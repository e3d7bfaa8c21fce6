"""Anthropic's own client: the list of models, and an answer that continues the assistant's last message."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import anthropic
import pytest
from tests.support.served import Served

ASK: list[Any] = [{"role": "user", "content": "What is 12 plus 30?"}]
ANSWER = "12 + 30 = 42."


@pytest.fixture
def client(server: Served) -> Any:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as opened:
        yield opened


def test_models(client: anthropic.Anthropic, server: Served) -> None:
    names = [each["id"] for each in server.get("/v1/models").json()["data"]]
    page = client.models.list()
    assert [each.id for each in page] == names
    assert (page.first_id, page.last_id, page.has_more) == (names[0], names[-1], False)
    one = client.models.retrieve(names[0])
    assert (one.type, one.display_name) == ("model", names[0])
    assert isinstance(one.created_at, datetime)


@pytest.mark.parametrize("begun", ["12", "12 + 30", "12 + 30 = 42"])
@pytest.mark.parametrize("streams", [True, False])
def test_an_answer_continues_the_last_message(client: anthropic.Anthropic, begun: str, streams: bool) -> None:
    messages = [*ASK, {"role": "assistant", "content": begun}]
    body: Any = {"model": "cria", "max_tokens": 30, "messages": messages, "extra_body": {"temperature": 0}}
    if streams:
        with client.messages.stream(**body) as stream:
            done = stream.get_final_message()
    else:
        done = client.messages.create(**body)
    assert begun + "".join(block.text for block in done.content if block.type == "text") == ANSWER
    assert done.stop_reason == "end_turn"
