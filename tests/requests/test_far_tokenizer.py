"""Long texts in worker processes: ids as in this process, errors, dead processes, the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.support.exhaustive import exhaustive
from tests.support.text.hf_families import published
from tests.support.text.texts import random_texts
from tests.text.tokenizers.test_bpe import metadata

import camelid
from camelid.errors import RequestError
from camelid.formats.gguf import open_gguf
from camelid.requests import far_tokenizer, idle_child
from camelid.requests.far_tokenizer import FarTokenizer
from camelid.text.tokenizers.hf.files import TokenizerFiles
from camelid.text.tokenizers.source import TokenizerSource

TEXTS = [*random_texts(120, seed=9), "<|im_end|>a<|im_start|>", " x", ""]
CRIA = Path(camelid.__file__).parent / "data" / "cria.gguf"
SOURCES: dict[str, Callable[[], TokenizerSource]] = {
    "cria": lambda: TokenizerSource(open_gguf(CRIA).metadata),
    "llama-bpe": lambda: TokenizerSource(metadata(changes={"pre": "llama-bpe"})),
    "t5": lambda: TokenizerSource(files=TokenizerFiles(published("t5"))),
    "gpt2": lambda: TokenizerSource(files=TokenizerFiles(published("gpt2"))),
}


@pytest.fixture(params=["cria"])
def far(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FarTokenizer]:
    """A tokenizer to which every text is long."""
    monkeypatch.setattr(far_tokenizer, "FAR_CHARS", 0)
    for name in ("PATIENCE_S", "LIMIT_S"):  # a busy machine may leave an idle process no time
        monkeypatch.setattr(far_tokenizer, name, 600.0)
    source: TokenizerSource = SOURCES[request.param]()
    made = FarTokenizer(source.build(), source)
    yield made
    made.close()


@pytest.mark.parametrize(
    "far", [exhaustive(name) if name == "llama-bpe" else name for name in SOURCES], indirect=True
)
def test_ids_are_those_of_this_process(far: FarTokenizer) -> None:
    rng, near = random.Random(3), far._near
    for text in TEXTS:
        at = rng.randrange(len(text) + 1)
        spans = [(text[:at], rng.random() < 0.5), (text[at:], rng.random() < 0.5)]
        for opens in (True, False):
            assert far.encode_spans(spans, opens=opens) == near.encode_spans(spans, opens=opens), ascii(text)
        assert far.encode(text, special=True) == near.encode(text, special=True)


def test_a_short_text_starts_no_process(far: FarTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_tokenizer, "FAR_CHARS", 10)
    with patch.object(far_tokenizer, "start_child", side_effect=AssertionError):
        assert far.encode("x" * 9) == far._near.encode("x" * 9)
        with pytest.raises(AssertionError):
            far.encode("x" * 10)


def test_a_lone_surrogate_is_an_error_of_the_request(far: FarTokenizer) -> None:
    with pytest.raises(RequestError, match=r"U\+D800, at character 1"):
        far.encode("a\ud800")
    assert far.encode("a") == far._near.encode("a")


def test_two_texts_have_two_idle_processes(far: FarTokenizer) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(far.encode, [text * 40 for text in TEXTS]))
    assert found == [far._near.encode(text * 40) for text in TEXTS]
    children = [process._child for process in far._all]
    assert all(children)
    if hasattr(os, "SCHED_IDLE"):
        assert {os.sched_getscheduler(child.pid) for child in children if child} == {os.SCHED_IDLE}


def test_a_dead_process_is_replaced(far: FarTokenizer) -> None:
    far.encode("a")
    (child,) = [process._child for process in far._all if process._child]
    child.kill()
    child.wait()
    assert far.encode("a b") == far._near.encode("a b")


def test_a_text_that_kills_every_process_is_refused(far: FarTokenizer) -> None:
    deadly = idle_child.COMMAND.replace("main()", "start(); import os; os._exit(9)").replace(
        "import main", "import start"
    )
    with (
        patch.object(idle_child, "COMMAND", deadly),
        pytest.raises(RequestError, match="send a shorter one"),
    ):
        far.encode("a")
    assert far.encode("a") == far._near.encode("a")


def test_a_text_has_a_time_limit(far: FarTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(far_tokenizer, "LIMIT_S", 0.05)
        with pytest.raises(RequestError, match="machine is busy") as caught:
            far.encode("a b" * 3_000_000)
    assert caught.value.facts["code"] == "tokenizer_busy"
    assert far.encode("a b" * 50_000) == far._near.encode("a b" * 50_000)


@pytest.mark.skipif(sys.platform == "win32", reason="not on this platform: no signal stops a process")
def test_a_text_that_no_idle_process_has_time_for_is_encoded_here(
    far: FarTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is stopped, as one that the machine gives no time."""
    text, want = "a b" * 50_000, far._near.encode("a b" * 50_000)
    far.encode("a")
    (child,) = [process._child for process in far._all if process._child]
    child.send_signal(signal.SIGSTOP)
    with monkeypatch.context() as changed:
        changed.setattr(far_tokenizer, "PATIENCE_S", 0.2)
        changed.setattr(far_tokenizer, "PATIENCE_CHAR_S", 0.0)
        assert far.encode(text) == want
    assert child.poll() == -signal.SIGKILL
    assert far.encode(text) == want


def test_closing_ends_the_processes(far: FarTokenizer) -> None:
    far.encode("a")
    children = [process._child for process in far._all if process._child]
    far.close()
    assert [child.poll() is not None for child in children] == [True]
    with pytest.raises(RequestError, match="was closed"):
        far.encode("a")


def test_closing_reaches_a_process_that_still_starts(
    far: FarTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, children = far_tokenizer.start_child, list[subprocess.Popen[bytes]]()

    def started_late(module: str, **options: bool) -> subprocess.Popen[bytes]:
        far.close()
        children.append(real(module, **options))
        return children[-1]

    monkeypatch.setattr(far_tokenizer, "start_child", started_late)
    far.encode("a text")
    assert [child.poll() is None for child in children] == [False]
