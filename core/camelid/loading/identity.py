"""The identity of a loaded model: the hash of its files, and the facts that decide an answer's bits."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path, PurePath

from camelid.backends.base import Capabilities
from camelid.errors import ModelFormatError
from camelid.loading.deployment import Deployment
from camelid.loading.model_file import FileSource, ModelFile, ModelSource
from camelid.loading.options import LoadOptions
from camelid.loading.start import RunningModel
from camelid.version import __version__

BLOCK = 8 << 20  # bytes of one read of a source that is no local file
ADAPTERS = ("lora", "adapter_rank", "adapter_slots")
# Load options that another machine, or a replay of one request, may choose freely: they change no bit. The
# adapters that act on a request are facts of the request.
LEARN = ("learn_user", "learn_folder", "learn_checks")
FREE = ("record_tape", "threads", "kv_rows", "max_in_flight", "mmproj_auto", *ADAPTERS, *LEARN)
# Further files of a Hugging Face directory that decide prompts and answers.
SETTINGS = ("*.json", "*.jinja", "*.model", "merges.txt", "vocab.txt")


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A loaded model: name and SHA-256 of its file, facts of the build, and the options to load it again.

    Of one file the hash is that of its bytes; of several, that of `sha256sum`'s lines sorted by name.
    """

    file: str
    model_sha256: str
    build: Mapping[str, str]
    options: Mapping[str, object]

    @cached_property
    def build_sha256(self) -> str:
        """SHA-256 of the build's facts, as JSON with sorted keys and without spaces."""
        text = json.dumps(dict(self.build), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def facts(self) -> dict[str, object]:
        """The identity as JSON values."""
        return {
            "file": self.file,
            "model_sha256": self.model_sha256,
            "build_sha256": self.build_sha256,
            "build": dict(self.build),
            "options": dict(self.options),
        }


async def identify(running: RunningModel) -> Identity:
    """The identity of a running model. Reads all its files."""
    capabilities = running.backend.capabilities()
    return Identity(
        file=running.file.name,
        model_sha256=await model_sha256(running.file),
        build=build_facts(capabilities, running.deployment),
        options=load_facts(capabilities, running.deployment, running.options),
    )


def build_facts(capabilities: Capabilities, deployment: Deployment) -> dict[str, str]:
    """Version, backend, device, build of the kernels, promise, and the type of the KV cache."""
    return {
        "version": __version__,
        "backend": capabilities.name,
        "device": capabilities.device,
        "kernels": capabilities.build,
        "activations": capabilities.activations,
        "promise": capabilities.promise,
        "kv_type": deployment.kv_type,
    }


def load_facts(capabilities: Capabilities, deployment: Deployment, options: LoadOptions) -> dict[str, object]:
    """The load options by name, with the chosen backend and sizes in place of defaults."""
    limits = deployment.limits
    chosen = {"context": limits.context, "chunk": limits.chunk, "parallel": limits.parallel}
    if options.gpu_layers is None:  # with a split, the backend's name is that of both parts
        chosen |= {"backend": capabilities.name}
    facts = asdict(options) | chosen
    return {name: value for name, value in facts.items() if name not in FREE}


async def model_sha256(file: ModelFile) -> str:
    """The hash of a model's files, as `Identity` states it."""
    sources = {PurePath(name).name: source for name, source in file.origins.items()}
    if len(sources) == 1 and not file.directory:
        return await _sha256(next(iter(sources.values())))
    if file.directory:
        folder = file.directory.path
        paths = [path for pattern in SETTINGS for path in folder.glob(pattern)]
        sources |= {path.name: FileSource(path, path.stat().st_size) for path in paths}
    lines = [f"{await _sha256(source)}  {name}\n" for name, source in sorted(sources.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


async def _sha256(source: ModelSource) -> str:
    """The hash of a source's bytes; of a local file in a thread, since gigabytes take seconds."""
    if isinstance(source, FileSource):
        return await asyncio.to_thread(_file_sha256, source.path)
    digest = hashlib.sha256()
    for offset in range(0, source.size, BLOCK):
        digest.update(await source.read(offset, min(BLOCK, source.size - offset)))
    return digest.hexdigest()


def _file_sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelFormatError(
            f"{path}: cannot be read to hash it: {error.strerror}; was the model moved?", path=str(path)
        ) from error
