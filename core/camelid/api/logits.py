"""Logits after each token of a prompt, in the process's memory or on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from camelid.api.streams import read
from camelid.backends.base import DeviceArray
from camelid.engine.request import Request
from camelid.errors import BackendError, DeviceLostError
from camelid.loading.start import RunningModel
from camelid.model.adapter import Selection
from camelid.requests.build import check_generates
from camelid.sampling.params import SamplingParams


async def read_logits(
    running: RunningModel,
    token_ids: Sequence[int],
    into: DeviceArray | None = None,
    *,
    source_ids: Sequence[int] = (),
    adapter: Selection | None = None,
) -> list[Any]:
    """A row of logits per token; with `into`, the rows are in the device's array instead. `source_ids` are
    the tokens of an encoder in front of the decoder.
    """
    check_generates(running.file.model.spec)
    greedy = SamplingParams(temperature=0.0).seeded()
    ids, source = tuple(token_ids), tuple(source_ids)
    request = Request(
        prompt_ids=ids, source_ids=source, sampling=greedy, all_logits=True, into=into,
        adapter=running.adapters.select(adapter, ids),
    )  # fmt: skip
    for program in request.programs:
        await running.compile(program)
    stream = running.engine.submit(request)
    await read(stream)
    return stream.logits


async def logits_on_device(running: RunningModel, token_ids: Sequence[int]) -> DeviceArray:
    """As `LLM.alogits_on_device`; an array that its lost device took along is made and filled again."""
    while True:
        array = running.backend.array(len(token_ids), running.file.model.spec.vocab_size)
        try:
            await read_logits(running, token_ids, array)
        except BackendError as error:
            if isinstance(error, DeviceLostError) or not array.is_lost:
                raise
        else:
            return array
