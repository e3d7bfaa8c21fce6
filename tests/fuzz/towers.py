"""Vision towers: mmproj files with damaged headers or implausible values, and settings of directories."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.fuzz.llama import Llama, changed_values, parts_of
from tests.fuzz.mutate import GGUF_WORDS, JSON_WORDS, damaged
from tests.fuzz.published import FILE, no_bytes, tensors_of
from tests.support.vision_models import VisionCase, load_visions, write_vision

from camelid.errors import RequestError
from camelid.formats.gguf import read_gguf
from camelid.formats.hf_config import HfDirectory
from camelid.formats.json_text import parse_object
from camelid.formats.source import drive
from camelid.loading.convert_tower import convert_tower
from camelid.loading.hf_directory import checkpoint_of_directory
from camelid.model.checkpoint import Checkpoint, checkpoint_of_gguf
from camelid.model.read import read_model
from camelid.model.vision.grid import grid_of
from camelid.model.vision.hf import has_tower, text_part, tower_of_hf
from camelid.model.vision.lower import lower_tower, runs_of
from camelid.model.vision.read import read_tower

SIZES = ((1, 1), (64, 48), (3, 700), (4000, 3000))
VALUES = (None, 0, -1, 1, 3, 2**31, 1e300, 1e-300, [], [0], [-1], {}, "", True)


@cache
def cases() -> tuple[VisionCase, ...]:
    return tuple(load_visions())


@cache
def files() -> tuple[Llama, ...]:
    made: list[Llama] = []
    with TemporaryDirectory() as folder:
        for case in cases():
            place = Path(folder) / str(case)
            convert_tower(write_vision(place, case), place / "mmproj.gguf")
            made.append(parts_of(place / "mmproj.gguf"))
    return tuple(made)


def tower_bytes(rng: Random) -> bytes:
    """A damaged header before intact weights."""
    made = rng.choice(files())
    data, head = made.data, made.head
    return damaged([data[:head]], words=GGUF_WORDS, frame=lambda text: text + data[head:])(rng)


def tower_values(rng: Random) -> bytes:
    """A well-formed mmproj file of an impossible tower."""
    return changed_values(rng, rng.choice(files()))


def parse_mmproj(data: bytes) -> None:
    """Every accepted tower lowers to plans, and takes or refuses images of every size."""

    def answer(offset: int, length: int) -> bytes:
        assert 0 <= offset <= offset + length <= len(data), "a read beyond the file"
        return data[offset : offset + length]

    steps = read_gguf(len(data))
    asked = next(steps)
    while True:
        try:
            asked = steps.send(answer(*asked))
        except StopIteration as end:
            parse_tower(checkpoint_of_gguf(end.value))
            return


def parse_tower(checkpoint: Checkpoint) -> None:
    tower = read_tower(checkpoint)
    for width, height in SIZES:
        try:
            grid = grid_of(tower.spec, width, height)
        except RequestError:
            continue
        assert grid.n_rows * grid.merge**2 == grid.n_patches > 0
    for run in runs_of(tower)[:8]:
        lower_tower(tower, run, 4 * tower.spec.merge**2)


def tower_config(rng: Random) -> bytes:
    """A case's number, and its config.json, damaged or with other values."""
    number = rng.randrange(len(cases()))
    config = json.loads(json.dumps(cases()[number].model.config))
    for _ in range(rng.choice((0, 1, 1, 2))):
        part = rng.choice((config, config["vision_config"], config["text_config"]))
        key = rng.choice(sorted(part))
        if part is not config or not isinstance(part[key], dict):
            part[key] = rng.choice(VALUES)
    text = json.dumps(config).encode()
    return bytes([number]) + (damaged([text], words=JSON_WORDS, text=True)(rng) if number % 2 else text)


def parse_tower_config(data: bytes) -> None:
    """Both parts of every accepted directory are read."""
    case = cases()[data[0]]
    config = parse_object(data[1:], path="config.json", what="settings", allow_infinity=True)
    directory = HfDirectory(
        path=Path(str(case)),
        config=config,
        generation={},
        tokenizer={},
        tokenizer_config={},
        special_tokens={},
        preprocessor=case.processor,
        chat_templates={},
        files={FILE: Path("/dev/zero")},
        tensors=dict(tensors_of(case.model)),
    )
    if has_tower(directory):
        parse_tower(tower_of_hf(directory))
        drive(read_model(checkpoint_of_directory(text_part(directory))), no_bytes)
