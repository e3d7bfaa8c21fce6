"""Errors of the grammar worker."""

from __future__ import annotations

from camelid.errors import RequestError

# Codes of errors: a limit of one grammar, and too little time for any grammar.
TOO_COSTLY, BUSY = "schema_too_costly", "grammar_workers_busy"


def too_costly(what: str) -> RequestError:
    """The error of a grammar beyond a limit of the worker."""
    return RequestError(
        f"the grammar needs {what}; use fewer or shorter alternatives, and smaller repetition counts",
        field="grammar",
        code=TOO_COSTLY,
    )
