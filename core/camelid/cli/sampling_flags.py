"""Sampling flags under llama.cpp's names; each sets one request option."""

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
RANDOM_SEED = -1  # llama.cpp's value

# Flag names, request option, type, help.
FLAGS: tuple[tuple[tuple[str, ...], str, type, str], ...] = (
    (("--temp", "--temperature"), "temperature", float,
     "Sampling temperature; 0 is greedy. Default: the model's, else 0.8."),
    (("--top-k",), "top_k", int, "Keep the N most likely tokens. 0 is off; default 40."),
    (("--top-p",), "top_p", float,
     "Keep the most likely tokens up to cumulative probability N. 1 is off; default 0.95."),
    (("--min-p",), "min_p", float,
     "Keep tokens at least N times as likely as the best. 0 is off; default 0.05."),
    (("--typical", "--typical-p"), "typical_p", float,
     "Locally typical sampling up to cumulative probability N. 1 is off."),
    (("--top-nsigma", "--top-n-sigma"), "top_n_sigma", float,
     "Keep logits within N standard deviations of the maximum."),
    (("--repeat-penalty",), "repeat_penalty", float, "Divide the logits of recent tokens by N. 1 is off."),
    (("--repeat-last-n",), "repeat_last_n", int,
     "Number of recent tokens for the penalties; default 64, -1 is all."),
    (("--presence-penalty",), "presence_penalty", float,
     "Subtract N from the logits of recent tokens. 0 is off."),
    (("--frequency-penalty",), "frequency_penalty", float,
     "Subtract N per occurrence of a recent token. 0 is off."),
    (("--dry-multiplier",), "dry_multiplier", float,
     "DRY penalty of tokens that extend a repetition. 0 is off."),
    (("--dry-base",), "dry_base", float,
     "DRY base: the penalty is multiplier * base ** excess length; default 1.75."),
    (("--dry-allowed-length",), "dry_allowed_length", int,
     "Longest repetition without a DRY penalty; default 2."),
    (("--dry-penalty-last-n",), "dry_penalty_last_n", int,
     "Number of recent tokens for DRY; default 64, -1 is all."),
    (("--xtc-probability",), "xtc_probability", float,
     "Probability of XTC, which removes the most likely tokens. 0 is off."),
    (("--xtc-threshold",), "xtc_threshold", float,
     "XTC removes tokens above probability N but the least likely; default 0.1."),
    (("--dynatemp-range",), "dynatemp_range", float,
     "Vary the temperature by up to N with the entropy. 0 is off."),
    (("--dynatemp-exp",), "dynatemp_exponent", float, "Exponent of the normalized entropy; default 1."),
    (("--mirostat",), "mirostat", int,
     "Mirostat version, 1 or 2; replaces all samplers but temperature. 0 is off."),
    (("--mirostat-lr",), "mirostat_eta", float, "Mirostat learning rate (eta); default 0.1."),
    (("--mirostat-ent",), "mirostat_tau", float, "Mirostat target entropy (tau) in bits; default 5."),
    (("--samplers",), "order", str, "Sampler order, separated by ;, or temperature-first."),
)  # fmt: skip


def checked(_: click.Context, parameter: click.Parameter, value: object) -> object:
    """The checked value of an option; a usage error for a bad one, before the model is loaded."""
    name = str(parameter.name)
    if value is None:
        return None
    try:
        return CHECKS[name].read(name, value)
    except RequestError as error:
        raise click.BadParameter(error.message) from error


def read_seed(context: click.Context, parameter: click.Parameter, value: int | None) -> object:
    """The seed; None for -1, which draws one."""
    return checked(context, parameter, None if value == RANDOM_SEED else value)


def read_breakers(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> object:
    """DRY's sequence breakers; `none` removes the default ones, as in llama.cpp."""
    texts = [unescaped(text) for text in values if text != "none"]
    return checked(context, parameter, texts if values else None)


def unescaped(text: str) -> str:
    """The text with \\n, \\t, \\" and \\\\ replaced by their characters."""
    return re.sub(r'\\[nt"\\]', lambda match: ESCAPES[match[0]], text)


def read_biases(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> object:
    return checked(context, parameter, [bias(text) for text in values] or None)


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
                 help="Text that ends DRY's repetitions, or none. Repeatable. Default: \\n : \" *"),
    click.option("-l", "--logit-bias", multiple=True, metavar="ID+N", callback=read_biases,
                 help="Add N to the logit of token ID; ID-N subtracts, ID-inf bans it. Repeatable."),
    click.option("-s", "--seed", type=int, metavar="N", callback=read_seed,
                 help="Random seed. Default: -1, a random one, which -v prints."),
)  # fmt: skip


def sampling_options(command: F) -> F:
    """Adds the sampling flags to a command."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(OPTIONS), command)


def read_sampling(flags: dict[str, Any]) -> SamplingOptions:
    """Pops the sampling flags from a command's options and returns the ones that are set."""
    values = {name: flags.pop(name) for name in flags.keys() & CHECKS.keys()}
    return cast(SamplingOptions, {name: value for name, value in values.items() if value is not None})
