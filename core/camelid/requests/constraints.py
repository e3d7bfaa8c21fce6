"""What an answer must follow: the options `grammar`, `json_schema`, `regex`, `choice`, `response_format`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from camelid.errors import RequestError
from camelid.requests.options import ConstraintOptions
from camelid.sampling.drawing import ConstraintFactory
from camelid.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from camelid.requests.grammars import Grammars

CONSTRAINT_OPTIONS = tuple(ConstraintOptions.__annotations__)


class Constraints:
    """The door to the grammars of one model's requests."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def of(self, options: Mapping[str, object]) -> ConstraintFactory | None:
        """What a request with these options must follow; None if they ask for nothing.

        Raises RequestError for more than one of them, and for a grammar that cannot be followed.
        """
        asked = {name: options[name] for name in CONSTRAINT_OPTIONS if options.get(name) is not None}
        if len(asked) > 1:
            names = ", ".join(asked)
            raise RequestError(f"{names} are given, expected one of them at most", field=next(iter(asked)))
        for name, value in asked.items():
            return self._grammars.guide(name, value)
        return None

    @cached_property
    def _grammars(self) -> Grammars:
        # At the first guided request: half of the text layer's code, which most pages never run.
        from camelid.requests.grammars import Grammars

        return Grammars(self._tokenizer)
