"""Vision towers against transformers: rows and logits of tiny random models."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import constants
from tests.golden.mutation import Mutation
from tests.golden.vision_cases import WRONG
from tests.support.exhaustive import exhaustive
from tests.support.hf_models import nmse, weights_of, write_hf, write_safetensors
from tests.support.parity.adapters import need_driver
from tests.support.vision_models import VisionCase, load_vision, load_visions, write_vision

from camelid.engine.media import Media
from camelid.engine.request import Request
from camelid.errors import CamelidError, ModelFormatError, TensorShapeError
from camelid.formats.gguf import open_gguf
from camelid.images.decode import ImageFile, PillowPixels
from camelid.images.patches import patch_rows, patches_of, windows_of
from camelid.loading.convert import convert
from camelid.loading.convert_tower import convert_tower
from camelid.loading.model_file import open_model
from camelid.loading.options import LoadOptions
from camelid.loading.start import RunningModel, start
from camelid.model.vision.grid import grid_of
from camelid.model.vision.spec import TowerSpec
from camelid.requests.images import image_positions
from camelid.sampling.params import SamplingParams

Image: Any = pytest.importorskip("PIL.Image", reason="the extra vision is not installed")
CASES = load_visions()
MAX_NMSE = 1e-10
LEAST = 1e-7
ON_WEBGPU = "gemma3"
LOGITS = ("all_logits", "injected_logits")


def media_of(case: VisionCase, rows: Sequence[memoryview], tower: TowerSpec) -> tuple[Media, ...]:
    """The case's images at their placeholders, written anew: not by the code of requests."""
    media: list[Media] = []
    at, shift = 0, 0
    for i, own in enumerate(rows):
        start = case.token_ids.index(case.placeholder, at)
        grid = grid_of(tower, case.images[i][1], case.images[i][0])
        at = start + grid.n_rows
        positions = image_positions(grid, start + shift) if tower.axes else ()
        shift += max(grid.height, grid.width) // grid.merge - grid.n_rows if tower.axes else 0
        digest = f"{case}/{i}".encode()
        media.append(Media(start=start, end=at, rows=own, digest=digest, positions=positions, shift=shift))
    return tuple(media)


async def logits_of(running: RunningModel, case: VisionCase, *, salt: str = "") -> np.ndarray[Any, Any]:
    """All logits of the case's tokens [T, V]; placeholders have an id that means nothing."""
    assert running.tower is not None
    rows = [await running.tower.encode(ImageFile(case.png(i))) for i in range(len(case.images))]
    for program in LOGITS:
        await running.compile(program)
    ids = [0 if i == case.placeholder else i for i in case.token_ids]
    request = Request(
        prompt_ids=tuple(ids), sampling=SamplingParams(temperature=0.0).seeded(), all_logits=True, salt=salt,
        media=media_of(case, rows, running.tower.tower.spec),
    )  # fmt: skip
    stream = running.engine.submit(request)
    async for _ in stream:
        pass
    return np.stack([np.frombuffer(bytes(row), np.float32) for row in stream.logits])


async def opened(folder: Path, backend: str = "reference", chunk: int = 64, **options: Any) -> RunningModel:
    parallel = options.pop("parallel", 2)
    loaded = LoadOptions(backend=backend, context=256, chunk=chunk, parallel=parallel, **options)
    return await start(folder, loaded)


async def results(folder: Path, case: VisionCase, **options: Any) -> tuple[list[Any], Any]:
    """Rows of each image, and logits."""
    running = await opened(folder, **options)
    try:
        assert running.tower is not None
        rows = [await running.tower.encode(ImageFile(case.png(i))) for i in range(len(case.images))]
        made = [np.frombuffer(r, np.float32).reshape(case.rows[i].shape) for i, r in enumerate(rows)]
        return made, await logits_of(running, case)
    finally:
        await running.close()


def cases() -> Iterator[object]:
    """Each case on each backend; in ordinary runs webgpu has one."""
    for case, backend in product(CASES, ("reference", "cpu", "webgpu")):
        is_ordinary = backend != "webgpu" or case.model.name == ON_WEBGPU
        yield (case, backend) if is_ordinary else exhaustive((case, backend))


@pytest.mark.parametrize(("case", "backend"), [*cases()], ids=str)
def test_rows_and_logits_equal_those_of_transformers(case: VisionCase, backend: str, tmp_path: Path) -> None:
    adapter = {"adapter": need_driver("llvmpipe")} if backend == "webgpu" else {}
    rows, logits = asyncio.run(results(write_vision(tmp_path / "m", case), case, backend=backend, **adapter))
    errors = nmse(rows, case.rows), nmse([logits], [case.logits])
    print(f"{case} on {backend}: NMSE of rows {errors[0]:.1e}, of logits {errors[1]:.1e}")
    assert max(errors) <= MAX_NMSE


