"""Settings: their sources, their precedence, and every row of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.tools.settings_page import FILE, page

from camelid.errors import RequestError
from camelid.server.service.rows import model_rows
from camelid.server.setting_kinds import OneOf, Several, Switch
from camelid.server.settings import MODEL_ROWS, ROWS, Settings
from camelid.server.sources import Configured, configure


def written(folder: Path, text: str) -> Path:
    file = folder / "serve.toml"
    file.write_text(text)
    return file


def configured(flags: dict[str, Any] | None = None, **environment: str) -> Configured:
    return configure(flags or {}, environment)


# Sources that set `port` -> the value that counts.
@pytest.mark.parametrize(
    ("flag", "own", "theirs", "file", "want"),
    [
        ("1", "2", "3", "4", 1),
        (None, "2", "3", "4", 2),
        (None, None, "3", "4", 3),
        (None, None, None, "4", 4),
        (None, "", None, "4", 4),
        (None, None, None, None, 8080),
    ],
)
def test_flags_override_the_environment_which_overrides_the_file(
    tmp_path: Path, flag: str | None, own: str | None, theirs: str | None, file: str | None, want: int
) -> None:
    variables = {"CAMELID_SERVE_PORT": own, "LLAMA_ARG_PORT": theirs}
    flags: dict[str, Any] = {"config": str(written(tmp_path, f"port = {file}\n" if file else ""))}
    if flag:
        flags["port"] = flag
    found = configured(flags, **{name: value for name, value in variables.items() if value is not None})
    assert found.settings.port == want


def test_a_flag_replaces_a_list_of_the_file_as_a_whole(tmp_path: Path) -> None:
    path = written(tmp_path, 'api_keys = ["a", "b"]\ncors_origins = "http://x, http://y"\n')
    found = configured({"config": str(path), "api_keys": ("c,d", "e")}).settings
    assert found.api_keys == ("c", "d", "e")
    assert found.cors_origins == ("http://x", "http://y")


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("paralel = 2", "did you mean parallel"),
        ("config = 'other.toml'", "'config' is unknown"),
        ("[models.a]\nfile = 'x'\nkeepalive = 3", "did you mean keep_alive"),
        ("[models.a]\nfile = 'x'\nhost = 'y'", "'host' is unknown"),
        ("[models.a]\naliases = ['x']", "has no 'file'"),
        ("port = 70000", "port in"),
        ("port = true", "port in"),
        ("port = 1\nport = 2", "not valid TOML"),
    ],
)
def test_a_bad_file_is_refused_by_the_name_of_its_key(tmp_path: Path, text: str, near: str) -> None:
    with pytest.raises(RequestError, match=near):
        configured({"config": str(written(tmp_path, text))})


def test_a_missing_file_is_named() -> None:
    with pytest.raises(RequestError, match=r"nowhere\.toml of --config cannot be read: No such file"):
        configured({"config": "nowhere.toml"})


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("CAMELID_SERVE_PORTT", "did you mean CAMELID_SERVE_PORT"),
        ("LLAMA_ARG_CTXSIZE", "did you mean LLAMA_ARG_CTX_SIZE"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(RequestError, match=near):
        configured(None, **{name: "1"})


def test_other_variables_are_not_ours() -> None:
    assert configured(None, CAMELID_TRACE="op", LLAMA_CACHE="x", PATH="y").settings == Settings()


# A text that each kind takes; every row must read one from its variable and from its TOML key alike.
SAMPLES = {
    "Whole": "2", "Real": "1", "Span": "2m", "Size": "1GiB", "Switch": "on", "Text": "f16", "File": "/x",
    "Variables": '{"a": 1}',
}  # fmt: skip


def sample(name: str) -> str:
    kind = ROWS[name].kind
    inner = kind.kind if isinstance(kind, Several) else kind
    return inner.words[0] if isinstance(inner, OneOf) else SAMPLES[type(inner).__name__]


def test_every_row_has_a_field_a_help_and_readable_values(tmp_path: Path) -> None:
    needs = {
        "tls_cert": "tls_key", "tls_key": "tls_cert", "witness_content": "witness", "host": "no_auth",
    }  # fmt: skip
    spellings = [each for row in ROWS.values() for flag in row.spellings for each in flag.split("/")]
    variables = [variable for row in ROWS.values() for variable in row.variables]
    assert len(set(spellings)) == len(spellings)
    assert len(set(variables)) == len(variables)
    for name, row in ROWS.items():
        assert row.help.endswith("."), name
        if name == "config":
            continue
        others = {needs[name]: sample(needs[name])} if name in needs else {}
        variables = {ROWS[each].variables[0]: text for each, text in {**others, name: sample(name)}.items()}
        by_variable = configured(None, **variables).settings
        keys = {**others, name: sample(name)}
        file = written(tmp_path, "".join(f"{key} = '{value}'\n" for key, value in keys.items()))
        by_file = configured({"config": str(file)}).settings
        assert getattr(by_file, name) == getattr(by_variable, name)
        if not isinstance(row.kind, Switch) and name not in ("backend", "log_format", "kv_type", "learn"):
            assert getattr(by_file, name) != row.default, name


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("memory", "12G", 12_000_000_000),
        ("memory", "1.5GiB", 3 << 29),
        ("memory", "4096", 4096),
        ("keep_alive", "1h30m", 5400.0),
        ("keep_alive", "-1", -1.0),
        ("keep_alive", "never", -1.0),
        ("keep_alive", "250ms", 0.25),
        ("gpu_layers", "all", -1),
        ("threads", "-1", None),
        ("seed", "-1", None),
        ("slots", "off", False),
        ("chat_template_kwargs", '{"enable_thinking": false}', {"enable_thinking": False}),
    ],
)
def test_texts_are_read_as_their_kind_says(name: str, text: str, value: object) -> None:
    assert getattr(configured({name: text}).settings, name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("memory", "12 apples"), ("memory", "-1"), ("keep_alive", "-2"), ("keep_alive", "5m x"),
        ("timeout", "0"), ("slots", "maybe"), ("parallel", "0"), ("parallel", "1e3"), ("top_p", "nan"),
        ("temperature", "inf"), ("host", " "), ("log_format", "xml"), ("metrics_names", "vllm,tgi"),
        ("chat_template_kwargs", "[1]"), ("backend", "tpu"), ("kv_type", "q5_0"),
    ],
)  # fmt: skip
def test_a_value_out_of_range_names_its_flag(name: str, text: str) -> None:
    with pytest.raises(RequestError, match=f"--{name.replace('_', '-')} is .*, expected"):
        configured({name: text})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"host": "0.0.0.0"}, "open to other machines"),
        ({"host": "::"}, "open to other machines"),
        ({"host": "example.test"}, "open to other machines"),
        ({"tls_cert": "a.pem"}, "--tls-cert needs --tls-key"),
        ({"tls_key": "a.pem"}, "--tls-key needs --tls-cert"),
        ({"witness_content": True}, "needs --witness FILE"),
        ({"chat_template": "{{ x }}", "chat_template_file": "y"}, "not both"),
    ],
)
def test_settings_that_need_each_other(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        configured(flags)


@pytest.mark.parametrize("more", [{"no_auth": True}, {"api_keys": ("x",)}, {"api_key_file": "keys"}])
def test_another_address_with_a_key_or_said_to_be_open(more: dict[str, Any]) -> None:
    assert configured({"host": "0.0.0.0", **more}).settings.host == "0.0.0.0"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_loopback_needs_no_key(host: str) -> None:
    assert configured({"host": host}).settings.host == host


# Flags -> context of a sequence and rows of the KV cache, as llama-server counts them.
@pytest.mark.parametrize(
    ("flags", "context", "kv_rows"),
    [
        ({}, None, None),
        ({"context": "512", "parallel": "4"}, 512, None),
        ({"ctx_size": "1024"}, 1024, None),
        ({"ctx_size": "1024", "parallel": "4"}, 256, None),
        ({"ctx_size": "1024", "parallel": "4", "kv_unified": True}, 1024, 1024),
        ({"ctx_size": "0", "parallel": "4"}, None, None),
        ({"ctx_size": "1024", "context": "512"}, 512, None),
    ],
)
def test_the_context_of_llama_server_is_divided(
    flags: dict[str, Any], context: int | None, kv_rows: int | None
) -> None:
    options = model_rows(configured(flags))["cria"].options
    assert (options.context, options.kv_rows) == (context, kv_rows)


@pytest.mark.parametrize(
    ("flags", "kv_type"),
    [
        ({}, "f32"),
        ({"kv_type": "q4_0"}, "q4_0"),
        ({"cache_type_k": "q8_0", "cache_type_v": "q8_0"}, "q8_0"),
        ({"cache_type_k": "f16"}, "f16"),
    ],
)
def test_the_types_of_keys_and_values(flags: dict[str, Any], kv_type: str) -> None:
    assert model_rows(configured(flags))["cria"].options.kv_type == kv_type


@pytest.mark.parametrize(
    "flags",
    [
        {"cache_type_k": "q8_0"},
        {"cache_type_k": "q8_0", "cache_type_v": "q4_0"},
        {"cache_type_k": "q8_0", "cache_type_v": "q8_0", "kv_type": "q4_0"},
        {"cache_type_k": "iq4_nl", "cache_type_v": "iq4_nl"},
    ],
)
def test_unequal_types_are_refused(flags: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"--kv-type|--cache-type-k"):
        model_rows(configured(flags))


def test_a_model_has_its_own_settings_and_else_the_servers(tmp_path: Path) -> None:
    text = """
        parallel = 2
        keep_alive = "5m"
        temperature = 0.5
        chat_template = "{{ x }}"
        [models.small]
        file = "a.gguf"
        aliases = ["tiny"]
        parallel = 8
        temperature = 0
        keep_alive = -1
        pinned = true
        context_shift = true
        samplers = "top_k;temperature"
        [models.other]
        file = "b.gguf"
    """
    first, small, other = model_rows(
        configured({"config": str(written(tmp_path, text)), "models": ("m=c.gguf",)})
    ).values()
    assert (first.name, small.name, other.name) == ("m", "small", "other")
    assert (first.template, small.template) == ("{{ x }}", None)
    assert (small.aliases, small.is_pinned, small.keep_alive_s) == (("tiny",), True, -1)
    assert (small.options.parallel, small.max_queue) == (8, 64)
    assert small.defaults == {"temperature": 0, "overflow": "shift", "order": "top_k;temperature"}
    assert (other.options.parallel, other.max_queue, other.keep_alive_s) == (2, 16, 300)
    assert other.defaults == {"temperature": 0.5}


def test_rows_of_models_are_no_settings_of_the_address() -> None:
    assert {"context", "keep_alive", "temperature", "chat_template"} <= MODEL_ROWS.keys()
    assert not {"host", "port", "api_keys", "models", "metrics"} & MODEL_ROWS.keys()


def test_the_page_of_the_settings_is_theirs() -> None:
    assert FILE.read_text("utf-8") == page(), "python -m tests.tools.settings_page writes it again"
