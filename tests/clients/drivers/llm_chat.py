"""The command line and library `llm`, with this server as a model of its own settings file."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from common import KEY, MAX_TOKENS, MODEL, OPENAI_URL, QUESTION, UNKNOWN, Answer, error_of, report

FOLDER = Path(tempfile.mkdtemp())
os.environ["LLM_USER_PATH"] = str(FOLDER)
ROWS = [
    f"- model_id: {name}\n  model_name: {name}\n  api_base: {OPENAI_URL}\n  supports_schema: true\n"
    for name in (MODEL, UNKNOWN)
]
(FOLDER / "extra-openai-models.yaml").write_text("".join(ROWS))

import llm  # noqa: E402 - it reads the folder's name

OPTIONS = {"temperature": 0, "max_tokens": MAX_TOKENS, "key": KEY}
model = llm.get_model(MODEL)
whole = model.prompt(QUESTION, stream=False, **OPTIONS)
plain = whole.text()
parts = list(model.prompt(QUESTION, stream=True, **OPTIONS))
usage = whole.usage()
report(
    plain=plain,
    streamed="".join(parts),
    n_parts=len(parts),
    usage=[usage.input, usage.output],
    schema=json.loads(model.prompt(QUESTION, stream=False, schema=Answer, **OPTIONS).text()),
    error=error_of(lambda: llm.get_model(UNKNOWN).prompt(QUESTION, stream=False, **OPTIONS).text()),
)