def test_published_stacks_of_experts_are_turned(tmp_path: Path) -> None:
    """Published stacks are [experts, in, out], those that transformers saves [experts, out, in]."""
    case = load_vision("qwen3_vl_moe")
    folder, weights = write_vision(tmp_path / "m", case), weights_of(case.model)
    stacks = {name: value.swapaxes(1, 2).copy() for name, value in weights.items() if ".experts." in name}
    assert len(stacks) == 6
    write_safetensors(folder / "model.safetensors", weights | stacks)
    _, logits = asyncio.run(results(folder, case))
    assert nmse([logits], [case.logits]) <= MAX_NMSE


@pytest.mark.parametrize("case", CASES, ids=str)
def test_files_of_both_parts_give_the_same_logits(case: VisionCase, tmp_path: Path) -> None:
    """The text model and its mmproj file, whose keys and tensors have the names of the package gguf."""
    folder = write_vision(tmp_path / "m", case)
    convert(folder, tmp_path / "text.gguf")
    convert_tower(folder, tmp_path / "mmproj.gguf")
    keys = {value for value in vars_of(constants.Keys) if value.startswith("clip.")}
    names = {constants.TENSOR_NAMES[t] for t in constants.MODEL_TENSORS[constants.MODEL_ARCH.MMPROJ]}
    written = open_gguf(tmp_path / "mmproj.gguf")
    assert {key for key in written.metadata if key.startswith("clip.")} <= keys
    assert {stem(name) for name in written.tensors} <= names
    rows, logits = asyncio.run(results(tmp_path / "text.gguf", case, mmproj=tmp_path / "mmproj.gguf"))
    assert max(nmse(rows, case.rows), nmse([logits], [case.logits])) <= MAX_NMSE


def stem(name: str) -> str:
    """The name without its ending, its numbers as a placeholder."""
    return re.sub(r"\.\d+(?=\.|$)", ".{bid}", re.sub(r"\.(weight|bias)(\.\d+)?$", "", name))


def vars_of(kind: type) -> Iterator[str]:
    """The texts of a class of constants and of the classes in it."""
    for value in vars(kind).values():
        if isinstance(value, type):
            yield from vars_of(value)
        elif isinstance(value, str):
            yield value


@pytest.mark.parametrize("case", CASES, ids=str)
def test_chunks_of_text_change_no_bit(case: VisionCase, tmp_path: Path) -> None:
    folder = write_vision(tmp_path / "m", case)
    whole, cut = (asyncio.run(results(folder, case, chunk=n))[1] for n in (128, 7))
    assert np.array_equal(whole, cut)


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_wrong_fact_changes_the_logits(wrong: Mutation, tmp_path: Path) -> None:
    case = load_vision(wrong.case)
    folder = write_vision(tmp_path / "m", case, wrong)
    try:
        _, logits = asyncio.run(results(folder, case))
    except CamelidError:
        return  # refused by name
    assert nmse([logits], [case.logits]) > LEAST


def test_rows_of_an_image_see_each_other(tmp_path: Path) -> None:
    """The causal mask is a wrong fact for Gemma 3."""
    case = load_vision("gemma3")
    folder = write_vision(tmp_path / "m", case)

    async def blind() -> Any:
        running = await opened(folder)
        spec = replace(running.deployment.model.spec, sees_images=False)
        model = replace(running.deployment.model, spec=spec)
        deployment = replace(running.deployment, model=model)
        try:
            return await logits_of(replace(running, deployment=deployment), case)
        finally:
            await running.close()

    assert nmse([asyncio.run(blind())], [case.logits]) > LEAST


def test_a_tower_of_another_model_is_refused(tmp_path: Path) -> None:
    case = load_vision("gemma3")
    shapes = {**case.model.tensors, "multi_modal_projector.mm_input_projection_weight": [48, 60]}
    with pytest.raises((ModelFormatError, TensorShapeError)):
        asyncio.run(open_model(write_hf(tmp_path / "m", replace(case.model, tensors=shapes))))


def test_a_tensor_without_a_rule_is_refused(tmp_path: Path) -> None:
    case = load_vision("gemma3")
    shapes = {**case.model.tensors, "vision_tower.encoder.layers.0.self_attn.q_norm.weight": [12]}
    with pytest.raises(TensorShapeError, match="no rule"):
        asyncio.run(open_model(write_hf(tmp_path / "m", replace(case.model, tensors=shapes))))


def test_patches_are_the_processors_pixels() -> None:
    """At the tower's size nothing is resized: each patch has its own pixels, channel by channel."""
    image, places = load_vision("gemma3").pixels(0), patches_of(windows_of(4, 4, 0)[0], 2)
    pixels = PillowPixels(Image.fromarray(image))
    rows = np.frombuffer(patch_rows(pixels, places, 4, (0.5,) * 3, (0.5,) * 3), "f4")
    values = (image.astype("f8") / 255 - 0.5) / 0.5
    want = [values[4 * y : 4 * y + 4, 4 * x : 4 * x + 4].transpose(2, 0, 1).ravel() for y, x in places]
    assert np.allclose(rows.reshape(64, 48), want, atol=1e-7)
