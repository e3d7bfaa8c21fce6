"""A trained adapter as bytes of a version."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from camelid.model.adapter import Adapter, LowRank


def adapter_to_bytes(adapter: Adapter) -> bytes:
    """The adapter's terms in float16: what is served is what the gate has judged."""
    out = io.BytesIO()
    arrays: dict[str, Any] = {"invocation": np.array(adapter.invocation, np.int64)}
    for name, term in adapter.terms.items():
        arrays[f"{name}.a"] = np.asarray(term.a, np.float16).reshape(term.rank, term.n_in)
        arrays[f"{name}.b"] = np.asarray(term.b, np.float16).reshape(term.n_out, term.rank)
        arrays[f"{name}.scale"] = np.float64(term.scale)
    np.savez(out, **arrays)
    return out.getvalue()


def adapter_from_bytes(data: bytes, name: str) -> Adapter:
    """The adapter of `adapter_to_bytes`, under a name."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        found = {key: file[key] for key in file.files}
    invocation = tuple(map(int, found.pop("invocation")))
    names = [key.removesuffix(".a") for key in found if key.endswith(".a")]
    terms = {each: _term(found[f"{each}.a"], found[f"{each}.b"], found[f"{each}.scale"]) for each in names}
    return Adapter(name=name, terms=terms, invocation=invocation)


def _term(a: npt.NDArray[Any], b: npt.NDArray[Any], scale: npt.NDArray[Any]) -> LowRank:
    (rank, n_in), n_out = a.shape, len(b)
    return LowRank(rank=rank, n_in=n_in, n_out=n_out, scale=float(scale), a=_floats(a), b=_floats(b))


def _floats(array: npt.NDArray[Any]) -> memoryview[float]:
    return memoryview(array.astype(np.float32).tobytes()).cast("f")
