"""`camelid web --export`: arguments, models that one file does not hold, a target that stays whole."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
from html import escape
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import load_case, write_hf
from tests.support.split_gguf import split

from camelid.cli.main import main
from camelid.errors import BackendError
from camelid.loading.model_file import open_model
from camelid.server import one_file
from camelid.server import site as sites

PART = re.compile(
    r'<script type="application/octet-stream"([^>]*)>([^<]*)</script><script>take\(\)</script>\n'
)
FACT = re.compile(r'data-(\w+)="([^"]*)"')
TEXT = b"/* page */" * 100


def call(*words: object) -> Result:
    return CliRunner().invoke(main, ["web", *(str(word) for word in words)])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site with the parts of one file, small."""
    folder = tmp_path / "site"
    (folder / "one_file").mkdir(parents=True)
    (folder / "index.html").write_text("<title>page</title>")
    (folder / "one_file" / "shell.html").write_text("<body>\n<!--parts-->\n</body>")
    (folder / "one_file" / "files.json").write_text(json.dumps({"scripts": ["app.js"], "files": ["a.wasm"]}))
    (folder / "one_file" / "app.js").write_bytes(TEXT)
    (folder / "a.wasm").write_bytes(bytes(range(256)))
    monkeypatch.setattr(sites, "find_site", lambda: folder)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_tiny_llama(tmp_path / 'a "model".gguf', seed=2, type="f32")
    return tmp_path / 'a "model".gguf'


def embedded(file: Path) -> dict[str, bytes]:
    """The files of a page, as its boot script reads them."""
    found: dict[str, bytes] = {}
    ended = list[str]()
    n_bytes, totals = 0, set[int]()
    for told, text in PART.findall(file.read_text()):
        facts = dict(FACT.findall(told))
        data = base64.b64decode(text, validate=True)
        assert facts["name"] not in ended
        ended += [facts["name"]] if "last" in facts else []
        n_bytes += len(data)
        whole = found.get(facts["name"], b"") + data
        is_packed = "last" in facts and facts["encoding"] == "gzip"
        found[facts["name"]] = gzip.decompress(whole) if is_packed else whole
        totals.add(int(facts["total"]))
    assert [*found] == ended and totals == {n_bytes}
    return found


def test_the_file_has_all_files_in_order(
    site: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_file, "PART_BYTES", 3000)
    target = tmp_path / "chat.html"
    target.write_text("an older page")
    done = call("--export", target, model)
    assert done.exit_code == 0 and f"{target.stat().st_size:,} bytes" in done.stderr
    want = {"app.js": TEXT, "a.wasm": bytes(range(256)), "a &quot;model&quot;.gguf": model.read_bytes()}
    assert list(embedded(target).items()) == list(want.items())
    first = target.read_bytes()
    assert first.startswith(b"<body>\n<script") and first.endswith(b"</script>\n</body>")
    call("--export", target, model)
    assert target.read_bytes() == first


def test_a_model_in_parts_is_inside_in_parts(site: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    paths = split(model, tmp_path / "parts", count=2)
    call("--export", tmp_path / "chat.html", paths[0])
    found = embedded(tmp_path / "chat.html")
    assert [found[escape(path.name)] for path in paths] == [path.read_bytes() for path in paths]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("m.gguf",), "MODEL (m.gguf) belongs to --export"),
        (("--export", "m.gguf"), "--export m.gguf is no name of an HTML file"),
        (
            ("--export", "x.html", "--port", "1", "--hub", "https://a"),
            "--port, --hub: only for serving the page",
        ),
    ],
)
def test_options_that_exclude_one_another(words: tuple[str, ...], complaint: str) -> None:
    done = call(*words)
    assert done.exit_code == 2 and complaint in done.stderr


def test_models_that_one_file_does_not_hold(
    site: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "chat.html"
    folder = write_hf(tmp_path / "hf", load_case("qwen3"), dtype="bf16", n_shards=1)
    assert "pages open GGUF files; camelid convert" in call("--export", target, folder).stderr
    monkeypatch.setattr(one_file, "MOST_MODEL_BYTES", 1000)
    told = call("--export", target, model).stderr
    assert "one file holds models of up to 1,000" in told and "camelid quantize" in told
    assert "there is no such file" in call("--export", target, tmp_path / "absent.gguf").stderr
    assert not target.exists()


def test_a_failed_export_leaves_the_old_file(site: Path, model: Path, tmp_path: Path) -> None:
    target = tmp_path / "chat.html"
    target.write_text("an older page")

    def stop(name: str, done: int, total: int) -> None:
        if name == "a.wasm":
            raise KeyboardInterrupt

    found = asyncio.run(open_model(str(model)))
    with pytest.raises(KeyboardInterrupt):
        one_file.export(site, found, target, stop)
    assert target.read_text() == "an older page"
    assert {path.name for path in tmp_path.iterdir()} == {"chat.html", "site", model.name}


def test_sites_without_the_parts(site: Path, model: Path, tmp_path: Path) -> None:
    target = tmp_path / "chat.html"
    (site / "a.wasm").unlink()
    assert "no a.wasm; build the page again" in call("--export", target, model).stderr
    (site / "one_file" / "shell.html").unlink()
    assert "pip install camelid-web" in call("--export", target, model).stderr
    assert not target.exists()


def test_no_page_names_both_ways_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sites, "__file__", str(tmp_path / "a/b/c/site.py"))
    monkeypatch.setattr(sites, "PACKAGE", "camelid_web_absent")
    with pytest.raises(BackendError, match=r"pip install camelid-web.*make web"):
        sites.find_site()
