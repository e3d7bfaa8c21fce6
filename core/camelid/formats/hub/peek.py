"""The type of a GGUF file on a hub by its first bytes, before a download of gigabytes."""

from __future__ import annotations

from camelid.errors import UnsupportedModelError, shown
from camelid.formats.hub.ids import HubId

HEAD = 1 << 16  # bytes; llama.cpp writes general.type among the first keys, before the vocabulary
TYPE = b"general.type" + (8).to_bytes(4, "little")  # a key and the type of its value, a string


def check_adapter(hub_id: HubId, name: str, commit: str) -> None:
    """Raises UnsupportedModelError for a GGUF file of another type than an adapter's, by its first bytes."""
    found = remote_type(hub_id, name, commit) if name.lower().endswith(".gguf") else None
    if found not in (None, "adapter"):
        text = f"{name}: general.type is {shown(found)}, but 'adapter' is expected; name a LoRA adapter's file"
        raise UnsupportedModelError(f"{hub_id}: {text}", kind="format", name=hub_id.name)


def remote_type(hub_id: HubId, name: str, commit: str) -> str | None:
    """The general.type of a GGUF file of a commit; None if its first bytes or the hub do not give it.

    The download then shows what is wrong with the file or the hub.
    """
    from huggingface_hub import errors, hf_hub_url
    from huggingface_hub.utils import (
        build_hf_headers,  # pyright: ignore[reportUnknownVariableType]
        get_session,
    )

    headers = {**build_hf_headers(), "Range": f"bytes=0-{HEAD - 1}"}
    url = hf_hub_url(hub_id.name, name, revision=commit)
    head = b""
    try:
        with get_session().stream("GET", url, headers=headers, follow_redirects=True) as answer:
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
    size = int.from_bytes(rest[:8], "little")
    text = rest[8 : 8 + size]
    return text.decode(errors="replace") if found and len(text) == size else None
