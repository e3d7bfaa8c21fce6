"""Links from a request to a replica: the head of its prompt, and the stored response that it names.

Each replica stores the responses that it made. Their ids hold its tag, so that a request that names one finds
its home.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from camelid.ray.heads import Head, fields_of, head_of

TAG_BYTES = 4
TAGGED = re.compile(rf"resp_([0-9a-f]{{{2 * TAG_BYTES}}})_")
STORED = re.compile(r"(?:/v1)?/responses/([^/]+)")


class Affinity(NamedTuple):
    """The head of a prompt, and the tag of the only replica that can answer; "" if any can."""

    head: Head = ()
    home: str = ""


def affinity_of(path: str, body: bytes) -> Affinity:
    """The affinity of a request. A body that is no JSON object has none; a replica refuses it."""
    fields = fields_of(body)
    return Affinity(head_of(fields), home_of(path, fields))


def home_of(path: str, fields: Mapping[str, Any]) -> str:
    """The tag in the response id of a path or of `previous_response_id`; "" without one."""
    in_path = STORED.match(path)
    ids = (in_path[1] if in_path else None, fields.get("previous_response_id"))
    found = (TAGGED.match(id) for id in ids if isinstance(id, str))
    return next((each[1] for each in found if each), "")


def tag_of(replica: str) -> str:
    """The tag of a replica, by Ray's id of it."""
    return blake2b(replica.encode(), digest_size=TAG_BYTES).hexdigest()
