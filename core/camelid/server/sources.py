"""Sources of settings: flags override the environment, which overrides the TOML file of --config."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, cast

from camelid.errors import RequestError, shown
from camelid.server.setting_kinds import Kind, Several, Switch, Text
from camelid.server.setting_rows import LLAMA_PREFIX, PREFIX
from camelid.server.settings import MODEL_ROWS, ROWS, Settings

Values = dict[str, Any]
NOT_IN_FILES = frozenset({"config"})
# Keys of a [models.NAME] table that no flag has.
TABLE_KINDS: Mapping[str, Kind] = {
    "file": Text("FILE"),
    "aliases": Several(Text("NAME")),
    "pinned": Switch(),
}


@dataclass(frozen=True, slots=True)
class Configured:
    """The settings, and the tables of models: values by setting, by model."""

    settings: Settings
    tables: Mapping[str, Values]


def configure(
    flags: Mapping[str, Any], environment: Mapping[str, str], foreign: Mapping[str, str] | None = None
) -> Configured:
    """Settings from the flags that were given, the environment and the file that they name.

    `foreign` are variables of llama-server without a row here: a reason to refuse each, or "" for one without
    effect. Raises RequestError for an unknown name, with the nearest known one, and for a bad value.
    """
    variables = from_environment(environment, foreign or {})
    own = {name: ROWS[name].kind.read(value, f"--{name.replace('_', '-')}") for name, value in flags.items()}
    path: Path | None = own.get("config", variables.get("config"))
    keys, tables = from_file(path) if path else ({}, {})
    return Configured(checked(Settings(**{**keys, **variables, **own})), tables)


def from_environment(environment: Mapping[str, str], foreign: Mapping[str, str]) -> Values:
    """The settings in environment variables; an empty variable counts as unset."""
    names = {variable: row.name for row in ROWS.values() for variable in row.variables}
    for name in environment:
        if name.startswith((PREFIX, LLAMA_PREFIX)) and name not in names:
            _check_foreign(name, foreign, names)
    return {
        row.name: row.kind.read(environment[variable], variable)
        for row in ROWS.values()
        for variable in reversed(row.variables)
        if environment.get(variable)
    }


def _check_foreign(name: str, foreign: Mapping[str, str], names: Iterable[str]) -> None:
    reason = foreign.get(name)
    if reason is None:
        unknown("the environment variable", name, names)
    if reason:
        raise RequestError(f"{name} is not supported: {reason}", field=name)


def from_file(path: Path) -> tuple[Values, dict[str, Values]]:
    """Settings and model tables of a TOML file. Raises RequestError."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(
            f"the file {path} of --config cannot be read: {error.strerror}", field="config"
        ) from error
    except ValueError as error:
        raise RequestError(
            f"the file {path} of --config is not valid TOML: {error}", field="config"
        ) from error
    models = found.pop("models", {})
    if not isinstance(models, dict):
        found["models"], models = models, {}
    known = {name: row.kind for name, row in ROWS.items() if name not in NOT_IN_FILES}
    tables = cast("dict[str, object]", models)
    return _read(found, known, f"{path}"), {
        name: model_table(table, f"[models.{name}] of {path}") for name, table in tables.items()
    }


def model_table(table: object, place: str) -> Values:
    """The values of a [models.NAME] table. Raises RequestError."""
    if not isinstance(table, dict):
        raise RequestError(f"{place} is {shown(table)}, expected a table with the key file", field="models")
    kinds = {**TABLE_KINDS, **{name: row.kind for name, row in MODEL_ROWS.items()}}
    values = _read(cast("dict[str, object]", table), kinds, place)
    if "file" not in values:
        raise RequestError(f"{place} has no 'file', the model's path or hub id", field="models")
    return values


def _read(table: Mapping[str, object], kinds: Mapping[str, Kind], place: str) -> Values:
    for name in table:
        if name not in kinds:
            unknown(f"in {place} the key", name, kinds)
    return {name: kinds[name].read(value, f"{name} in {place}") for name, value in table.items()}


def unknown(what: str, name: str, known: Iterable[str]) -> NoReturn:
    """Raises RequestError with the known name that is nearest."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(names)}"
    raise RequestError(f"{what} {name!r:.100} is unknown{hint:.1500}", field=name[:100])


def checked(settings: Settings) -> Settings:
    """The settings. Raises RequestError for some that exclude or need each other."""
    for has, needs in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        if getattr(settings, has) and not getattr(settings, needs):
            flag, other = (name.replace("_", "-") for name in (has, needs))
            raise RequestError(f"--{flag} needs --{other}", field=needs)
    if settings.chat_template and settings.chat_template_file:
        raise RequestError("give --chat-template or --chat-template-file, not both", field="chat_template")
    if settings.witness_content and not settings.witness:
        raise RequestError("--witness-content needs --witness FILE", field="witness")
    check_open(settings)
    return settings


def check_open(settings: Settings) -> None:
    """Raises RequestError for an address beyond loopback without a key."""
    if not (is_loopback(settings.host) or settings.no_auth or settings.api_keys or settings.api_key_file):
        raise RequestError(
            f"--host {settings.host} is open to other machines, but no key is set; set --api-key or "
            "--api-key-file, or say --no-auth",
            field="host",
        )


def is_loopback(host: str) -> bool:
    """True for an address that only this machine reaches."""
    return host in ("localhost", "::1") or host.startswith("127.")
