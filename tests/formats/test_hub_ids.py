"""Hub ids, and the choice of a repository's files."""

from __future__ import annotations

import pytest
from tests.support.formats.hub_fetches import DIRECTORY

from camelid.errors import CamelidError, ModelFormatError, RequestError, UnsupportedModelError
from camelid.formats.hub.ids import HubId, choose_files, parse_hub_id, quant_tag


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("owner/repo", HubId("owner", "repo")),
        ("owner/repo:Q4_K_M", HubId("owner", "repo", "Q4_K_M")),
        ("owner/repo:sub/file-Q8_0.gguf", HubId("owner", "repo", "sub/file-Q8_0.gguf")),
        ("owner/repo@v1.0:q8_0", HubId("owner", "repo", "q8_0", "v1.0")),
        ("owner/repo@refs/pr/1", HubId("owner", "repo", None, "refs/pr/1")),
        ("hf://owner/repo", HubId("owner", "repo")),
        ("hf://owner/repo@v1/file.gguf", HubId("owner", "repo", "file.gguf", "v1")),
        ("hf.co/owner/repo:Q8_0", HubId("owner", "repo", "Q8_0")),
        ("https://huggingface.co/owner/repo/", HubId("owner", "repo")),
        ("https://huggingface.co/o/r/tree/v1", HubId("o", "r", None, "v1")),
        (
            "https://huggingface.co/o/r/blob/main/x%20y.gguf?download=true",
            HubId("o", "r", "x y.gguf", "main"),
        ),
        ("TheBloke/Llama-2-7B-GGUF", HubId("TheBloke", "Llama-2-7B-GGUF")),
        ("hf://owner/x.gguf", HubId("owner", "x.gguf")),
        ("models/x.gguf", None),
        ("models/x.safetensors", None),
        ("cria", None),
        ("./owner/repo", None),
        ("../repo", None),
        ("/owner/repo", None),
        ("a/b/c", None),
        ("a/..", None),
        ("a/b..c", None),
        ("a--b/c", None),
        ("a/b:", None),
        ("a" * 97 + "/b", None),
        ("C:/models", None),
        ("a/b\n", None),
        ("", None),
    ],
)
def test_hub_ids(text: str, want: HubId | None) -> None:
    assert parse_hub_id(text) == want


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("llama-3.2-1b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("Llama-3.2-1B.Q8_0.gguf", "Q8_0"),
        ("Qwen3-8B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("Q4_K_M/model-00001-of-00002.gguf", "Q4_K_M"),
        ("m-IQ3_XXS.gguf", "IQ3_XXS"),
        ("m-MXFP4_MOE.gguf", "MXFP4_MOE"),
        ("gemma-bf16.gguf", "BF16"),
        ("cria.gguf", ""),
        ("f16ish.gguf", ""),
    ],
)
def test_tag_in_a_file_name(name: str, tag: str) -> None:
    assert quant_tag(name) == tag


