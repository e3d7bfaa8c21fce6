"""Published models with a damaged config.json: the golden models; weights are not read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

from tests.fuzz.mutate import JSON_WORDS, damaged
from tests.support.hf_models import HfCase, load_cases

from camelid.formats.hf_config import HfDirectory, HfTensor
from camelid.formats.json_text import parse_object
from camelid.formats.source import drive
from camelid.loading.hf_directory import checkpoint_of_directory
from camelid.model.arch import Model
from camelid.model.decoder import entries_of, lower
from camelid.model.read import read_model
from camelid.model.spec_reader import at_context
from camelid.plan.step import Capacity, ProgramKey

FILE = "model.safetensors"
KEY = ProgramKey(entry="mixed", capacity=Capacity(rows=1, sequences=1, outputs=1, updates=1))
CONTEXT = 8  # rows of rope tables


@cache
def cases() -> tuple[HfCase, ...]:
    return tuple(load_cases())


def config_bytes(random: Random) -> bytes:
    """A case's number, and its config.json, damaged or with values of other cases."""
    number = random.randrange(len(cases()))
    config = dict(cases()[number].config)
    for key in random.sample(sorted(config), random.randrange(3)):
        other = cases()[random.randrange(len(cases()))].config
        config[key] = random.choice([other.get(key), 0, -1, 1, 3, 2**31, 1e300, 1e-300, [], {}, "", True])
    text = json.dumps(config).encode()
    return bytes([number]) + (damaged([text], words=JSON_WORDS, text=True)(random) if number % 2 else text)


def parse_published(data: bytes) -> None:
    """Every accepted config lowers to plans."""
    case = cases()[data[0]]
    config = parse_object(data[1:], path="config.json", what="settings", allow_infinity=True)
    directory = HfDirectory(
        path=Path(case.name),
        config=config,
        generation={},
        tokenizer={},
        tokenizer_config={},
        special_tokens={},
        preprocessor={},
        chat_templates={},
        files={FILE: Path("/dev/zero")},  # numbers of layers are read
        tensors=dict(tensors_of(case)),
    )
    model: Model = drive(read_model(checkpoint_of_directory(directory)), no_bytes)
    short = at_context(model, min(CONTEXT, model.spec.context_length))
    for entry in entries_of(model.spec):
        lower(short, replace(KEY, entry=entry))


def tensors_of(case: HfCase) -> Iterator[tuple[str, HfTensor]]:
    """The tensors of a case, as if all were in one file of float32."""
    at = 0
    for name, shape in case.tensors.items():
        n_bytes = 4
        for size in shape:
            n_bytes *= size
        yield name, HfTensor(name, "f32", tuple(shape), FILE, at, n_bytes)
        at += n_bytes


def no_bytes(offset: int, n: int) -> bytes:
    """A source of weights that must not be read."""
    raise AssertionError(f"{n} bytes at {offset} were requested")
