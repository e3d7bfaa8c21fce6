"""`camelid chat` through a pipe: turns, slash commands, and the output on stdout and stderr."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.api.llm import LLM
from camelid.cli.chat_commands import ALIASES, COMMANDS, find
from camelid.cli.chat_settings import NAMES, read_setting
from camelid.cli.main import main
from camelid.requests.options import Options

GREEDY = ("--backend", "reference", "--temp", "0", "-n", "12")
SUM, NAME, CAPITAL = "What is 2 plus 3?", "Who are you?", "What is the capital of France?"


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with camelid.load("cria", backend="reference") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=3, hidden=64, head_dim=16, ffn=96, context=128)
    return str(place)


def chat(*lines: str, model: str = "cria", words: Sequence[str] = GREEDY) -> Result:
    text = "".join(f"{line}\n" for line in lines)
    return CliRunner().invoke(main, ["chat", model, *words], input=text)


def answers(llm: LLM, *said: str, system: str | None = None) -> list[str]:
    """The answers to a conversation, each rendered and computed without a session."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for text in said:
        messages.append({"role": "user", "content": text})
        answer = llm.chat(messages, temperature=0.0, max_tokens=12, cache_prompt=False).text
        messages.append({"role": "assistant", "content": answer})
    return [message["content"] for message in messages if message["role"] == "assistant"]


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_each_line_is_a_turn_of_one_conversation(llm: LLM) -> None:
    done = chat(SUM, "", NAME, SUM)
    assert lines(done.stdout) == answers(llm, SUM, NAME, SUM)
    assert (done.exit_code, done.stderr) == (0, "")


def test_lines_between_quotes_are_one_message(llm: LLM) -> None:
    done = chat('"""What is', '2 plus 3?"""', '"""', SUM, '"""')
    assert lines(done.stdout) == answers(llm, "What is\n2 plus 3?", SUM)
    assert lines(chat('"""', SUM).stdout) == answers(llm, f'"""\n{SUM}'), "an open quote was dropped"


def test_a_text_that_begins_with_a_slash(llm: LLM) -> None:
    done = chat("//help", "/undo")
    assert lines(done.stdout) == answers(llm, "/help")
    assert done.stderr == "undone: /help\n"


def test_reset_keeps_only_the_system_message(llm: LLM) -> None:
    system = "Answer in one word."
    done = chat(SUM, NAME, "/reset", NAME, words=(*GREEDY, "--system", system))
    assert lines(done.stdout) == [
        *answers(llm, SUM, NAME, system=system), *answers(llm, NAME, system=system)
    ]  # fmt: skip
    assert "new conversation" in done.stderr


def test_system_is_shown_set_and_removed(llm: LLM) -> None:
    done = chat("/system", "/system Be brief.", NAME, "/system -", "/reset", NAME)
    assert lines(done.stdout) == [*answers(llm, NAME, system="Be brief."), *answers(llm, NAME)]
    none, some, gone = (
        line for line in lines(done.stderr) if "system message" in line and "new conversation" not in line
    )
    assert none == gone == "no system message"
    assert some == "system message: Be brief."


def test_undo_removes_a_turn(llm: LLM) -> None:
    done = chat(SUM, NAME, "/undo", CAPITAL, "/undo", "/undo", "/undo")
    assert lines(done.stdout) == [*answers(llm, SUM, NAME), answers(llm, SUM, CAPITAL)[-1]]
    told = lines(done.stderr)
    assert told[:3] == [f"undone: {text}" for text in (NAME, CAPITAL, SUM)]
    assert "no turn to undo" in told[3]
    assert done.exit_code == 1


def test_regenerate_answers_again(llm: LLM) -> None:
    done = chat(SUM, NAME, "/regenerate", CAPITAL)
    first, second = answers(llm, SUM, NAME)
    assert lines(done.stdout) == [first, second, second, answers(llm, SUM, NAME, CAPITAL)[-1]]
    wild = (
        "--backend",
        "reference",
        "--temp",
        "5",
        "--top-k",
        "0",
        "--top-p",
        "1",
        "--min-p",
        "0",
        "-n",
        "8",
    )
    drawn = chat(NAME, *["/regenerate"] * 2, words=wild)
    assert len(set(lines(drawn.stdout))) > 1, "two regenerated answers are equal"


def test_a_saved_chat_continues(llm: LLM, tmp_path: Path) -> None:
    """Three turns, save, quit; loaded in a new process, the chat continues without recomputing rows."""
    file = tmp_path / "a b.session"
    before = chat(SUM, NAME, f"/save {file}")
    assert "saved 4 messages" in before.stderr
    after = chat(f"/load {file}", CAPITAL, words=(*GREEDY, "-v"))
    assert lines(before.stdout) + lines(after.stdout) == answers(llm, SUM, NAME, CAPITAL)
    assert "loaded main: 4 messages" in after.stderr
    (known,) = (line for line in lines(after.stderr) if "prompt tokens cached" in line)
    n_known, n_prompt = (int(word) for word in known.split(" · ")[3].split() if word.isdigit())
    assert n_known == int(before.stderr.split("messages, ")[1].split()[0]) > 0
    assert n_known < n_prompt


