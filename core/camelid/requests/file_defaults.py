"""Sampling options that a model file recommends."""

from __future__ import annotations

from collections.abc import Mapping

from camelid.formats.gguf import Gguf

# Key under `general.sampling` (llama.cpp's names) -> option and stored type.
FILE_OPTIONS: Mapping[str, tuple[str, type[int | float | str]]] = {
    "sequence": ("order", str),
    "top_k": ("top_k", int),
    "top_p": ("top_p", float),
    "min_p": ("min_p", float),
    "xtc_probability": ("xtc_probability", float),
    "xtc_threshold": ("xtc_threshold", float),
    "temp": ("temperature", float),
    "penalty_last_n": ("repeat_last_n", int),
    "penalty_repeat": ("repeat_penalty", float),
    "mirostat": ("mirostat", int),
    "mirostat_tau": ("mirostat_tau", float),
    "mirostat_eta": ("mirostat_eta", float),
}


def file_defaults(gguf: Gguf) -> dict[str, object]:
    """Sampling options that a GGUF file recommends under `general.sampling`.

    Raises ModelFormatError for a value whose type differs from llama.cpp's.
    """
    options: dict[str, object] = {
        option: gguf.get(f"general.sampling.{key}", kind, default=None)
        for key, (option, kind) in FILE_OPTIONS.items()
    }
    return {option: value for option, value in options.items() if value is not None}
