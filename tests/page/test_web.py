"""The functions that the page's worker calls, on a native backend: ask, stop, save, open."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.api.sessions.session import Session, Turn
from camelid.loading.model_file import find_source
from camelid.page.session import PageSession

DEFAULTS, SHORT = json.dumps({"temperature": 0.0}), json.dumps({"max_tokens": 5})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=3, hidden=64, head_dim=16, ffn=96, context=512)
    return place


def test_a_loaded_session_replaces_the_conversation(path: Path, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []

    async def talk() -> None:
        async with await camelid.aload(path, backend="reference", parallel=1) as llm:
            chat = PageSession(llm, lambda text: told.append(json.loads(text)), DEFAULTS)
            await chat.ask("the llama", SHORT, False)
            await chat.ask("beside it", SHORT, True)
            (tmp_path / "s").write_bytes(b"".join(await chat.save()))
            chat.reset()
            await chat.open(find_source(tmp_path / "s"))

    asyncio.run(talk())
    first, _ = (message for message in told if message["kind"] == "done")
    assert "".join(m["text"] for m in told[: told.index(first)]) == first["text"]
    opened = told[-1]
    assert [m["content"] for m in opened["messages"]] == ["the llama", first["text"]], "wrong session"
    assert (opened["kind"], opened["note"]) == ("opened", "")
    assert 0 < opened["cached_rows"] <= opened["tokens"] == first["prompt_tokens"] + 5


def test_an_answer_can_be_stopped_before_its_first_token(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []

    async def talk() -> None:
        async with await camelid.aload(path, backend="reference", parallel=1) as llm:
            chat, inner = (
                PageSession(llm, lambda text: told.append(json.loads(text)), DEFAULTS),
                Session.start,
            )

            async def start(*words: Any, **options: Any) -> Turn:
                chat.stop()
                return await inner(*words, **options)

            with monkeypatch.context() as patch:
                patch.setattr(Session, "start", start)
                await chat.ask("the llama", SHORT, False)
            await chat.ask("the llama", SHORT, False)

    asyncio.run(talk())
    stopped, whole = (message for message in told if message["kind"] == "done")
    assert (stopped["finish_reason"], stopped["token_ids"]) == ("cancelled", [])
    assert len(whole["token_ids"]) == 5
