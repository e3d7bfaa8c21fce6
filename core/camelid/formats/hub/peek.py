"""The type of a GGUF file on a hub by its first bytes, before a download of gigabytes."""

from __future__ import annotations

from camelid.formats.adapters.gguf_lora import TYPE, check_type
from camelid.formats.hub.ids import HubId

HEAD = 1 << 16  # bytes; llama.cpp writes general.type among the first keys, before the vocabulary
KEY = len(TYPE).to_bytes(8, "little") + TYPE.encode() + (8).to_bytes(4, "little")  # of a string


def check_adapter(hub_id: HubId, name: str, commit: str) -> None:
    """Raises ModelFormatError for a GGUF file of another type than an adapter's, by its first bytes."""
    found = remote_type(hub_id, name, commit) if name.lower().endswith(".gguf") else None
    if found is not None:
        check_type(found, f"{hub_id.name}/{name}")


def remote_type(hub_id: HubId, name: str, commit: str) -> str | None:
    """The general.type of a GGUF file of a commit; None if its first bytes or the hub do not give it.

    The download then shows what is wrong with the file or the hub.
    """
    from huggingface_hub import constants, errors, hf_hub_url
    from huggingface_hub.utils import (
        build_hf_headers,  # pyright: ignore[reportUnknownVariableType]
        get_session,
    )

    headers = {**build_hf_headers(), "Range": f"bytes=0-{HEAD - 1}", "Accept-Encoding": "identity"}
    url, timeout = hf_hub_url(hub_id.name, name, revision=commit), constants.HF_HUB_DOWNLOAD_TIMEOUT
    asked = get_session().stream("GET", url, headers=headers, follow_redirects=True, timeout=timeout)
    try:
        with asked as answer:  # a hub without ranges would send the whole file
            return type_in(next(answer.iter_raw(HEAD), b"")) if answer.is_success else None
    except errors.HTTPError:  # pyright: ignore[reportPrivateImportUsage]
        return None


def type_in(head: bytes) -> str | None:
    """The value of general.type in the first bytes of a GGUF file."""
    _, found, rest = head.partition(KEY)
    size, text = int.from_bytes(rest[:8], "little"), rest[8:]
    return text[:size].decode(errors="replace") if found and len(rest) >= 8 + size else None
