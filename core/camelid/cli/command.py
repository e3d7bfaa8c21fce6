"""What all verbs share: options, errors as one line, exit codes, the bar while loading."""

from __future__ import annotations

import errno
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from camelid.backends.registry import ADAPTERS, BACKENDS
from camelid.cli.gpu_flag import gpu_layers_option
from camelid.errors import CamelidError, RequestError
from camelid.requests.options import LoadWords

F = TypeVar("F", bound=Callable[..., Any])
BACKEND_NAMES = [name for name in (*BACKENDS, *ADAPTERS) if name != "null"]  # null only counts, for tests
SIGNALLED = 128  # plus the signal: an exit code as shells have it
ENDING = ("SIGTERM", "SIGHUP")  # Windows has no SIGHUP
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Failure(click.ClickException):
    """An error as one line on stderr, exit code 1."""

    def show(self, file: Any = None) -> None:
        """Writes the line."""
        click.echo(f"camelid: error: {' '.join(self.message.split())}", err=True, file=file)


class CamelidCommand(click.Command):
    """A command whose errors are one clear line, with the traceback under -v; Ctrl-C exits with 130."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the verb."""
        try:
            with termination_signals():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Terminated as ended:
            ctx.exit(SIGNALLED + ended.signal)
        except KeyboardInterrupt:
            ctx.exit(SIGNALLED + signal.SIGINT)
        except Exception as error:
            if ctx.params.get("verbose"):
                traceback.print_exc(file=sys.stderr)
            if isinstance(error, RequestError) and error.facts.get("field") in ("adapter", "gpu_layers"):
                raise click.UsageError(error.message) from error
            raise Failure(one_line(error)) from error


class Terminated(KeyboardInterrupt):
    """Another program asked this one to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


@contextmanager
def termination_signals() -> Generator[None]:
    """SIGTERM and SIGHUP end a verb as Ctrl-C does, so that nothing half-written stays behind.

    Only the first of them: a terminal that closes sends several, and what is saved meanwhile is to be whole.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _end) for number in _ending()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ending() -> list[int]:
    return [getattr(signal, name) for name in ENDING if hasattr(signal, name)]


def _end(number: int, _: object) -> None:
    for each in _ending():
        signal.signal(each, signal.SIG_IGN)
    raise Terminated(number)


def one_line(error: Exception) -> str:
    """What went wrong. An error that nobody foresaw is called a bug."""
    if isinstance(error, CamelidError):
        return error.message
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the output cannot be written: {error.strerror}"
    return f"{type(error).__name__}: {error}; this is a bug in camelid, -v shows where"


def subcommand(function: Callable[..., None]) -> CamelidCommand:
    """Makes a function the module's command, with -v."""
    flag = click.option("-v", "--verbose", is_flag=True, help="Say more; show a traceback for errors.")
    return click.command(cls=CamelidCommand, context_settings=SETTINGS)(flag(function))


def model_argument(function: F) -> F:
    """MODEL, cria unless given."""
    return click.argument("model", default="cria")(function)


def backend_options(function: F) -> F:
    """--backend, --adapter, --threads and -ngl."""
    function = gpu_layers_option(function)
    function = click.option(
        "-t", "--threads", type=click.IntRange(1), metavar="N",
        help="Threads of backend cpu. Default: as many as this process may use.",
    )(function)  # fmt: skip
    function = click.option(
        "--adapter", default="", metavar="NAME",
        help="The device whose name contains this; of cpu, the variant of its kernels.",
    )(function)  # fmt: skip
    return click.option(
        "--backend", type=click.Choice(["auto", *BACKEND_NAMES]), default="auto", show_default=True,
        metavar="NAME",
        help="cpu, webgpu, vulkan, metal, dx12, reference, or auto: a GPU, else cpu, else reference.",
    )(function)  # fmt: skip


def read_backend(given: dict[str, Any]) -> LoadWords:
    """What `backend_options` say; takes it out of what was given."""
    return {
        "backend": given.pop("backend"),
        "adapter": given.pop("adapter"),
        "threads": given.pop("threads"),
        "gpu_layers": given.pop("gpu_layers"),
    }


def names_backend(words: LoadWords, verbose: bool) -> bool:
    """Whether a line says what runs where: unasked unless the words of the call do."""
    return verbose or words.get("backend") == "auto" or words.get("gpu_layers") is not None


def say(message: str) -> None:
    """One line on stderr, which is not part of the answer."""
    click.echo(f"camelid: {message}", err=True)


@contextmanager
def loading_bar() -> Generator[Callable[[str, int, int], object] | None]:
    """A progress bar on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda what, stage, of: bar.update(task, description=what, completed=stage, total=of)


@contextmanager
def case_bar() -> Generator[Callable[[str, int, int], object] | None]:
    """A bar of cases tried, with what is being tried and the time left; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description:<24}")
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, of: bar.update(task, description=what, completed=done, total=of)


@contextmanager
def writing_bar() -> Generator[Callable[[str, int, int], object] | None]:
    """A bar of bytes written, with the tensor's name; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    text = TextColumn("{task.description:<28}")
    columns = (text, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda name, done, of: bar.update(task, description=name, completed=done, total=of)
