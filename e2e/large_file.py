"""`python -m e2e.large_file [--layers 19]`: a page of one file with a model of 600 MB, opened from disk.

Prints one JSON object: bytes, seconds of the export, of reading the file and until the page is ready, and the
peak memory of this machine's Chromium processes, so that no other may run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.gguf_files import write_tiny_llama

from camelid.loading.model_file import open_model
from camelid.server.one_file import export
from e2e.browser import build_site, open_profile
from e2e.large_model import SHAPE, peak_memory
from e2e.visit import ask, wait_ready

QUERY = "?backend=cpu&max_tokens=8"
READ = "() => globalThis.camelidFiles?.whole.then(() => true)"


async def opened(file: Path, profile: Path) -> dict[str, Any]:
    """Figures of one visit: seconds until the file is read, and until the model is loaded."""
    async with open_profile(profile) as context:
        page = await context.new_page()
        start = time.perf_counter()
        await page.goto(f"{file.as_uri()}{QUERY}", wait_until="commit")
        await page.wait_for_function(READ, timeout=600_000)
        read = time.perf_counter()
        await wait_ready(page)
        ready = time.perf_counter()
        answer = await ask(page, "What is 12 plus 30?")
    return {
        "read_s": round(read - start, 1),
        "load_s": round(ready - read, 1),
        "tokens": len(answer["token_ids"]),
    }


def main() -> None:
    """Command line of `python -m e2e.large_file`."""
    parser = argparse.ArgumentParser(description="Open a page of one file with a large model.")
    parser.add_argument("--layers", type=int, default=19, help="31.5 MB each (default: %(default)s)")
    layers = parser.parse_args().layers
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        site, model, file = (Path(folder, name) for name in ("site", "large.gguf", "chat.html"))
        write_tiny_llama(model, seed=1, n_layers=layers, **SHAPE)
        build_site(site, {})
        start = time.perf_counter()
        n_bytes = export(site, asyncio.run(open_model(str(model))), file)
        figures |= {"model_bytes": model.stat().st_size, "bytes": n_bytes}
        figures |= {"export_s": round(time.perf_counter() - start, 1)}
        with peak_memory(figures):
            figures |= asyncio.run(opened(file, Path(folder, "profile")))
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
