"""llama.cpp with adapters that Camelid wrote, beside Camelid's own logits.

`python -m tests.rivals.adapters [NAME ...]` prints a row for each golden adapter: the NMSE of llama.cpp's
logits with the GGUF adapter on the converted model, and of those without it, against the reference on
weights to which the adapter's products were added in float64. These agree with PEFT (tests/loading).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.loading.test_open_adapter import base_of, opened
from tests.rivals.llama_cpp import LEAST_CONTEXT, NOT_COMPARED, READINGS, UNREAD, convert_case, llama_logits
from tests.support.adapter_files import AdapterCase, adapter_cases, load_adapter_case, merged, write_case
from tests.support.hf_models import decoders, nmse
from tests.support.model.file_runs import reference_logits

from camelid.loading.adapters.open import open_adapter
from camelid.loading.adapters.write import save_gguf

LEFT_OUT: Mapping[str, str] = {
    **UNREAD,
    **NOT_COMPARED,
    # With the adapter's other weights alone the two agree to 7e-13.
    "deepseek_v2": "llama.cpp adds no adapter to the attention of deepseek2",
}


def cases() -> list[AdapterCase]:
    """The adapters of models whose logits llama.cpp computes."""
    decode = {case.name for case in decoders()} - LEFT_OUT.keys()
    return [case for case in adapter_cases() if case.base in decode]


def compare(name: str, folder: Path) -> tuple[float, float]:
    """NMSE of llama.cpp with the adapter, and without it, to Camelid's logits with it."""
    case = load_adapter_case(name)
    path, ids = convert_case(case.base, folder, "f32"), case.model.token_ids
    adapter = open_adapter(write_case(folder / "adapter", case), base_of(case, folder))
    save_gguf(adapter, opened(path), folder / "adapter.gguf")
    loaded = merged(opened(path), open_adapter(folder / "adapter.gguf", opened(path)))
    context = max(LEAST_CONTEXT, *map(len, ids))
    ours = reference_logits(loaded, ids, context=min(context, loaded.model.spec.context_length))
    rows = READINGS[case.base].rows if case.base in READINGS else None
    with_it = llama_logits(path, ids, adapter=folder / "adapter.gguf")
    found = [
        nmse([row[:rows] for row in ours], [row[:rows] for row in theirs])
        for theirs in (with_it, llama_logits(path, ids))
    ]
    return found[0], found[1]


def main(names: Sequence[str]) -> None:
    for case in cases():
        if names and case.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            own, without = compare(case.name, Path(folder))
        print(f"{case.name:<20}{own:.1e}  without {without:.1e}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
