"""The command line: output, stderr, exit codes."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.api.llm import LLM
from camelid.cli.command import Failure, one_line
from camelid.cli.main import COMMANDS, main
from camelid.errors import RequestError
from camelid.server import static

CORE = Path(__file__).parents[2] / "core"
GREEDY = ("--backend", "reference", "--temp", "0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model")


@pytest.fixture(scope="module")
def path(folder: Path) -> str:
    write_tiny_llama(place := folder / "tiny.gguf", seed=3, hidden=64, head_dim=16, ffn=96, context=4096)
    return str(place)


@pytest.fixture(scope="module")
def bare(folder: Path) -> str:
    write_tiny_llama(
        place := folder / "bare.gguf", seed=3, hidden=64, head_dim=16, ffn=96, with_tokenizer=False
    )
    return str(place)


@pytest.fixture(scope="module")
def llm(path: str) -> Iterator[LLM]:
    with camelid.load(path, backend="reference") as loaded:
        yield loaded


def call(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, words, input=stdin)


def shell(*words: str, stdin: str | None = "", check: bool = True) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(CORE), "PYTHONUTF8": "1"}
    return subprocess.run(
        [sys.executable, "-m", "camelid", *words],
        input=stdin, capture_output=True, text=True, env=env, check=check, timeout=60,
    )  # fmt: skip


@pytest.mark.e2e
def test_run_streams_the_answer_and_closes_with_one_line(path: str, llm: LLM) -> None:
    done = shell("run", path, "-p", "the llama", "-n", "8", *GREEDY)
    messages = [{"role": "user", "content": "the llama"}]
    assert done.stdout == llm.chat(messages, max_tokens=8, temperature=0.0).text + "\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("camelid: reference on NumPy")
    assert all(word in line for word in ("tok/s", "GB/s", "first token after"))


@pytest.mark.e2e
def test_run_reads_the_prompt_from_a_pipe(path: str) -> None:
    given = shell("run", path, "-p", "the llama", "-n", "4", *GREEDY).stdout
    assert shell("run", path, "-n", "4", *GREEDY, stdin="the llama\n").stdout == given
    assert shell("run", path, "-n", "4", "-p", "-", *GREEDY, stdin="the llama\n").stdout == given


def test_raw_skips_the_template_and_parses_control_tokens(path: str, llm: LLM) -> None:
    prompt = "<|im_start|>the llama"
    done = call("run", path, "-p", prompt, "--raw", "-n", "4", *GREEDY)
    ids = llm.tokenize(prompt, special=True)
    assert done.stdout == llm.generate(ids, max_tokens=4, temperature=0.0).text + "\n"


def test_system_message_reaches_the_template(path: str, llm: LLM) -> None:
    done = call("run", path, "-p", "the llama", "--system", "be green", "-n", "6", *GREEDY)
    messages = [{"role": "system", "content": "be green"}, {"role": "user", "content": "the llama"}]
    assert done.stdout == llm.chat(messages, max_tokens=6, temperature=0.0).text + "\n"


def test_seed_repeats_an_answer_and_verbose_shows_it(path: str) -> None:
    words = (
        "run",
        path,
        "-p",
        "the llama",
        "-n",
        "8",
        "--backend",
        "reference",
        "--temperature",
        "2",
        "--seed",
    )
    assert call(*words, "5").stdout == call(*words, "5").stdout
    assert len({call(*words, str(seed)).stdout for seed in range(4)}) > 1
    shown = call(*words, "5", "-v").stderr
    assert "seed 5" in shown
    assert "of this machine's" in shown


def test_model_without_template_is_warned_about(folder: Path, path: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("camelid.api.llm.LLM.has_template", False)
    done = call("run", path, "-p", "the llama", "-n", "2", *GREEDY)
    assert "warning: this model has no chat template" in done.stderr
    assert done.exit_code == 0
    assert call("run", path, "-p", "x", "--system", "y", *GREEDY).exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("run", "PATH", "-p", "x", "--top-k", "-3"),
        ("run", "PATH", "-p", "x", "-n", "0"),
        ("run", "PATH", "-p", "x", "--seed", "-2"),
        ("run", "PATH", "-p", "x", "--raw", "--system", "y"),
        ("run", "PATH"),
        ("walk",),
        ("tokenize", "a", "b", "c"),
        ("explain", "PATH", "--entry", "encode"),
    ],
)
def test_usage_errors_exit_with_2(path: str, words: tuple[str, ...]) -> None:
    done = call(*(path if word == "PATH" else word for word in words), stdin="")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Error: " in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--temp", "-1"), "temperature is -1.0"),
        (("--temp", "1000"), "expected 0 (greedy) or a number from 0.01 to 100"),
        (("--backend", "gpu"), "'gpu' is not one of 'auto', 'reference'"),
        (("--backend", "reference", "--adapter", "x"), "backend 'reference' has no adapters"),
    ],
)
def test_option_out_of_range_is_a_usage_error(path: str, words: tuple[str, ...], said: str) -> None:
    done = call("run", path, "-p", "x", *words)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_explain_refuses_an_unknown_backend(path: str) -> None:
    assert call("explain", path, "--backend", "gpu").exit_code == 2
    assert call("explain", path, "--adapter", "x").exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "no.gguf", "-p", "x"), "no.gguf: there is no such file"),
        (("run", "PATH", "-p", "x", "-c", "9999"), "context is 9999, expected 1 to 4096"),
        (("run", "PATH", "-p", "x", "-c", "9", "-n", "9"), "exceed the context of 9"),
        (("run", "PATH", "-p", "x", "--backend", "reference", "--save-tape", "t"), "has no tape"),
        (("run", "BARE", "-p", "x", "--backend", "reference"), "no tokenizer"),
        (("info", "no.gguf"), "there is no such file"),
        (("tokenize", "BARE", "x"), "tokenizer"),
    ],
)
def test_failure_is_one_clear_line_and_exit_code_1(
    path: str, bare: str, words: tuple[str, ...], said: str
) -> None:
    done = call(*({"PATH": path, "BARE": bare}.get(word, word) for word in words))
    line = done.stderr.splitlines()[-1]
    assert done.exit_code == 1
    assert line.startswith("camelid: error: ")
    assert said in line
    assert "Traceback" not in done.stderr


@pytest.mark.e2e
def test_traceback_only_on_request() -> None:
    quiet = shell("info", "no.gguf", check=False)
    assert (quiet.returncode, quiet.stdout) == (1, "")
    assert len(quiet.stderr.splitlines()) == 1
    loud = shell("info", "no.gguf", "-v", check=False)
    assert "Traceback" in loud.stderr
    assert loud.stderr.splitlines()[-1] == quiet.stderr.strip()


def test_unexpected_error_is_reported_as_a_bug() -> None:
    assert "ZeroDivisionError: oh; this is a bug" in one_line(ZeroDivisionError("oh"))
    assert one_line(RequestError("as it is", field="x")) == "as it is"


def test_full_disk_is_not_reported_as_a_bug() -> None:
    assert one_line(OSError(errno.ENOSPC, "No space left")) == "the output cannot be written: No space left"


def test_failure_before_the_first_token_leaves_stdout_empty(bare: str) -> None:
    assert call("run", bare, "-p", "x", "--backend", "reference").stdout == ""


def test_error_with_line_breaks_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Failure("two\nlines").show()
    assert capsys.readouterr().err == "camelid: error: two lines\n"


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform == "win32", reason="not on this platform: signals")
def test_interrupt_ends_the_answer_cleanly_with_130(path: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(CORE)}
    process = subprocess.Popen(
        [sys.executable, "-m", "camelid", "run", path, "--raw", "-p", "the llama", *GREEDY],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
    )  # fmt: skip
    assert process.stdout is not None
    assert len(process.stdout.read(20)) == 20, "the answer is not streamed"
    process.send_signal(signal.SIGINT)
    rest, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == b""
    assert rest.endswith(b"\n")


@pytest.mark.e2e
def test_broken_pipe_is_no_traceback(path: str) -> None:
    script = f"'{sys.executable}' -m camelid run '{path}' --raw -p 'the llama' {' '.join(GREEDY)} | head -c 5"
    env = {**os.environ, "PYTHONPATH": str(CORE)}
    done = subprocess.run(["sh", "-c", script], input=b"", capture_output=True, env=env, timeout=60)
    assert len(done.stdout) == 5
    assert b"Traceback" not in done.stderr


def test_info_shows_the_files_contents(path: str) -> None:
    shown = call("info", path)
    assert shown.exit_code == 0
    rows = {line[:16].strip(): line[16:] for line in shown.stdout.splitlines()}
    assert rows["arch"] == "llama"
    assert rows["gqa ratio"] == "2"
    assert rows["chat template"] == "yes"
    assert rows["norm eps"] == "1e-05"
    facts = json.loads(call("info", path, "--json").stdout)
    assert (facts["heads"], facts["kv_heads"], facts["head_dim"], facts["layers"]) == (4, 2, 16, 2)
    assert facts["file_bytes"] == Path(path).stat().st_size
    assert facts["types"].keys() == {"q8_0", "f32"}


def test_info_works_without_a_tokenizer(bare: str) -> None:
    assert json.loads(call("info", bare, "--json").stdout)["tokenizer"] is None
    assert "tokenizer       none\n" in call("info", bare).stdout


def test_explain_prints_the_plan_and_its_cost(path: str) -> None:
    shown = call("explain", path, "--entry", "mixed")
    assert shown.stdout.startswith("plan mixed-r64-s4-o4-u264-c4-b64\n")
    assert "attention" in shown.stdout
    facts = json.loads(call("explain", path, "--json").stdout)
    assert facts["plan"].startswith("plan decode-r4")
    assert facts["backend"] == "reference"
    weights, first, full = (facts[name] for name in ("weight_bytes", "first_step_bytes", "full_step_bytes"))
    assert weights * 0.8 < first < weights * 1.3
    assert full > first, "the cost does not grow with the number of keys"
    assert facts["arena_bytes"] % 256 == 0


def test_tokenize_prints_ids(path: str, llm: LLM) -> None:
    ids = llm.tokenize("the llama")
    assert call("tokenize", path, "the llama").stdout == " ".join(map(str, ids)) + "\n"
    assert json.loads(call("tokenize", path, "-", "--json", stdin="the llama").stdout) == ids
    pieces = call("tokenize", path, "the llama", "-v").stdout
    assert len(pieces.splitlines()) == len(ids)
    control = llm.tokenize("<|im_end|>", special=True)
    assert json.loads(call("tokenize", path, "<|im_end|>", "--special", "--json").stdout) == control
    assert json.loads(call("tokenize", path, "<|im_end|>", "--json").stdout) != control


def test_web_serves_on_loopback_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def serve(*, host: str, port: int, ready: Any, **_: Any) -> None:
        asked.update(host=host, port=port)
        ready("http://127.0.0.1:9/")

    monkeypatch.setattr(static, "serve", serve)
    done = call("web", "--port", "9")
    assert asked == {"host": "127.0.0.1", "port": 9}
    assert "http://127.0.0.1:9/" in done.stdout


def test_help_imports_no_command_and_lists_all() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(CORE)!r}); from camelid.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith(('camelid.', 'numpy', 'rich', 'wgpu'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(literal_eval(out.splitlines()[-1])) - {"camelid.version"} == {
        "camelid.cli",
        "camelid.cli.main",
    }
    assert all(name in out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(name: str) -> None:
    done = call(name, "-h")
    assert done.exit_code == 0
    assert "Usage: " in done.stdout


def test_version() -> None:
    assert call("--version").stdout == f"camelid {camelid.__version__}\n"


def test_progress_bar_only_on_a_terminal(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from camelid.cli import command

    with command.loading_bar() as progress:
        assert progress is None
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with command.loading_bar() as progress:
        assert progress is not None
        asyncio.run(camelid.aload(path, backend="reference", progress=progress))
