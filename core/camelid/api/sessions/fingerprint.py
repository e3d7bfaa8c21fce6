"""The fingerprint of a model: a hash of its metadata, its tensor list and a sample of its weights."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping

from camelid.loading.model_file import ModelFile
from camelid.plan.weights import INLINE, Part, Weight

SAMPLES = 16  # sampled weights; each may cost a page one request for a chunk
SAMPLE_BYTES = 4096


async def fingerprint(file: ModelFile, n_samples: int = SAMPLES) -> str:
    """SHA-256 of metadata, tensors and sampled bytes, in hex: equal for equal files on any machine.

    Of up to `n_samples` weights, `SAMPLE_BYTES` bytes each are read. Further training changes bytes of nearly
    every weight, so a few samples detect it. Raises ModelFormatError if the files cannot be read.
    """
    header, tensors = file.checkpoint.header, file.checkpoint.tensors
    digest = hashlib.sha256(json.dumps([header.metadata, header.kinds, header.file_size]).encode())
    digest.update(json.dumps([_facts(weight) for weight in tensors.values()]).encode())
    for part in _samples(tensors, n_samples):
        digest.update(await _read(file, part))
    return digest.hexdigest()


def _facts(weight: Weight) -> list[object]:
    ranges = [(part.offset, part.n_bytes) for part in weight.parts]
    return [weight.name, weight.type, weight.shape, ranges]


def _samples(tensors: Mapping[str, Weight], n_samples: int) -> Iterator[Part]:
    """The middle bytes of up to `n_samples` weights, spread over the model."""
    weights = [weight for weight in tensors.values() if weight.parts]
    for i in range(min(n_samples, len(weights))):
        part = weights[i * len(weights) // min(n_samples, len(weights))].parts[0]
        n_bytes = min(part.n_bytes, SAMPLE_BYTES)
        yield Part(part.source, part.offset + (part.n_bytes - n_bytes) // 2, n_bytes, part.data)


async def _read(file: ModelFile, part: Part) -> bytes:
    if part.source == INLINE:
        return base64.b64decode(part.data)
    return await file.origins[part.source].read(part.offset, part.n_bytes)
