"""From settings to a running server."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from camelid.errors import RequestError
from camelid.server.http.guard import Guard
from camelid.server.http.keys import Key, KeyRing, plain_keys, read_key_file
from camelid.server.http.listen import listen
from camelid.server.logs import configure
from camelid.server.operations import Operations, open_operations
from camelid.server.operations_settings import OperationsSettings, otel_of
from camelid.server.process import Listening, serve
from camelid.server.server import Server
from camelid.server.service.limits import Limits
from camelid.server.service.memory import Memory
from camelid.server.service.models import Models
from camelid.server.service.rows import folder_rows, model_rows
from camelid.server.service.service import Service
from camelid.server.service.slots import ENABLED_TAG, SlotSettings
from camelid.server.settings import Settings
from camelid.server.sources import Configured, is_loopback
from camelid.server.witness import WitnessObserver
from camelid.witness.log import WitnessLog

LOG = logging.getLogger("camelid.server")

Say = Callable[[str], object]


def run(configured: Configured, say: Say) -> None:
    """Serves until a signal."""
    raise_open_files()
    if configured.settings.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"  # huggingface_hub reads it once, when it is imported
    if sys.platform == "win32":
        asyncio.run(start(configured, say))
        return
    import uvloop  # a fifth less time per event than asyncio's own loop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(start(configured, say))


def raise_open_files() -> None:
    """Raises the soft limit on open files to the hard one: the usual 1,024 refuse the next connection."""
    if sys.platform == "win32":
        return
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(ValueError, OSError):  # macOS refuses an unlimited number
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def start(configured: Configured, say: Say) -> None:
    """Serves until a signal, on the running loop."""
    settings = configured.settings
    server = build(configured)
    if settings.no_auth and not server.guard.keys and not is_loopback(settings.host):
        say(f"warning: {settings.host} is open to every machine that reaches it, without a key")
    listening = Listening(
        tls_cert=settings.tls_cert and str(settings.tls_cert),
        tls_key=settings.tls_key and str(settings.tls_key),
        drain_s=settings.drain,
        reload=partial(reload, server),
        ends_process=True,
    )
    with listen(settings.host, settings.port) as listener:
        address = address_of(settings, listener.getsockname()[1])
        await serve(server, listening, [listener], lambda: announce(server, address, say))


def build(configured: Configured) -> Server:
    """The server of settings, with its models not loaded. Raises RequestError."""
    settings = configured.settings
    rows, found = model_rows(configured), folder_rows(settings)
    models = Models(
        {**rows, **{name: row for name, row in found.items() if name not in rows}},
        limits_of(settings),
        memory=Memory(settings.memory),
        fixed=frozenset(rows),
        scan=partial(folder_rows, settings) if settings.models_dir else None,
    )
    hosts = frozenset({"localhost", settings.host.lower(), *map(str.lower, settings.allowed_hosts)})
    guard = Guard(KeyRing(keys_of(settings)), settings.max_body, hosts, frozenset(settings.cors_origins))
    server = Server(models, guard, settings, slots=slots_of(settings), operations=operations_of(settings))
    models.on_load.append(partial(log_idle_slots, settings))
    if settings.witness and settings.learn != "off":
        raise RequestError(
            "--witness and --learn are set, expected one of them: an answer that depends on feedback cannot "
            "be computed again from its record",
            field="learn",
        )
    if settings.witness:
        models.observers = (*models.observers, open_witness(server, settings.witness))
    return server


def slots_of(settings: Settings) -> SlotSettings:
    """The settings of slots and properties."""
    return SlotSettings(
        save_path=settings.slot_save_path,
        shows_slots=settings.slots,
        allows_props=settings.props,
        is_verbose=settings.verbose,
        shifts_context=bool(settings.context_shift),
    )


def log_idle_slots(settings: Settings, service: Service) -> None:
    """Logs under --verbose which slots are idle, as llama-server does, unless it is turned off."""
    service.slots.logs_idle = settings.cache_idle_slots
    if settings.cache_idle_slots:
        LOG.debug("the prefix cache keeps the rows of idle slots %s", ENABLED_TAG)


def operations_of(settings: Settings) -> Operations:
    """Metrics, spans and log lines. Raises BackendError for --otel without its extra."""
    level = logging.DEBUG if settings.verbose else logging.ERROR if settings.log_disable else logging.INFO
    found = OperationsSettings(
        metrics=settings.metrics is not False,
        metrics_names=metrics_names(settings),
        otel=otel_of(settings.otel),
        otel_content=settings.otel_content,
        log_format="json" if settings.log_format == "json" else "text",
        log_prompts=settings.log_prompts,
    )
    return open_operations(found, configure(settings.log_format, level))


def metrics_names(settings: Settings) -> tuple[str, ...]:
    """Further names of metrics: llama-server's flag for metrics adds llama.cpp's names."""
    asked = (*settings.metrics_names, *(("llamacpp",) if settings.metrics else ()))
    return tuple(dict.fromkeys(asked))


def open_witness(server: Server, path: Path) -> WitnessObserver:
    """The observer that writes the witness log. Raises WitnessError for a file that is no log."""
    log = WitnessLog.open(path, {}, with_content=server.settings.witness_content, report=LOG.error)
    observer = WitnessObserver(log)
    server.witness = log
    server.models.on_load.append(observer.loaded)
    return observer


def limits_of(settings: Settings) -> Limits:
    """The bounds of one request."""
    return Limits(
        max_choices=settings.max_choices,
        max_tokens=settings.max_tokens,
        max_prompt_tokens=settings.max_prompt_tokens,
        timeout_s=settings.timeout,
        queue_timeout_s=settings.queue_timeout,
        max_tools=settings.max_tools,
        max_schema=settings.max_schema,
    )


def keys_of(settings: Settings) -> list[Key]:
    """The keys of flags and file. Raises RequestError for a malformed file, and for a name of two keys."""
    flags, file = plain_keys(settings.api_keys), settings.api_key_file
    found = read_key_file(file) if file else []
    twice = {key.name for key in flags} & {key.name for key in found}
    if twice:
        raise RequestError(
            f"the key file names {min(twice)!r}, as a key of --api-key is named; choose another name",
            field="api_key_file",
        )
    return [*flags, *found]


async def reload(server: Server) -> None:
    """Reads keys and models again. Raises RequestError for a malformed key file; the old keys then stay."""
    if server.witness:
        server.witness.reopen()
    guard, keys = server.guard, keys_of(server.settings)
    same = {key.name: key for key in guard.keys if key in keys}
    guard.keys = KeyRing(keys)
    for name in guard.budgets.keys() - same.keys():  # else a changed key had its old budget
        del guard.budgets[name]
    await server.models.refresh()


def address_of(settings: Settings, port: int) -> str:
    """The server's address as a URL."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'https' if settings.tls_cert else 'http'}://{host}:{port}"


def announce(server: Server, address: str, say: Say) -> None:
    """Prints the models, the address, and the backend of each model that is loaded."""
    names = [entry.row.name for entry in server.models]
    for entry in server.models:
        if entry.service:
            running = entry.service.host.running
            row = entry.row.options
            say(f"{entry.row.name}: {running.note}; context {entry.context}, {row.parallel} at once")
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    say(f"serving {shown or 'no model'} at {address}")
