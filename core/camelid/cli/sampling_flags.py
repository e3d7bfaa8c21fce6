"""Flags that say how an answer is drawn, by llama.cpp's names; each becomes an option of a request."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Any, TypeVar, cast

import click

from camelid.errors import RequestError
from camelid.sampling.options import SamplingOptions
from camelid.sampling.params import CHECKS

F = TypeVar("F", bound=Callable[..., Any])
ESCAPES = {r"\n": "\n", r"\t": "\t", r"\"": '"', r"\\": "\\"}
RANDOM_SEED = -1  # as llama.cpp has it

# Names of the flag, option, type, help.
FLAGS: tuple[tuple[tuple[str, ...], str, type, str], ...] = (
    (("--temp", "--temperature"), "temperature", float, "0 is greedy. Default: the model's, else 0.8."),
    (("--top-k",), "top_k", int, "Draw from the N likeliest tokens. 0 is all; default 40."),
    (("--top-p",), "top_p", float, "Draw from the likeliest up to this probability. 1 is off; default 0.95."),
    (("--min-p",), "min_p", float, "Draw from those N times as likely as the first. 0 is off; default 0.05."),
    (("--typical", "--typical-p"), "typical_p", float, "Draw from typical tokens up to this probability."),
    (("--top-nsigma", "--top-n-sigma"), "top_n_sigma", float,
     "Draw from logits within N standard deviations of the greatest."),
    (("--repeat-penalty",), "repeat_penalty", float, "Divide the logits of recent tokens. 1 is off."),
    (("--repeat-last-n",), "repeat_last_n", int, "So many tokens are recent; default 64, -1 is all."),
    (("--presence-penalty",), "presence_penalty", float, "Lower the logits of recent tokens."),
    (("--frequency-penalty",), "frequency_penalty", float, "The same, for each time that one came."),
    (("--dry-multiplier",), "dry_multiplier", float, "Lower what prolongs a repetition (DRY). 0 is off."),
    (("--dry-base",), "dry_base", float, "By multiplier * base ** excess length; default 1.75."),
    (("--dry-allowed-length",), "dry_allowed_length", int, "Repetitions up to this are free; default 2."),
    (("--dry-penalty-last-n",), "dry_penalty_last_n", int, "DRY looks back so far; default 64, -1 is all."),
    (("--xtc-probability",), "xtc_probability", float, "How often XTC leaves out the likeliest tokens."),
    (("--xtc-threshold",), "xtc_threshold", float, "Those above it, but the last; default 0.1."),
    (("--dynatemp-range",), "dynatemp_range", float, "Move the temperature by up to N with the entropy."),
    (("--dynatemp-exp",), "dynatemp_exponent", float, "Power of the entropy's share; default 1."),
    (("--mirostat",), "mirostat", int, "1 or 2: keep surprise steady; replaces all but temperature."),
    (("--mirostat-lr",), "mirostat_eta", float, "Mirostat's learning rate; default 0.1."),
    (("--mirostat-ent",), "mirostat_tau", float, "Mirostat's target, in bits; default 5."),
    (("--samplers",), "order", str, "Samplers in order, with ; between them, or temperature-first."),
)  # fmt: skip


def checked(_: click.Context, parameter: click.Parameter, value: object) -> object:
    """The value as an option keeps it; a usage error before anything is loaded."""
    name = str(parameter.name)
    if value is None:
        return None
    try:
        return CHECKS[name].read(name, value)
    except RequestError as error:
        raise click.BadParameter(error.message) from error


def read_seed(context: click.Context, parameter: click.Parameter, value: int | None) -> object:
    return checked(context, parameter, None if value == RANDOM_SEED else value)


def read_breakers(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> object:
    """`none` takes the default ones away, as in llama.cpp."""
    texts = [unescaped(text) for text in given if text != "none"]
    return checked(context, parameter, texts if given else None)


def unescaped(text: str) -> str:
    return re.sub(r'\\[nt"\\]', lambda match: ESCAPES[match[0]], text)


def read_biases(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> object:
    return checked(context, parameter, [bias(text) for text in given] or None)


def bias(text: str) -> tuple[int, float]:
    """Token id and bias of `15043+1`, `15043-0.5` or `15043-inf`."""
    try:
        token_id, sign, value = re.split("([+-])", text, maxsplit=1)
        return int(token_id), float(value) * (1.0 if sign == "+" else -1.0)
    except ValueError:
        raise click.BadParameter(f"{text!r:.80}, expected ID+BIAS or ID-BIAS, such as 15043-1.5") from None


OPTIONS = (
    *(click.option(*names, option, type=kind, callback=checked, help=text,
                   metavar="ORDER" if kind is str else "N")
      for names, option, kind, text in FLAGS),
    click.option("--dry-sequence-breaker", "dry_sequence_breakers", multiple=True, metavar="TEXT",
                 callback=read_breakers,
                 help="DRY does not look past this; give several, or none. Default: \\n : \" *"),
    click.option("-l", "--logit-bias", multiple=True, metavar="ID+N", callback=read_biases,
                 help="Add N to a token's logit; ID-N subtracts, ID-inf bans it. Give several."),
    click.option("-s", "--seed", type=int, metavar="N", callback=read_seed,
                 help="Drawn unless given, or for -1; -v shows it."),
)  # fmt: skip


def sampling_options(command: F) -> F:
    """Adds the flags to a command."""
    return reduce(lambda made, option: option(made), reversed(OPTIONS), command)


def read_sampling(given: dict[str, Any]) -> SamplingOptions:
    """Takes the options of these flags out of a command's arguments: those that were given."""
    taken = {name: given.pop(name) for name in given.keys() & CHECKS.keys()}
    return cast(SamplingOptions, {name: value for name, value in taken.items() if value is not None})
