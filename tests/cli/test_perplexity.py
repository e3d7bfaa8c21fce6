"""Perplexity: the windows, the arithmetic, and the command against other libraries' logits."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray
from tests.support.gguf_files import CORPUS, write_tiny_llama
from tests.support.hf_models import load_case, write_hf

import camelid
from camelid.api.perplexity import (
    PerplexityEstimate,
    Window,
    chunk_windows,
    strided_windows,
    token_loss,
    window_losses,
)
from camelid.cli.main import main
from camelid.cli.perplexity import cut, evaluate
from camelid.errors import BackendError, RequestError
from camelid.text.tokenizers.pipeline import Frame

TEXT = f"{CORPUS}. " * 6
F32 = 0  # GGML_TYPE_F32
REFERENCE = ("--backend", "reference")
Spans = Callable[[int, int], list[tuple[int, range]]]
no_wheel = pytest.mark.skipif(
    not find_spec("llama_cpp"), reason="no llama.cpp wheel: `make rivals` builds and caches it"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=8, hidden=64, head_dim=16, ffn=96, type="f32")
    return place


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("text") / "text.txt"
    place.write_text(TEXT, "utf-8")
    return place


def call(*words: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["perplexity", *map(str, words)], input=stdin)


def log_softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    wide = np.asarray(logits, np.float64)
    shifted = wide - wide.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def chunk_spans(n_ids: int, context: int) -> list[tuple[int, range]]:
    """(a chunk's start, the scored ids) by llama.cpp's loop, which scores after rows context/2 ..
    context-2.
    """
    starts = [i * context for i in range(n_ids // context)]
    return [(start, range(start + context // 2 + 1, start + context)) for start in starts]


def strided_spans(n_ids: int, context: int, stride: int) -> list[tuple[int, range]]:
    """The documentation of transformers: labels of the previous window are masked, and a loss shifts labels
    by one, so that a window's first label is never scored.
    """
    spans: list[tuple[int, range]] = []
    previous = 0
    for begin in range(0, n_ids, stride):
        end = min(begin + context, n_ids)
        spans.append((begin, range(max(previous, begin + 1), end)))
        previous = end
        if end == n_ids:
            break
    return spans


def spans_of(windows: Iterable[Window]) -> list[tuple[int, range]]:
    """The same for windows over ids that count up from 0."""
    return [
        (w.token_ids[-1] + 1 - len(w.token_ids), range(w.token_ids[w.first], w.token_ids[-1] + 1))
        for w in windows
    ]


def summed_up(losses: Sequence[float]) -> tuple[float, float]:
    """Perplexity and its standard error: the delta method over NumPy's variance."""
    values = np.asarray(losses, np.float64)
    perplexity = np.exp(values.mean())
    return float(perplexity), float(perplexity * values.std() / np.sqrt(len(values) - 1))


@pytest.mark.parametrize(("n_ids", "context"), [(64, 16), (70, 16), (16, 16), (31, 7), (9, 4)])
@pytest.mark.parametrize("before", [(), (-1,)])
def test_chunks_score_llama_cpps_ids(n_ids: int, context: int, before: tuple[int, ...]) -> None:
    windows = list(chunk_windows(range(n_ids), context, before))
    want = chunk_spans(n_ids, context)
    assert spans_of(windows) == want
    assert all(window.token_ids[: len(before)] == before for window in windows)
    assert [window.n_scored for window in windows] == [len(scored) for _, scored in want]


@pytest.mark.parametrize(
    ("n_ids", "context", "stride"), [(64, 16, 8), (61, 16, 5), (10, 16, 8), (17, 16, 15), (40, 8, 1)]
)
def test_strided_windows_score_each_id_once(n_ids: int, context: int, stride: int) -> None:
    spans = spans_of(strided_windows(range(n_ids), context, stride))
    assert spans == strided_spans(n_ids, context, stride)
    assert [i for _, scored in spans for i in scored] == list(range(1, n_ids))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: chunk_windows(range(15), 16), "text"),
        (lambda: chunk_windows(range(15), 3), "context"),
        (lambda: strided_windows([1], 16, 4), "text"),
        (lambda: strided_windows(range(40), 16, 16), "stride"),
        (lambda: strided_windows(range(40), 16, 0), "stride"),
    ],
)
def test_invalid_windows_are_refused(make: Any, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        list(make())
    assert caught.value.facts["field"] == field


def test_loss_of_a_token_in_float64() -> None:
    rng = np.random.default_rng(0)
    for logits in (rng.normal(0, 8, 500), np.full(7, 3.0), np.array([900.0, -900.0, 880.0])):
        row = logits.astype(np.float32)
        for token in (0, len(row) - 1):
            assert token_loss(memoryview(row.data), token) == pytest.approx(
                -log_softmax(row)[token], rel=1e-12
            )


def test_estimate_is_independent_of_the_pieces() -> None:
    losses = np.random.default_rng(1).gamma(2.0, 1.5, 300)
    estimate = PerplexityEstimate()
    for piece in np.split(losses, [1, 50, 51, 299]):
        estimate = estimate.plus(piece.tolist())
    assert (estimate.perplexity, estimate.error) == pytest.approx(summed_up(losses.tolist()), rel=1e-9)
    assert PerplexityEstimate().plus([1.0]).error == 0.0
    assert PerplexityEstimate().plus([2000.0]).perplexity == float("inf")


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["llama31", "gemma2", "gpt2"])
def test_transformers_logits_have_the_same_loss(name: str, tmp_path: Path) -> None:
    """The stored logits are transformers'; the test checks our softmax alone."""
    case = load_case(name)
    ids, logits = max(zip(case.token_ids, case.logits, strict=True), key=lambda pair: len(pair[0]))
    table = log_softmax(logits)
    with camelid.load(write_hf(tmp_path / name, case), backend="reference", context=len(ids)) as llm:
        for first in (1, len(ids) // 2 + 1):
            want = [-table[i - 1, ids[i]] for i in range(first, len(ids))]
            window = Window(tuple(ids), first)
            assert window_losses(window, llm.logits(ids)) == pytest.approx(want, abs=2e-4)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("words", "context", "spans"),
    [
        ((), 64, chunk_spans),
        (("--chunks", 2), 32, lambda n_ids, context: chunk_spans(n_ids, context)[:2]),
        (("--stride", 24), 64, lambda n_ids, context: strided_spans(n_ids, context, 24)),
    ],
)
def test_command_equals_the_definition_over_the_models_logits(
    path: Path, text: Path, words: tuple[object, ...], context: int, spans: Spans
) -> None:
    facts = json.loads(call(path, "-f", text, "-c", context, *words, *REFERENCE, "--json").stdout)
    losses: list[float] = []
    with camelid.load(path, backend="reference", context=context) as llm:
        ids = llm.tokenize(TEXT)
        cuts = spans(len(ids), context)
        for start, scored in cuts:
            table = log_softmax(np.asarray(llm.logits(ids[start : scored.stop])))
            losses += [float(-table[i - 1 - start, ids[i]]) for i in scored]
    assert facts["n_windows"] == len(cuts) > 1
    assert facts["n_tokens"] == len(losses)
    assert (facts["perplexity"], facts["error"]) == pytest.approx(summed_up(losses), rel=1e-6)
    assert facts["context"] == context
    n_read = sum(scored.stop - start for start, scored in cuts)
    assert facts["tps"] * facts["total_s"] == pytest.approx(n_read)


