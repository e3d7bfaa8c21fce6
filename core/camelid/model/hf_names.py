"""Names of the tensors that a directory publishes, by GGUF name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from camelid.model.hf_settings import HfSettings


def published_names(settings: HfSettings) -> Iterator[tuple[str, str]]:
    """(GGUF name, published name) of every tensor, both without their endings."""
    yield from settings.outer.items()
    for stack, (layer, names, n_layers) in zip(settings.arch.stacks, settings.stacks, strict=True):
        for i in range(n_layers):
            prefix = layer.format(i=i)
            own: Mapping[str, str] = settings.row.first if i == 0 else {}
            yield from ((f"{stack}blk.{i}.{n}", prefix + inner) for n, inner in {**names, **own}.items())


LETTERS = re.compile(r"\{(\w{2,})\}")  # a placeholder that stands for each of its letters
STACKS: Mapping[str, Callable[[HfSettings], int]] = {
    "{e}": lambda settings: settings.n_experts,
    "{h}": lambda settings: settings.n_experts // settings.count("experts_per_group"),
    "{q}": lambda settings: settings.n_heads,
    "{k}": lambda settings: settings.n_kv_heads,
    "{s}": lambda settings: settings.n_streams - 1,
}


def stacked_names(name: str, settings: HfSettings) -> list[str]:
    """The name itself, or one name per expert, head, stream or letter if it has a placeholder."""
    mark, n = stack_of(name, settings)
    labels = mark[1:-1] if LETTERS.fullmatch(mark) else map(str, range(n))
    return [name.replace(mark, label) for label in labels] if mark else [name]


def stack_of(name: str, settings: HfSettings) -> tuple[str, int]:
    """The placeholder of a published name, and the number of its tensors; ("", 1) without one."""
    if found := LETTERS.search(name):
        return found[0], len(found[1])
    return next(((mark, count(settings)) for mark, count in STACKS.items() if mark in name), ("", 1))
