"""web/models in Node: hub ids and the choice of files as in Python, the journal, the device's verdict."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.formats import test_hub_companions, test_hub_ids
from tests.support.node_host import need_node

from camelid.formats.hub.ids import choose_files, choose_mmproj, parse_hub_id, quant_tag

SCRIPT = Path(__file__).with_name("models.mjs")
# A path of this machine for Python; in a page, which has none, a file of a hub.
ONLY_IN_PAGES = {
    "owner/repo/file.gguf": {"owner": "owner", "repo": "repo", "quant": "file.gguf", "revision": None},
    "o/r@v1/sub/f.gguf": {"owner": "o", "repo": "r", "quant": "sub/f.gguf", "revision": "v1"},
}
FIELDS = ("owner", "repo", "quant", "revision")


def in_node(*calls: list[Any]) -> list[dict[str, Any]]:
    """{value} or {error} of each [function, ...arguments]."""
    command = [need_node(), "--no-warnings", str(SCRIPT)]
    done = subprocess.run(command, input=json.dumps(calls), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def table(test: Any) -> list[tuple[Any, ...]]:
    """The cases of a parametrized test."""
    return list(next(mark for mark in test.pytestmark if mark.name == "parametrize").args[1])


def test_hub_ids_are_pythons() -> None:
    texts = [text for text, _ in table(test_hub_ids.test_hub_ids)]
    want = [parse_hub_id(text) for text in texts]
    got = in_node(*(["parseHubId", text] for text in [*texts, *ONLY_IN_PAGES, "o/r@a..b"]))
    fields = [it and {name: getattr(it, name) for name in FIELDS} for it in want]
    assert [it["value"] for it in got[:-1]] == [*fields, *ONLY_IN_PAGES.values()]
    assert got[-1] == {"error": "Invalid revision 'a..b'; expected a branch, tag or commit."}


def test_quant_tags_are_pythons() -> None:
    names = [name for name, _ in table(test_hub_ids.test_tag_in_a_file_name)]
    assert [it["value"] for it in in_node(*(["quantTag", name] for name in names))] == [
        *map(quant_tag, names)
    ]


def test_chosen_files_are_pythons() -> None:
    cases = [(list(listing), quant) for listing, quant, *_ in table(test_hub_ids.test_chosen_gguf)]
    want = [choose_files(listing, quant, repository="o/r") for listing, quant in cases]
    got = in_node(*(["chooseFiles", listing, quant, "o/r"] for listing, quant in cases))
    assert [tuple(it["value"]["names"]) for it in got] == [names for names, _ in want]
    assert [it["value"]["note"].rstrip(".") for it in got] == [note for _, note in want]


def test_chosen_towers_are_pythons() -> None:
    cases = [([model, *towers], model) for towers, model, _ in table(test_hub_companions.test_chosen_tower)]
    cases.append((["mmproj-b-F16.gguf", "mmproj-a-F16.gguf", "m.gguf"], "m.gguf"))
    cases = [case for case in cases if case[1].endswith(".gguf")]  # a page opens no directory
    want = [choose_mmproj(*case, repository="o/r") for case in cases]
    got = in_node(*(["chooseTower", *case, "o/r"] for case in cases))
    assert [(it["value"]["name"], it["value"]["note"].rstrip(".")) for it in got] == want
    assert sum(bool(name) for name, _ in want) > 5 and want[-1][1]


def test_refused_listings_are_pythons() -> None:
    cases = table(test_hub_ids.test_refused_listings)
    got = in_node(*(["chooseFiles", list(listing), quant, "o/r"] for listing, quant, *_ in cases))
    assert all("error" in it for it in got), got
    assert got[0]["error"] == "o/r has no Q6_K; it has Q4_0, Q8_0, UD-Q5_K_XL."
    assert "2 files for Q8_0: a-Q8_0.gguf, b-Q8_0.gguf; name one file" in got[2]["error"]


def test_the_journal_survives_a_torn_line() -> None:
    model = {"files": [{"name": "a", "size": 9}, {"name": "b", "size": None}]}
    lines = [
        {"model": model},
        {"file": 0, "done": 4, "hash": [1], "etag": "e"},
        {"file": 0, "done": 8, "hash": [2]},
    ]
    journal = "".join(f"{json.dumps(line)}\n" for line in lines)
    torn = json.dumps({"file": 0, "done": 9, "digest": "d"})
    whole, cut, empty = in_node(
        ["read", f"{journal}{torn}\n"], ["read", journal + torn[:-3]], ["read", torn[:-3]]
    )
    assert [part["done"] for part in cut["value"]["parts"]] == [8, 0]
    assert cut["value"]["parts"][0] == {
        "file": 0,
        "done": 8,
        "total": 9,
        "hash": [2],
        "etag": "e",
        "digest": None,
    }
    assert whole["value"]["parts"][0]["digest"] == "d" and not whole["value"]["isComplete"]
    assert empty["value"] is None
    assert in_node(["sums", cut["value"]["parts"]])[0]["value"] == {"done": 8, "total": None}


def test_an_address_of_one_part_names_all() -> None:
    page = "https://site.example/chat/"
    url = "https://h.example/d/m%20x-00002-of-00003.gguf?k=1"
    parts, own = in_node(["fromAddress", url, page], ["fromAddress", "./cria.gguf", page])
    want = [f"https://h.example/d/m%20x-0000{i}-of-00003.gguf?k=1" for i in (1, 2, 3)]
    assert [file["url"] for file in parts["value"]["files"]] == want
    assert own["value"]["files"][0]["url"] == "https://site.example/chat/cria.gguf"


ADDRESSES = {
    "nonsense": "'nonsense' is neither a hub id nor an address",
    "https://": "'https://' is neither a hub id nor an address",
    "ftp://h/x.gguf": "expected http:// or https://",
    r"C:\m\x.gguf": "A file of this device can be dropped here",
    "https://h.example/models/": "names no file; expected an address like",
    "https://h.example/a%2Fb.gguf": "names no file",
    "https://h.example/mmproj-m-F16.gguf": "mmproj-m-F16.gguf is a vision tower alone. Open it together",
    "https://me:secret@h.example/x.gguf": "contains a user name or password",
    "https://h.example/100%.gguf": "'https://h.example/100%.gguf' has a percent sign",
    "https://h.example/%FF.gguf": "write %25 for the sign itself",
}


def test_wrong_addresses_have_each_a_message() -> None:
    page = "https://site.example/"
    got = in_node(*(["fromAddress", address, page] for address in ADDRESSES))
    assert [want in it["error"] for want, it in zip(ADDRESSES.values(), got, strict=True)] == [True] * len(
        ADDRESSES
    ), got
    assert not any("secret" in it["error"] for it in got)


def test_escapes_of_hub_ids() -> None:
    good, bad = in_node(
        ["parseHubId", "hf://o/r/resolve/main/a%20b.gguf"], ["parseHubId", "hf://o/r/resolve/main/50%.gguf"]
    )
    assert good["value"]["quant"] == "a b.gguf"
    assert bad["error"].startswith("'hf://o/r/resolve/main/50%.gguf' has a percent sign")


def test_dropped_files() -> None:
    names = [{"name": name} for name in ("m-00002-of-00002.gguf", "README.md", "m-00001-of-00002.gguf")]
    both, two, none = in_node(
        ["modelOf", names], ["modelOf", [*names, {"name": "other.gguf"}]], ["modelOf", names[1:2]]
    )
    assert [file["name"] for file in both["value"]["model"]] == [
        "m-00001-of-00002.gguf",
        "m-00002-of-00002.gguf",
    ]
    assert "Several models at once: m-00001-of-00002.gguf, other.gguf." in two["error"]
    assert "no .gguf file" in none["error"]


def test_a_model_and_its_tower_are_a_pair() -> None:
    model, tower, other = (
        {"name": name} for name in ("m-Q4_0.gguf", "mmproj-m-F16.gguf", "m.mmproj-Q8_0.gguf")
    )
    parts = [{"name": f"m-0000{i}-of-00002.gguf"} for i in (1, 2)]
    pair, split, two, alone, plain = in_node(
        *(
            ["modelOf", files]
            for files in ([tower, model], [*parts, tower], [model, tower, other], [tower], [model])
        )
    )
    assert pair["value"] == {"model": model, "name": "m-Q4_0.gguf", "mmproj": tower}
    assert split["value"] == {"model": parts, "name": parts[0]["name"], "mmproj": tower}
    assert "Several mmproj files at once: mmproj-m-F16.gguf, m.mmproj-Q8_0.gguf." in two["error"]
    assert alone["error"].startswith("mmproj-m-F16.gguf is a vision tower alone.")
    assert plain["value"] == {"model": model, "name": "m-Q4_0.gguf"}


@pytest.mark.parametrize(
    ("gib", "is_most", "want"),
    [
        (None, False, "unknown"),
        (8, True, "fits"),
        (2, False, "tight"),
        (1, False, "large"),
        (1, True, "tight"),
    ],
)
def test_verdict_of_a_device(gib: float | None, is_most: bool, want: str) -> None:
    memory = gib and gib * 2**30
    assert in_node(["verdict", 1.5e9, {"memory": memory, "isMost": is_most}])[0]["value"] == want


SHAPES = {  # layers, KV heads, head size
    "SmolLM2 135M": (30, 3, 64),
    "SmolLM2 360M": (32, 5, 64),
    "Qwen2.5 0.5B": (24, 2, 64),
    "Qwen3 0.6B": (28, 8, 128),
    "Llama 3.2 1B": (16, 8, 64),
    "Qwen2.5 1.5B": (28, 2, 128),
}


def test_need_of_a_known_model() -> None:
    """The file, keys and values in f32 for the default context, and working memory."""
    known = in_node(["known"])[0]["value"]
    needs = [it["value"] for it in in_node(*(["needOf", row] for row in known))]
    assert [row["name"] for row in known] == [*SHAPES]
    for row, need in zip(known, needs, strict=True):
        n_layers, n_heads, size = SHAPES[row["name"]]
        assert need == {
            "bytes": row["bytes"] + 2 * 4 * n_layers * n_heads * size * 4096 + 426e6,
            "context": 4096,
        }


def test_room_is_checked_with_numbers() -> None:
    estimate = {"usage": 4e8, "quota": 1e9}
    enough, short = in_node(["checkRoom", estimate, "m.gguf", 5e8], ["checkRoom", estimate, "m.gguf", 6e8])
    assert "error" not in enough
    want = "m.gguf needs 600 MB more, but this browser gives this site 600 MB (of 1.00 GB)."
    assert short["error"].startswith(want)


def test_every_language_has_every_text() -> None:
    english, *others = (it["value"] for it in in_node(*(["table", name] for name in ("en", "de", "fr"))))
    for table in others:
        assert table.keys() == english.keys()
        assert {key: holes(words) for key, words in table.items()} == {
            key: holes(words) for key, words in english.items()
        }


def holes(words: str) -> set[str]:
    return set(re.findall(r"\{\w+\}", words))


def test_texts_of_a_language() -> None:
    values = {"name": "m", "need": {"bytes": 1.5e9}, "free": {"bytes": 2e6}, "quota": {"bytes": 3e9}}
    german, french, other = in_node(
        *(["translated", language, "error.quota", values] for language in ("de", "fr", "es"))
    )
    assert german["value"].startswith("m braucht noch 1,50 GB, doch dieser Browser gibt dieser Seite 2,0 MB")
    assert french["value"].startswith("m demande encore 1,50 Go")
    assert other["value"].startswith("m needs 1.50 GB more")


def test_a_download_that_is_stopped_before_its_worker_starts_ends() -> None:
    assert in_node(["stopped"]) == [{"error": "stopped"}]