def test_session_file_is_read_at_the_start_and_written_at_the_end(llm: LLM, tmp_path: Path) -> None:
    words = (*GREEDY, "--session", str(tmp_path / "s.session"))
    first, second = chat(SUM, words=words), chat(NAME, "/nonsense", words=words)
    third = chat(CAPITAL, words=words)
    assert first.stdout + second.stdout + third.stdout == "".join(
        f"{text}\n" for text in answers(llm, SUM, NAME, CAPITAL)
    )
    assert second.exit_code == 1, "the failure did not set the exit code"


def test_a_loaded_file_does_not_mix_with_a_conversation(llm: LLM, tmp_path: Path) -> None:
    """A loaded conversation gets a new name beside one of the same name, and stays out of its file."""
    home, other = tmp_path / "home.session", tmp_path / "other.session"
    words = (*GREEDY, "--session", str(home))
    chat(CAPITAL, f"/save {other}")
    done = chat(SUM, f"/load {other}", "/fork copy", NAME, "/switch", words=words)
    assert lines(done.stdout) == [*answers(llm, SUM), answers(llm, CAPITAL, NAME)[-1]]
    assert "loaded main-2: 2 messages" in done.stderr
    assert lines(done.stderr)[-3:] == ["  main: 2 messages", "  main-2: 2 messages", "* copy: 4 messages"]
    assert lines(chat("/stats", words=words).stderr)[0].startswith("main: 2 messages")
    fresh = (*GREEDY, "--session", str(tmp_path / "fresh.session"))
    chat(f"/load {other}", words=fresh)
    assert lines(chat("/stats", words=fresh).stderr)[0].startswith("main: 2 messages")


def test_a_session_path_without_a_folder_fails_before_the_chat(tiny: str, tmp_path: Path) -> None:
    done = chat("hello", model=tiny, words=("--session", str(tmp_path / "no" / "s")))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "does not exist" in done.stderr


def test_fork_continues_in_a_copy(llm: LLM) -> None:
    done = chat(
        SUM, "/fork other", NAME, "/switch main", CAPITAL, "/switch", "/fork other", "/switch no", "/fork"
    )
    first, name = answers(llm, SUM, NAME)
    assert lines(done.stdout) == [first, name, answers(llm, SUM, CAPITAL)[-1]]
    told = lines(done.stderr)
    assert told[0] == "now in other; /switch main returns"
    assert told[3:5] == ["* main: 4 messages", "  other: 4 messages"]
    assert "conversation 'other' already exists" in told[5]
    assert "unknown conversation 'no'; known: main, other" in told[6]
    assert told[7].startswith("now in ")


def test_settings_apply_to_later_answers(llm: LLM) -> None:
    done = chat(
        NAME, "/set max_tokens 2", "/regenerate", "/set max_tokens default", "/set max_tokens", "/set"
    )
    (whole,) = answers(llm, NAME)
    long, short = lines(done.stdout)
    words: Options = {"temperature": 0.0, "max_tokens": 2}
    assert long.startswith(whole), "the default limit is shorter than -n 12"
    assert short == llm.chat([{"role": "user", "content": NAME}], **words).text
    told = lines(done.stderr)
    assert told[:3] == ["max_tokens = 2", "max_tokens: default", "max_tokens: default"]
    assert told[3] == "temperature = 0.0"
    assert told[4].startswith("at the default: ")
    assert "max_tokens" in told[4]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", "0.5", 0.5),
        ("top_k", "7", 7),
        ("seed", "5", 5),
        ("stop", "end", ("end",)),
        ("stop", '["a", "b"]', ("a", "b")),
        ("ignore_eos", "true", True),
        ("logit_bias", "5-inf 7+1.5", ((5, float("-inf")), (7, 1.5))),
        ("overflow", "shift", "shift"),
        ("regex", "[0-9]+", "[0-9]+"),
        ("regex", "5", "5"),
        ("json_schema", '{"type": "object"}', {"type": "object"}),
        ("speculate", "ngram", "ngram"),
        ("timeout_s", "2.5", 2.5),
        ("stop", "[" * 5000, ("[" * 5000,)),
    ],
)
def test_values_of_set(name: str, text: str, value: object) -> None:
    got = read_setting(name, text)
    assert got == value


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/set temperature hot", "temperature is 'hot', expected"),
        ("/set temperature -1", "temperature is -1, expected 0 (greedy)"),
        ("/set max_tokens 0", "max_tokens is 0, expected an integer above 0"),
        ("/set ignore_eos 1", "ignore_eos is 1, expected true or false"),
        ("/set priority high", "priority is 'high', expected int"),
        ("/set logit_bias x", "expected ID+BIAS"),
        ("/set nonsense 1", "option 'nonsense' is unknown; known: "),
        ("/set nonsense", "option 'nonsense' is unknown; known: "),
        ("/save", "no path; expected"),
        ("/load", "no path; expected"),
        ("/load no.session", "no.session"),
        ("/save /no/such/folder/x", "cannot be written"),
        ("/save .", "cannot be written"),
        ("/save ~nobody-has-this-name/x", "give an absolute path"),
        ("/hepl", "unknown command /hepl; did you mean /help?"),
        ("/\x1b[31m", "unknown command /?[31m"),
        ("/undo", "no turn to undo"),
        ("/regenerate", "no turn to undo"),
        ("hello " * 900, "exceed the context of 128"),
    ],
)
def test_a_failure_is_one_line_and_the_chat_continues(tiny: str, line: str, said: str) -> None:
    done = chat(line, "/stats", model=tiny, words=("--backend", "reference"))
    told = lines(done.stderr)
    assert told[0].startswith("camelid: error: ")
    assert said in told[0]
    assert told[1].startswith("main: 0 messages"), "the failed turn left messages"
    assert done.exit_code == 1
    assert "\x1b" not in done.stderr


