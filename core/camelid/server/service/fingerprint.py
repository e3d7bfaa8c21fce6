"""The fingerprint of a service: readable names, and a hash of all that decides an answer."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Mapping

from camelid.api.sessions.fingerprint import fingerprint
from camelid.engine.adapters import RequestAdapter
from camelid.errors import ModelFormatError
from camelid.loading.identity import build_facts
from camelid.loading.model_file import ModelFile
from camelid.loading.start import RunningModel
from camelid.version import __version__

N_SAMPLES = 256  # weights, of which 4 KiB each are read: 1 MiB
DIGITS = 12
MOST_NAMES = 200  # characters


def model_mark(file: ModelFile) -> str:
    """A hash of a model's header, tensor list, size and sampled weights. Reads up to 1 MiB of the file.

    A file that cannot be read any more, since it was removed, has a mark that no other file has.
    """
    try:
        return asyncio.run(fingerprint(file, N_SAMPLES))
    except ModelFormatError:
        return secrets.token_hex()


def named_fingerprint(name: str, running: RunningModel, mark: str, settings: Mapping[str, object]) -> str:
    """The fingerprint of a running model under a name: b<version>-<backend>-<name>-<promise>-<hash>.

    The hash covers the model's mark, the facts of the build, such as kernels and KV cache type, the context
    length, and the settings of the service.
    """
    backend = running.backend.capabilities()
    facts = [mark, build_facts(backend, running.deployment), running.engine.context, settings]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
    promise = backend.promise or "none"
    return f"b{__version__}-{backend.name}-{name}-{promise}-{digest[:DIGITS]}".replace(" ", "_")


def adapter_mark(adapter: RequestAdapter) -> str:
    """The names of a request's adapters, and a hash of their terms and scales."""
    names = "+".join(part.name for part in adapter.parts)
    safe = "".join(c if c.isalnum() or c in "-_.+" else "_" for c in names[:MOST_NAMES])
    return f"{safe}-{adapter.key.hex()[:DIGITS]}"