MANY = ["a-Q4_0.gguf", "a-Q8_0.gguf", "a-UD-Q5_K_XL.gguf", "mmproj-a-F16.gguf", "a-imatrix.gguf", "README.md"]
SPLIT = ["m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M-00002-of-00002.gguf"]
THREE = [f"Q8_0/m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]


@pytest.mark.parametrize(
    ("listing", "quant", "want", "note"),
    [
        (MANY, "q8_0", ("a-Q8_0.gguf",), ""),
        (MANY, "A-Q8_0.GGUF", ("a-Q8_0.gguf",), ""),
        (MANY, "Q5_K_XL", ("a-UD-Q5_K_XL.gguf",), ""),
        (MANY, None, ("a-Q4_0.gguf",), "no Q4_K_M; using a-Q4_0.gguf"),
        ([*MANY, "a-Q4_K_M.gguf"], None, ("a-Q4_K_M.gguf",), ""),
        (["cria.gguf"], None, ("cria.gguf",), ""),
        (["x/a-Q8_0.gguf", "mmproj.gguf"], "a-Q8_0.gguf", ("x/a-Q8_0.gguf",), ""),
        ([*SPLIT, "m-Q8_0.gguf"], None, tuple(SPLIT), ""),
        ([*SPLIT, "m-Q4_K_M.gguf"], "Q4_K_M", ("m-Q4_K_M.gguf",), ""),
        ([*SPLIT, "m-Q4_K_M.gguf"], None, ("m-Q4_K_M.gguf",), ""),
        ([*SPLIT, "m-Q4_K_M.gguf"], SPLIT[1], tuple(SPLIT), ""),
        ([*SPLIT, *THREE], "q8_0", tuple(THREE), ""),
        (["m-i2_s.gguf", "m-fp16.gguf"], "i2_s", ("m-i2_s.gguf",), ""),
        (["UD-Q2_K_XL/m.gguf", "m-Q8_0.gguf"], "q2_k_xl", ("UD-Q2_K_XL/m.gguf",), ""),
        (THREE[::-1], None, tuple(THREE), ""),
        (THREE, "m-00003-of-00003.GGUF", tuple(THREE), ""),
        (THREE[1:], None, tuple(THREE), ""),
        (["m-Q8_0-00001-of-00001.gguf"], "Q8_0", ("m-Q8_0-00001-of-00001.gguf",), ""),
    ],
)
def test_chosen_gguf(listing: list[str], quant: str | None, want: tuple[str, ...], note: str) -> None:
    files, said = choose_files(listing, quant, repository="o/r")
    assert files == want
    assert note in said and bool(note) == bool(said)


def test_chosen_directory_has_no_pickle_and_no_second_copy() -> None:
    files, said = choose_files(DIRECTORY, None, repository="o/r")
    left_out = {"pytorch_model.bin", "consolidated.safetensors", "original/consolidated.00.pth"}
    assert (set(files), said) == (set(DIRECTORY) - left_out, "")


def test_missing_shards_are_chosen_too() -> None:
    listing = ["config.json", "model-00002-of-00003.safetensors"]
    files, _ = choose_files(listing, None, repository="o/r")
    assert files == ("config.json", *(f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)))


@pytest.mark.parametrize(
    ("listing", "quant", "error", "words"),
    [
        (MANY, "Q6_K", RequestError, r"o/r has no Q6_K; it has Q4_0, Q8_0, UD-Q5_K_XL"),
        (["cria.gguf"], "Q6_K", RequestError, r"its files are cria.gguf"),
        (["a-Q8_0.gguf", "b-Q8_0.gguf"], "Q8_0", RequestError, "2 files for Q8_0.*name one"),
        (["a.gguf", "b.gguf"], None, RequestError, "2 files without a quant tag: a.gguf, b.gguf; name one"),
        ([*SPLIT, SPLIT[0].replace("m-", "n-")], "q4_k_m", RequestError, "2 files for q4_k_m.*name one"),
        (DIRECTORY, "Q4_0", RequestError, "no .gguf files.*leave out"),
        (["pytorch_model.bin", "config.json"], None, UnsupportedModelError, "pickles.*never loaded"),
        (["model.safetensors"], None, UnsupportedModelError, "no config.json beside"),
        ([], None, UnsupportedModelError, "neither a .gguf model nor"),
        (["mmproj-a.gguf"], None, UnsupportedModelError, "neither a .gguf model nor"),
        (["a.gguf", "../evil.gguf"], None, ModelFormatError, "evil.*which is unsafe"),
        (["a.gguf", "/etc/passwd"], None, ModelFormatError, "which is unsafe"),
        (["a.gguf", "x/../../y"], None, ModelFormatError, "which is unsafe"),
        (["a.gguf", "C:\\x"], None, ModelFormatError, "which is unsafe"),
        (["a.gguf", "x\x1b[2J"], None, ModelFormatError, "which is unsafe"),
    ],
)
def test_refused_listings(
    listing: list[str], quant: str | None, error: type[CamelidError], words: str
) -> None:
    with pytest.raises(error, match=words):
        choose_files(listing, quant, repository="o/r")
