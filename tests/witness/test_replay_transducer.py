"""Replay of a model with an encoder and a decoder: the log holds the encoder's tokens."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.api.test_transducers import ANSWERS
from tests.support.tiny_transducers import write_transducer
from tests.support.witness import facts_of

import camelid
from camelid.witness.log import WitnessLog
from camelid.witness.prompts import GivenPrompt
from camelid.witness.record import WitnessRecord
from camelid.witness.replay import Verdict, replay

ROW = ANSWERS["umt5"][1]


async def verdicts(folder: Path) -> list[Verdict]:
    """Verdicts on an answer: by the prompt of its log, and by another prompt."""
    path = folder / "log"
    async with await camelid.aload(str(write_transducer(folder / "m", "umt5")), backend="cpu") as llm:
        request = llm.request(ROW["prompt"], temperature=0.9, seed=3, max_tokens=20)
        stream = await llm.asubmit(request)
        async for _ in stream:
            pass
        with WitnessLog.open(path, {"m": await llm.aidentity()}, with_content=True) as log:
            log.append(
                WitnessRecord.of(
                    request, stream.completion, id="a", key=None, endpoint="/", model="m", stop=(),
                    is_chat=False, prompt=ROW["prompt"],
                )
            )  # fmt: skip
        (facts,) = [each for each in facts_of(path) if each["kind"] == "request"]
        assert facts["content"]["prompt_ids"] == ROW["ids"]
        bare = {name: value for name, value in facts.items() if name != "content"}
        other = {facts["prompt_sha256"]: GivenPrompt((40, 1), {})}
        return [await replay(llm, facts, {}), await replay(llm, bare, other)]


def test_an_answer_comes_out_again(tmp_path: Path) -> None:
    same, other = asyncio.run(verdicts(tmp_path))
    assert same.is_equal, same.detail
    assert not other.is_equal
