"""The adapters of a request: by their numbers in the field `lora`, or by the name of its model."""

from __future__ import annotations

from typing import Any

from camelid.loading.adapter_pool import AdapterPool
from camelid.server.http.errors import ApiError


def with_selection(options: dict[str, Any], pool: AdapterPool, *, model: str, adapter: str) -> dict[str, Any]:
    """The options with the adapters of the option `lora` by name, or with the adapter that is the model.

    Raises RequestError for an unknown number, and ApiError 400 for both.
    """
    scales = options.pop("lora", None)
    if scales is None:
        return {**options, "adapter": adapter} if adapter else options
    if adapter:
        raise ApiError(
            400, f"the model {adapter!r} is an adapter, and lora names adapters; name the model {model!r} "
            "instead, or leave lora out", param="lora",
        )  # fmt: skip
    return {**options, "adapter": pool.names((each["id"], each["scale"]) for each in scales)}
