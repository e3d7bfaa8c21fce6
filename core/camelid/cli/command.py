"""Shared parts of all subcommands: options, one-line errors, exit codes and progress bars."""

from __future__ import annotations

import errno
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from camelid.backends.registry import names_with, user_names
from camelid.cli.gpu_flag import gpu_layers_option
from camelid.errors import CamelidError, RequestError
from camelid.loading.options import ACTIVATIONS, COLLECTIVES

F = TypeVar("F", bound=Callable[..., Any])
BACKEND_NAMES = list(user_names())
SIGNAL_EXIT_BASE = 128  # a shell reports death by signal N as 128 + N
DEVICE_FIELDS = (
    "adapter",
    "gpu_layers",
    "tensor_parallel",
    "pipeline_parallel",
    "collective",
    "activations",
)  # load options whose errors are usage errors
AGAIN_S = 0.5  # from a termination signal to a check whether Python has dropped its exception
TERMINATION_SIGNALS = ("SIGTERM", "SIGHUP")  # Windows lacks SIGHUP
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Failure(click.ClickException):
    """An error as one line on stderr, exit code 1."""

    def show(self, file: Any = None) -> None:
        """Writes the error to stderr, on one line."""
        click.echo(f"camelid: error: {' '.join(self.message.split())}", err=True, file=file)


class CamelidCommand(click.Command):
    """A command that reports errors on one line, plus a traceback with -v; Ctrl-C exits with code 130."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the subcommand; turns an exception of Camelid into an exit code or an exception of click."""
        try:
            with termination_signals():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Terminated as termination:
            ctx.exit(SIGNAL_EXIT_BASE + termination.signal)
        except KeyboardInterrupt:
            ctx.exit(SIGNAL_EXIT_BASE + signal.SIGINT)
        except Exception as error:
            if ctx.params.get("verbose"):
                traceback.print_exc(file=sys.stderr)
            if isinstance(error, RequestError) and error.facts.get("field") in DEVICE_FIELDS:
                raise click.UsageError(error.message) from error
            raise Failure(one_line(error)) from error


class Terminated(KeyboardInterrupt):
    """A termination signal from another process; `signal` is its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


@contextmanager
def termination_signals() -> Generator[None]:
    """Raises `Terminated` on SIGTERM and SIGHUP, so that cleanup runs as after Ctrl-C.

    Later signals are ignored: a closing terminal sends several, and a session file must be written whole.
    An exception that Python drops is raised again (`LostCheck`).
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _terminate) for number in _signal_numbers()}
    try:
        yield
    finally:
        _end_check()
        for number, handler in before.items():
            signal.signal(number, handler)


def _signal_numbers() -> list[int]:
    return [getattr(signal, name) for name in TERMINATION_SIGNALS if hasattr(signal, name)]


def _terminate(number: int, _: object) -> None:
    for each in _signal_numbers():
        signal.signal(each, signal.SIG_IGN)
    if hasattr(signal, "setitimer"):  # not on Windows
        LostCheck(number).start()
    raise Terminated(number)


@dataclass(frozen=True, slots=True)
class LostCheck:
    """A handler of SIGALRM, which raises `Terminated` unless an exception is being handled.

    Python drops an exception that a signal raises in some places, such as a weak reference's callback.
    """

    number: int

    def __call__(self, *_: object) -> None:
        if sys.exc_info()[1] is None:
            raise Terminated(self.number)

    def start(self) -> None:
        """Checks every AGAIN_S from now on."""
        signal.signal(signal.SIGALRM, self)
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)


def _end_check() -> None:
    """Ends a check that runs; a timer of another owner stays."""
    if hasattr(signal, "setitimer") and isinstance(signal.getsignal(signal.SIGALRM), LostCheck):
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def one_line(error: Exception) -> str:
    """An error's message. An exception outside `CamelidError`, disk full excepted, is reported as a bug."""
    if isinstance(error, CamelidError):
        return error.message
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the output cannot be written: {error.strerror}"
    return f"{type(error).__name__}: {error}; this is a bug in camelid, -v shows where"


