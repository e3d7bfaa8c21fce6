"""The flags of `camelid serve`: its own, llama-server's, and those refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from camelid.cli.llama_flags import FLAGS, VARIABLES, own_arguments
from camelid.cli.main import main
from camelid.server import setup
from camelid.server.service.rows import model_rows
from camelid.server.settings import ROWS
from camelid.server.sources import Configured


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Configured]]:
    """The settings that `camelid serve` would start with."""
    found: list[Configured] = []
    monkeypatch.setattr(setup, "run", lambda configured, _: found.append(configured))
    yield found


def invoke(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["serve", *arguments], env=environment)


def settings_of(started: list[Configured], *arguments: str, **environment: str) -> Any:
    result = invoke(*arguments, **environment)
    assert result.exit_code == 0, result.output
    return started[-1].settings


# Arguments of llama-server -> the setting that they are.
ALIASES: list[tuple[list[str], str, object]] = [
    (["-m", "x.gguf"], "models", ("x.gguf",)),
    (["--model", "x.gguf"], "models", ("x.gguf",)),
    (["-hf", "o/r:Q8_0"], "models", ("o/r:Q8_0",)),
    (["-c", "512"], "ctx_size", 512),
    (["--ctx-size", "512"], "ctx_size", 512),
    (["-np", "3"], "parallel", 3),
    (["-np", "-1"], "parallel", None),
    (["-ngl", "all"], "gpu_layers", -1),
    (["--n-gpu-layers", "7"], "gpu_layers", 7),
    (["-t", "2"], "threads", 2),
    (["-ub", "64"], "chunk", 64),
    (["--ubatch-size", "64"], "chunk", 64),
    (["-n", "9"], "n_predict", 9),
    (["--predict", "9"], "n_predict", 9),
    (["--n-predict", "9"], "n_predict", 9),
    (["-a", "one,two"], "alias", ("one", "two")),
    (["--no-slots"], "slots", False),
    (["--slots"], "slots", True),
    (["--metrics"], "metrics", True),
    (["--props"], "props", True),
    (["--no-webui"], "page", False),
    (["--no-ui"], "page", False),
    (["--slot-save-path", "/x"], "slot_save_path", Path("/x")),
    (["--api-key", "a,b"], "api_keys", ("a", "b")),
    (["--ssl-cert-file", "c", "--ssl-key-file", "k"], "tls_key", Path("k")),
    (["-to", "60"], "timeout", 60.0),
    (["--temp", "0"], "temperature", 0.0),
    (["--typical", "0.5"], "typical_p", 0.5),
    (["--dynatemp-exp", "2"], "dynatemp_exponent", 2.0),
    (["--mirostat-lr", "0.2"], "mirostat_eta", 0.2),
    (["-s", "-1"], "seed", None),
    (["--no-cache-prompt"], "cache_prompt", False),
    (["--context-shift"], "context_shift", True),
    (["-kvu"], "kv_unified", True),
    (["--no-mmproj"], "mmproj_auto", False),
    (["--no-mmproj-auto"], "mmproj_auto", False),
    (["-ctk", "q8_0", "-ctv", "q8_0"], "cache_type_v", "q8_0"),
    (["--sleep-idle-seconds", "60"], "keep_alive", 60.0),
    (["--offline"], "offline", True),
    (["--no-cache-idle-slots"], "cache_idle_slots", False),
    (["-rea", "off"], "reasoning", "off"),
    (["--reasoning-budget", "0"], "reasoning_budget", "0"),
    (["-v"], "verbose", True),
    (["--log-disable"], "log_disable", True),
]


@pytest.mark.parametrize(("arguments", "name", "value"), ALIASES, ids=lambda each: str(each)[:40])
def test_llama_servers_flags_are_settings(
    started: list[Configured], arguments: list[str], name: str, value: object
) -> None:
    assert getattr(settings_of(started, *arguments), name) == value


def test_a_default_is_no_given_flag(started: list[Configured]) -> None:
    found = settings_of(started, LLAMA_ARG_CTX_SIZE="64", CAMELID_SERVE_SLOTS="0", LLAMA_ARG_PORT="1")
    assert (found.ctx_size, found.slots, found.port) == (64, False, 1)
    assert settings_of(started, "--port", "2", LLAMA_ARG_PORT="1").port == 2


def test_models_are_arguments_and_flags_in_this_order(started: list[Configured]) -> None:
    settings_of(started, "b=x.gguf", "-m", "y.gguf", "--alias", "first,second")
    rows = model_rows(started[-1])
    assert [(row.name, row.file, row.aliases) for row in rows.values()] == [
        ("first", "x.gguf", ("second", "b")),
        ("y", "y.gguf", ()),
    ]


@pytest.mark.parametrize("flag", [flag for flag in FLAGS.values() if flag.is_refused], ids=lambda f: f.name)
def test_a_refused_flag_says_why(started: list[Configured], flag: Any) -> None:
    for arguments in ([flag.name], [flag.name, "value"], [f"{flag.name}=value"]):
        result = invoke(*arguments)
        assert result.exit_code == 2
        assert f"{flag.name} is not supported: {flag.reason}" in " ".join(result.output.split())
    assert started == []


def test_control_vectors_are_refused_in_these_words() -> None:
    words = "--control-vector is not supported: control vectors cannot be applied"
    assert words in invoke("--control-vector", "x.gguf").output


@pytest.mark.parametrize(
    "flag", [flag for flag in FLAGS.values() if not flag.is_refused], ids=lambda f: f.name
)
def test_a_flag_without_effect_is_accepted_with_its_value(started: list[Configured], flag: Any) -> None:
    value = {"=": ["7"], "?": ["auto"], "": []}[flag.n_values]
    result = invoke(flag.name, *value, "--port", "3")
    assert result.exit_code == 0, result.output
    assert started[-1].settings.port == 3
    assert started[-1].settings.models == ()
    assert (f"{flag.name} has no effect here: {flag.reason}" in result.output) == bool(flag.reason)


def test_a_flag_whose_value_is_missing_takes_no_other_flag() -> None:
    assert own_arguments(["-fa", "--port", "1"], print) == ["--port", "1"]
    assert own_arguments(["-fa", "on", "x.gguf"], print) == ["x.gguf"]
    assert own_arguments(["-fa", "x.gguf"], print) == ["x.gguf"]
    assert own_arguments(["--", "--lora"], print) == ["--", "--lora"]


def test_variables_of_llama_server(started: list[Configured]) -> None:
    refused = {name: reason for name, reason in VARIABLES.items() if reason}
    for name, reason in refused.items():
        result = invoke(**{name: "1"})
        assert result.exit_code == 1
        assert f"{name} is not supported: {reason}" in " ".join(result.output.split())
    accepted = {name: "1" for name, reason in VARIABLES.items() if not reason}
    assert settings_of(started, **accepted) == settings_of(started)


def test_no_flag_has_two_meanings() -> None:
    own = {each for row in ROWS.values() for flag in row.spellings for each in flag.split("/")}
    assert not own & FLAGS.keys()
    assert len(own) + len(FLAGS) > 350


def test_an_unknown_flag_has_a_suggestion() -> None:
    result = invoke("--paralel", "3")
    assert result.exit_code == 2
    assert "--parallel" in result.output


@pytest.mark.parametrize("arguments", [["--port", "70000"], ["--parallel", "0"], ["--backend", "tpu"]])
def test_a_bad_value_is_a_usage_error(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert f"Error: {arguments[0]} is " in result.output


def test_the_help_lists_every_setting_by_section() -> None:
    text = invoke("--help").output
    sections = dict.fromkeys(row.section for row in ROWS.values())
    places = [text.index(f"\n{section}:\n") for section in sections]
    assert places == sorted(places)
    for row in ROWS.values():
        assert row.spellings[0].split("/")[0] in text


def test_an_open_address_is_refused_before_anything_is_loaded() -> None:
    result = invoke("--host", "0.0.0.0")
    assert result.exit_code == 1
    assert "set --api-key or --api-key-file, or say --no-auth" in " ".join(result.output.split())
