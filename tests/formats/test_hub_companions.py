"""Files beside a model's weights in a repository: vision towers, and small files of directories."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.formats.hub_fetches import DATA, pull, refused
from tests.support.hf_models import load_case, write_hf
from tests.support.hub_server import Hub
from tests.support.tiny_encoders import write_encoder
from tests.support.tiny_rerankers import DOCUMENTS, QUERY, write_reranker
from tests.support.vision_chat import write_chat_ggufs, write_chat_model
from tests.support.vision_models import image_of, png_of

import camelid
from camelid.errors import ModelFormatError
from camelid.formats import hf_config, hf_weights, sentence_transformers
from camelid.formats.hub.ids import choose_files, choose_mmproj
from camelid.loading.identity import Identity

REPOSITORY = {"m-Q8_0.gguf": DATA, "mmproj-m-f16.gguf": DATA[1:], "mmproj-m-BF16.gguf": DATA[2:]}
MODULES = b'[{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]'
POOLED = {
    "config.json": b"{}", "model.safetensors": DATA, "modules.json": MODULES,
    "1_Pooling/config.json": b"{ }", "2_Dense/model.safetensors": DATA[3:],
}  # fmt: skip


def files_of(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("towers", "model", "want"),
    [
        (["mmproj-m-BF16.gguf", "mmproj-m-F16.gguf", "mmproj-m-F32.gguf"], "m.gguf", "mmproj-m-F16.gguf"),
        (["mmproj-F32.gguf", "mmproj-BF16.gguf"], "Q8_0/m-Q8_0.gguf", "mmproj-BF16.gguf"),
        (["mmproj-Q8_0.gguf", "mmproj-model-f32.gguf"], "m.gguf", "mmproj-model-f32.gguf"),
        (["mmproj-F16.gguf", "a/mmproj-Q8_0.gguf"], "a/m.gguf", "a/mmproj-Q8_0.gguf"),
        (["b/mmproj-F16.gguf"], "a/m.gguf", None),
        (["b/mmproj-F16.gguf"], "m.gguf", None),
        (["m.mmproj-Q8_0.gguf"], "m.gguf", "m.mmproj-Q8_0.gguf"),
        (["MMPROJ.GGUF"], "m.gguf", "MMPROJ.GGUF"),
        (["mmproj-F16.safetensors", "mmprojector.gguf", "m-imatrix.gguf"], "m.gguf", None),
        (["mmproj-F16.gguf"], "config.json", None),
    ],
)
def test_chosen_tower(towers: list[str], model: str, want: str | None) -> None:
    assert choose_mmproj([model, *towers], model, repository="o/r") == (want, "")


def test_a_choice_among_towers_of_one_type_is_told() -> None:
    towers = ["mmproj-b-F16.gguf", "mmproj-a-F16.gguf", "mmproj-F32.gguf"]
    note = "o/r has the mmproj files mmproj-a-F16.gguf, mmproj-b-F16.gguf; using mmproj-a-F16.gguf"
    assert choose_mmproj(towers, "m.gguf", repository="o/r") == ("mmproj-a-F16.gguf", note)


def test_every_file_that_a_reader_opens_is_chosen() -> None:
    settings = [row.name for row in vars(hf_config).values() if isinstance(row, hf_config.JsonFile)]
    more = [
        hf_config.TEMPLATE, f"{hf_config.MORE_TEMPLATES}/rag.jinja", hf_weights.INDEX,
        *sentence_transformers.LENGTHS, sentence_transformers.MODULES, sentence_transformers.PROMPTS,
        sentence_transformers.CARD,
    ]  # fmt: skip
    assert len(settings) == 8
    wanted = {*settings, *more, "model.safetensors"}
    chosen, _ = choose_files([*wanted, "a/modules.json", "x.bin", "LICENSE"], None, repository="o/r")
    assert set(chosen) == wanted


def test_tower_comes_with_its_model(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", REPOSITORY)
    heard: list[tuple[str, int, int]] = []
    fetched, said = pull("o/r", tmp_path, with_mmproj=True, progress=lambda *words: heard.append(words))
    assert fetched.mmproj and fetched.mmproj.read_bytes() == DATA[1:]
    assert (fetched.path.name, fetched.files, said) == ("m-Q8_0.gguf", (fetched.path, fetched.mmproj), [])
    assert heard[-1] == ("mmproj-m-f16.gguf", fetched.n_bytes, 2 * len(DATA) - 1)
    assert {of for _, _, of in heard} == {fetched.n_bytes}
    assert pull("o/r", tmp_path, with_mmproj=True, offline=True)[0] == fetched
    assert len(hub.downloads()) == 2


def test_tower_is_left_out_by_default_and_completed_later(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", REPOSITORY)
    fetched, _ = pull("o/r", tmp_path)
    assert (fetched.mmproj, len(hub.downloads())) == (None, 1)
    assert pull("o/r", tmp_path, with_mmproj=True, offline=True)[0] == fetched  # the cache has no tower
    tower = pull("o/r", tmp_path, with_mmproj=True)[0].mmproj
    assert tower and tower.read_bytes() == DATA[1:]
    assert len(hub.downloads()) == 2
    assert pull("o/r", tmp_path, offline=True)[0] == fetched


@pytest.mark.parametrize("gone", ["modules.json", "1_Pooling/config.json"])
def test_modules_name_further_files_and_a_partial_cache_is_completed(
    hub: Hub, tmp_path: Path, gone: str
) -> None:
    hub.add("o/r", POOLED)
    wanted = {name: data for name, data in POOLED.items() if not name.startswith("2_")}
    fetched, _ = pull("o/r", tmp_path)
    assert files_of(fetched.path) == wanted
    assert pull("o/r", tmp_path, offline=True)[0] == fetched
    (fetched.path / gone).unlink()
    if gone != "modules.json":  # without it, the cached part is a model of another kind
        assert "not complete" in refused("o/r", tmp_path, offline=True).message
    pull("o/r", tmp_path)
    assert files_of(fetched.path) == wanted


@pytest.mark.faults
def test_a_module_without_its_file_is_named_before_the_weights_are_fetched(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {name: data for name, data in POOLED.items() if not name.startswith("1_")})
    error = refused("o/r", tmp_path)
    assert error.reason == "missing"
    assert "the repository lacks 1_Pooling/config.json of the model's 4 files" in error.message
    assert not hub.downloads()


@pytest.mark.faults
def test_a_module_outside_the_directory_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/r", {**POOLED, "modules.json": MODULES.replace(b"1_Pooling", b"../../x")})
    error = refused("o/r", tmp_path)
    assert isinstance(error, ModelFormatError)
    assert "no plain folder name" in error.message
    assert not hub.downloads()


@pytest.mark.e2e
def test_hub_id_of_an_embedding_model_embeds_as_its_directory(
    hub: Hub, default_cache: Path, tmp_path: Path
) -> None:
    write_encoder(tmp_path / "bert", pooling="cls")
    write_hf(tmp_path / "gemma", load_case("gemma_embedding"))
    for name in ("bert", "gemma"):
        hub.add(f"o/{name}", files_of(tmp_path / name))
        assert embedded(f"o/{name}") == embedded(str(tmp_path / name))


def embedded(model: str) -> list[list[float]]:
    with camelid.load(model, backend="cpu") as llm:
        return llm.embed([[5, 7, 9, 11]])


@pytest.mark.e2e
@pytest.mark.parametrize("layout", ["card", "scores"])
def test_hub_id_of_a_reranker_ranks_as_its_directory(
    hub: Hub, default_cache: Path, tmp_path: Path, layout: str
) -> None:
    folder = write_reranker(tmp_path / "m", layout)
    hub.add("o/r", files_of(folder))
    assert scores("o/r") == scores(str(folder))


def scores(model: str) -> list[float]:
    with camelid.load(model, backend="cpu") as llm:
        return llm.rerank(QUERY, DOCUMENTS)


@pytest.mark.e2e
def test_hub_id_takes_images(hub: Hub, default_cache: Path, tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="the extra vision is not installed")
    text, mmproj = write_chat_ggufs(tmp_path)
    hub.add("o/gguf", {"m-F32.gguf": text.read_bytes(), "mmproj-m-F32.gguf": mmproj.read_bytes()})
    hub.add("o/directory", files_of(write_chat_model(tmp_path / "m")))
    want = seen(str(text), mmproj=str(mmproj))
    assert seen("o/gguf") == seen("o/gguf:F32", mmproj=str(mmproj)) == want
    assert seen("o/directory") == seen(str(tmp_path / "m"))
    with camelid.load("o/gguf", backend="reference", context=300, mmproj_auto=False) as llm:
        assert not llm.takes_images
    recorded = asyncio.run(identity("o/gguf", backend="reference", context=300))
    assert Path(str(recorded.options["mmproj"])).read_bytes() == mmproj.read_bytes()
    assert asyncio.run(identity(recorded.file, **recorded.options)) == recorded  # without the hub


async def identity(model: str, **options: Any) -> Identity:
    llm = await camelid.aload(model, **options)
    try:
        return await llm.aidentity()
    finally:
        await llm.aclose()


def seen(model: str, **options: Any) -> str:
    image = {"type": "image", "image": png_of(image_of(5061, 0, [20, 40]))}
    parts = [image, {"type": "text", "text": "What is this?"}]
    with camelid.load(model, backend="reference", context=300, **options) as llm:
        return llm.chat([{"role": "user", "content": parts}], temperature=1.0, seed=7, max_tokens=24).text


@pytest.mark.faults
def test_a_fetched_tower_that_cannot_be_read_is_left_out_with_a_note(hub: Hub, default_cache: Path) -> None:
    cria = (Path(camelid.__file__).parent / "data" / "cria.gguf").read_bytes()
    hub.add("o/r", {"m.gguf": cria, "mmproj.gguf": cria})
    with camelid.load("o/r", backend="reference") as llm:
        assert re.search(r"; no images: .*expected 'clip'", llm.backend_note)
    with camelid.load("o/r", backend="reference", mmproj_auto=False) as llm:
        assert "no images" not in llm.backend_note