@pytest.mark.conformance
@no_wheel
def test_llama_cpp_measures_the_same(text: Path) -> None:
    """llama.cpp's logits of cria's own file, chunked and scored by its loop."""
    context, llama = 64, import_module("llama_cpp")
    cria = Path(camelid.__file__).parent / "data" / "cria.gguf"
    rival = llama.Llama(
        str(cria), logits_all=True, verbose=False, n_ctx=256, n_threads=1, type_k=F32, type_v=F32
    )
    ids = rival.tokenize(TEXT.encode(), add_bos=True, special=False)
    losses: list[float] = []
    for start, scored in chunk_spans(len(ids), context):
        rival.reset()
        rival.eval(ids[start : start + context])
        table = log_softmax(rival.scores[:context])
        losses += [float(-table[i - 1 - start, ids[i]]) for i in scored]
    rival.close()
    facts = json.loads(call("cria", "-f", text, "-c", context, *REFERENCE, "--json").stdout)
    # llama.cpp quantizes activations to 8 bits.
    assert (facts["perplexity"], facts["error"]) == pytest.approx(summed_up(losses), rel=2e-2)
    assert facts["n_tokens"] == len(losses)


def test_bos_opens_every_chunk(path: Path) -> None:
    """The file's BOS opens every chunk, its EOS is added to none, as in llama.cpp."""
    tokenizer: Any = camelid.load_tokenizer(path)
    ids = tokenizer.encode(TEXT)
    plain = list(cut(tokenizer, TEXT, 32, None))
    tokenizer.frame = Frame((7,), (9,))
    framed = list(cut(tokenizer, TEXT, 32, None))
    (first, *_) = cut(tokenizer, TEXT, 32, 16)
    assert {window.token_ids[0] for window in framed} == {7}
    assert framed[0].token_ids == first.token_ids == (7, *ids[:31])
    assert framed[1].token_ids == (7, *ids[32:63]), "BOS does not replace a chunk's first id"
    assert plain[1].token_ids == tuple(ids[32:64])
    assert not any(9 in window.token_ids for window in framed)


