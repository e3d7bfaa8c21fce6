"""The row of a setting: its spellings, environment variables, kind, default and help."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from camelid.server.setting_kinds import Kind, Several, Switch

PREFIX, LLAMA_PREFIX = "CAMELID_SERVE_", "LLAMA_ARG_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A setting. `flags` are further spellings; `llama` are variables after LLAMA_ARG_, or whole names.

    A spelling " /--no-x" turns a switch off alone, as in click.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    flags: tuple[str, ...] = ()
    llama: str = ""
    section: str = ""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Its flags; a switch has its opposite after a slash."""
        own = f"--{self.name.replace('_', '-')}"
        if isinstance(self.kind, Switch) and not self.name.startswith("no_"):
            own = f"{own}/--no-{self.name.replace('_', '-')}"
        return self.flags if isinstance(self.kind, Several) else (own, *self.flags)

    @property
    def variables(self) -> tuple[str, ...]:
        """Its environment variables, the first one that is set counts."""
        theirs = (
            name if name.startswith("LLAMA_") else f"{LLAMA_PREFIX}{name}" for name in self.llama.split()
        )
        return (f"{PREFIX}{self.name.upper()}", *theirs)


def row(default: Any, kind: Kind, text: str, *flags: str, llama: str = "") -> Any:
    """A field of `Settings` with its row."""
    about = partial(Row, kind=kind, default=default, help=text, flags=flags, llama=llama)
    return field(default=default, metadata={"row": about})