def test_an_invalid_session_file_is_refused(tiny: str, tmp_path: Path) -> None:
    (bad := tmp_path / "bad.session").write_bytes(b"x" * 100)
    assert "camelid: error: " in chat(f"/load {bad}", model=tiny, words=("--backend", "reference")).stderr
    done = chat("hello", model=tiny, words=("--backend", "reference", "--session", str(bad)))
    assert done.exit_code == 1
    assert bad.read_bytes() == b"x" * 100, "the file was overwritten"


def test_help_lists_every_command(tiny: str) -> None:
    told = chat("/help", "/?", model=tiny, words=("--backend", "reference")).stderr
    for name, command in COMMANDS.items():
        assert told.count(f"/{name} {command.arguments}".ljust(20) + f" {command.help}\n") == 2
    assert all(find(alias) is COMMANDS[name] for alias, name in ALIASES.items())


@pytest.mark.parametrize("word", ["/quit", "/exit", "/bye"])
def test_quit_ends_the_chat(tiny: str, word: str) -> None:
    done = chat(word, "/stats", model=tiny, words=("--backend", "reference"))
    assert (done.exit_code, done.stderr) == (0, "")


def test_stats_equal_the_engines(llm: LLM) -> None:
    done = chat(SUM, NAME, "/stats")
    last, session, state, rows = lines(done.stderr)
    assert "tokens (stop)" in last
    assert "first token after" in last
    assert session.startswith("main: 4 messages, ")
    assert session.endswith(" tokens, context length 1024")
    assert " cached of " in state
    assert "rows: " in rows
    assert " 0 from the prefix cache" not in rows, "the second turn found the first"
    (shown,) = lines(chat("hi", words=(*GREEDY, "-v", "--seed", "9")).stderr)[1:]
    assert shown.endswith("seed 9")


def test_model_without_a_template_continues_text(tmp_path: Path) -> None:
    write_tiny_llama(place := tmp_path / "t.gguf", seed=3, hidden=64, head_dim=16, ffn=96, template="")
    done = chat("the llama", model=str(place), words=("--backend", "reference", "--temp", "0", "-n", "4"))
    assert "this model has no chat template" in done.stderr
    with camelid.load(place, backend="reference") as bare:
        assert done.stdout.rstrip("\n") == bare.generate("the llama", temperature=0.0, max_tokens=4).text


def test_model_without_a_tokenizer_cannot_chat(tmp_path: Path) -> None:
    place = tmp_path / "bare.gguf"
    write_tiny_llama(place, seed=3, hidden=64, head_dim=16, ffn=96, with_tokenizer=False)
    done = chat("hello", model=str(place), words=("--backend", "reference"))
    assert done.exit_code == 1
    assert "no tokenizer" in done.stderr


def test_kv_types_and_usage_errors(tiny: str) -> None:
    assert chat("hello", model=tiny, words=(*GREEDY, "--kv-type", "f16")).exit_code == 0
    assert chat(model=tiny, words=("--kv-type", "f8")).exit_code == 2
    assert chat(model=tiny, words=("--top-k", "-3")).exit_code == 2


def test_set_accepts_the_options_of_a_request() -> None:
    assert set(NAMES) == set(Options.__annotations__) - {"special"}


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform == "win32", reason="not on this platform: sh")
def test_a_closed_output_ends_the_chat(tiny: str) -> None:
    words = f"'{sys.executable}' -m camelid chat '{tiny}' --backend reference --temp 2 --seed 1 -n 16"
    script = f"(for i in 1 2 3 4 5 6; do echo hello; done) | ({words}; echo code $? >&2) | head -c 3"
    env = {**os.environ, "PYTHONPATH": str(Path(camelid.__file__).parents[1])}
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, timeout=60)
    assert len(done.stdout) == 3
    assert done.stderr == b"code 1\n"
