"""A user's own checks, as the load option `learn_checks` names them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from camelid.loading.options import LoadOptions

if TYPE_CHECKING:  # most models learn nothing
    from camelid.learning.retention import Check


async def checks_of(options: LoadOptions) -> tuple[Check, ...]:
    """The checks, read in a thread; none without the option. Raises RequestError as `read_checks`."""
    if options.learn_checks is None:
        return ()
    from camelid.learning.checks import read_checks

    return await asyncio.to_thread(read_checks, options.learn_checks)