def subcommand(function: Callable[..., None]) -> CamelidCommand:
    """Turns a function into a `CamelidCommand` with the option -v."""
    flag = click.option("-v", "--verbose", is_flag=True, help="Print details, and the traceback of an error.")
    return click.command(cls=CamelidCommand, context_settings=SETTINGS)(flag(function))


def model_argument(function: F) -> F:
    """Adds the argument MODEL, by default cria."""
    return click.argument("model", default="cria")(function)


def activations_option(function: F) -> F:
    """Adds --activations."""
    return click.option(
        "--activations", type=click.Choice(ACTIVATIONS), metavar="TYPE",
        help="Input of matrix products: f32, or q8, rounded to 8 bits (cpu, cuda; webgpu on request).",
    )(function)  # fmt: skip


def devices_options(function: F) -> F:
    """Adds --tensor-parallel, --pipeline-parallel and --collective."""
    function = click.option(
        "--collective", type=click.Choice(COLLECTIVES), metavar="NAME",
        help="Sums over the GPUs of --tensor-parallel: peer (copies, in one order; the default) or nccl "
        "(through CuPy; for long prompts on many GPUs, but other requests may change a result).",
    )(function)  # fmt: skip
    function = click.option(
        "--pipeline-parallel", type=click.IntRange(1), default=1, metavar="N",
        help="Divide the layers among N GPUs (cuda), each with a part of them.",
    )(function)  # fmt: skip
    return click.option(
        "--tensor-parallel", type=click.IntRange(1), default=1, metavar="N",
        help="Divide every layer among N GPUs (cuda). --adapter 0,2 chooses GPUs by number.",
    )(function)  # fmt: skip


def backend_options(function: F) -> F:
    """Adds --backend, --adapter, --threads, -ngl, --activations and `devices_options`."""
    function = activations_option(gpu_layers_option(devices_options(function)))
    function = click.option(
        "-t", "--threads", type=click.IntRange(1), metavar="N",
        help=f"Threads of backend {', '.join(names_with('threads'))}. Default: one per processor.",
    )(function)  # fmt: skip
    function = click.option(
        "--adapter", default="", metavar="NAME",
        help="Select a device by part of its name, or on cuda by its number; or a CPU kernel variant, such "
        "as avx2.",
    )(function)  # fmt: skip
    return click.option(
        "--backend", type=click.Choice(["auto", *BACKEND_NAMES]), default="auto", show_default=True,
        metavar="NAME",
        help=f"Backend: {', '.join(BACKEND_NAMES)}, or auto: a GPU, else the processor, else the reference.",
    )(function)  # fmt: skip


def read_backend(options: dict[str, Any]) -> dict[str, Any]:
    """Pops the values of `backend_options` from a command's options."""
    return {
        "backend": options.pop("backend"),
        "adapter": options.pop("adapter"),
        "threads": options.pop("threads"),
        "gpu_layers": options.pop("gpu_layers"),
        "tensor_parallel": options.pop("tensor_parallel"),
        "pipeline_parallel": options.pop("pipeline_parallel"),
        "collective": options.pop("collective"),
        "activations": options.pop("activations"),
    }


def names_backend(words: dict[str, Any], verbose: bool) -> bool:
    """True if a line should name the device: for -v, --backend auto or -ngl."""
    return verbose or words.get("backend") == "auto" or words.get("gpu_layers") is not None


def say(message: str) -> None:
    """Prints one line to stderr; stdout is for the answer."""
    click.echo(f"camelid: {message}", err=True)


@contextmanager
def loading_bar() -> Generator[Callable[[str, int, int], object] | None]:
    """A progress bar of loading stages on a terminal; None in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda label, done, total: bar.update(task, description=label, completed=done, total=total)


@contextmanager
def case_bar() -> Generator[Callable[[str, int, int], object] | None]:
    """A progress bar of test cases with the current case and the remaining time; None in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description:<24}")
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda label, done, total: bar.update(task, description=label, completed=done, total=total)


@contextmanager
def writing_bar() -> Generator[Callable[[str, int, int], object] | None]:
    """A progress bar of bytes written with the current tensor or file; None in a pipe."""
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
        yield lambda name, done, total: bar.update(task, description=name, completed=done, total=total)