def test_human_line_and_running_estimate(path: Path, text: Path) -> None:
    done = call(path, "-f", text, "-c", "64", *REFERENCE, "-v")
    facts = json.loads(call(path, "-f", text, "-c", "64", *REFERENCE, "--json").stdout)
    first, second = done.stdout.splitlines()
    assert first == f"perplexity {facts['perplexity']:.4f} ± {facts['error']:.4f}"
    assert second == f"{facts['n_tokens']:,} tokens scored in {facts['n_windows']} chunks of 64"
    assert (
        f"window {facts['n_windows']} of {facts['n_windows']}: {facts['perplexity']:.4f} so far"
        in done.stderr
    )


def test_text_from_a_pipe(path: Path, text: Path) -> None:
    words = ("-c", "64", *REFERENCE)
    assert call(path, "-f", "-", *words, stdin=TEXT).stdout == call(path, "-f", text, *words).stdout


@pytest.mark.parametrize(
    ("words", "content", "code", "said"),
    [
        ((), b"short", 1, "expected at least 512"),
        (("-c", "64", "--stride", "64"), TEXT.encode(), 1, "expected 1 to 63"),
        (("-c", "64"), b"", 2, "the text is empty"),
        (("-c", "64"), b"\xff\xfe", 2, "cannot be read as UTF-8"),
        (("-c", "3"), b"x", 2, "-c"),
        (("-c", "999"), TEXT.encode(), 1, "context is 999"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, words: tuple[str, ...], content: bytes, code: int, said: str
) -> None:
    write_tiny_llama(model := tmp_path / "t.gguf", seed=1, hidden=64, head_dim=16, ffn=96, context=600)
    (place := tmp_path / "text.txt").write_bytes(content)
    done = call(model, "-f", place, *words, *REFERENCE)
    assert done.exit_code == code
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_loss_without_a_perplexity_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with camelid.load(path, backend="reference", context=16) as llm:
        n_vocab = llm.spec.vocab_size
        wild = np.full((4, n_vocab), [[-1e4] + [1e4] * (n_vocab - 1)], np.float32).data
        monkeypatch.setattr(llm, "logits", lambda ids: wild)
        with pytest.raises(BackendError, match="nats a token"):
            evaluate(llm, [Window((1, 2, 3, 0), 3)], say_each=False)


def test_bar_on_a_terminal_shows_the_estimate(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", screen := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with camelid.load(path, backend="reference", context=64) as llm:
        evaluate(llm, list(cut(llm.tokenizer, TEXT, 64, None))[:2], say_each=False)
    assert "perplexity " in screen.getvalue()
    assert "2/2" in screen.getvalue()
