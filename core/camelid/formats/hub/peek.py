"""The type of a GGUF file on a hub by its first bytes, before a download of gigabytes."""

from __future__ import annotations

from camelid.errors import shown
from camelid.formats.hub.ids import HubId
from camelid.formats.source import format_error

HEAD = 1 << 16  # bytes; llama.cpp writes general.type among the first keys, before the vocabulary
KEY = b"general.type"
TYPE = len(KEY).to_bytes(8, "little") + KEY + (8).to_bytes(4, "little")  # and the type of a string


def check_adapter(hub_id: HubId, name: str, commit: str) -> None:
    """Raises ModelFormatError for a GGUF file of another type than an adapter's, by its first bytes."""
    found = remote_type(hub_id, name, commit) if name.lower().endswith(".gguf") else None
    if found not in (None, "adapter"):
        message = f"general.type is {shown(found)}, but 'adapter' is expected; name a LoRA adapter's file"
        raise format_error(f"{hub_id.name}/{name}", message, key="general.type")


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
    head = b""
    try:
        with get_session().stream(
            "GET", url, headers=headers, follow_redirects=True, timeout=timeout
        ) as answer:
            if answer.is_success:
                for part in answer.iter_raw(HEAD):  # a hub without ranges sends the whole file
                    head += part
                    if len(head) >= HEAD:
                        break
    except errors.HTTPError:  # pyright: ignore[reportPrivateImportUsage]
        return None
    return type_in(head)


def type_in(head: bytes) -> str | None:
    """The value of general.type in the first bytes of a GGUF file."""
    _, found, rest = head.partition(TYPE)
    size, text = int.from_bytes(rest[:8], "little"), rest[8:]
    return text[:size].decode(errors="replace") if found and len(rest) >= 8 + size else None
