"""llama.cpp's Vulkan backend beside Camelid's WebGPU backend: the same adapter and file, in turns.

python -m tests.rivals.vulkan [--shape 135m-q4_0] [--adapter llvmpipe] [--prompt 64] [--tokens 16] [--runs 3]

llama.cpp comes from npm's node-llama-cpp, which the command installs in build/node-llama-cpp once. No two
prompts share a prefix. Both sides count from the request to the token in their own language.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.browser import ROOT
from tests.rivals.wllama import NAMES, Speed, check, prompt_of, report, shape_file

import camelid
from camelid.api.llm import LLM
from camelid.cli.doctor_machine import read_machine

VERSION = "3.22.1"
PACKAGES = (f"node-llama-cpp@{VERSION}", f"@node-llama-cpp/linux-x64-vulkan@{VERSION}")
FOLDER = ROOT / "build" / "node-llama-cpp"


def installed() -> Path:
    """The folder with node-llama-cpp, installed if it is missing (126 MB)."""
    if not (FOLDER / "node_modules" / "node-llama-cpp").is_dir():
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / "package.json").write_text('{"private": true}\n')
        command = ["npm", "install", "--silent", "--ignore-scripts", "--omit=optional", *PACKAGES]
        subprocess.run(command, cwd=FOLDER, check=True)
    return FOLDER


@contextmanager
def open_rival(model: Path, context: int) -> Iterator[subprocess.Popen[str]]:
    """llama.cpp with the model on its first Vulkan device."""
    command = ["node", str(Path(__file__).with_suffix(".mjs")), str(model), str(context)]
    environment = os.environ | {"GGML_VK_VISIBLE_DEVICES": "0"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=installed(), env=environment, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line of JSON. Raises SystemExit if the process has ended."""
    assert process.stdout
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
    raise SystemExit("llama.cpp's process has ended without an answer")


def ask_rival(process: subprocess.Popen[str], prompt: str, tokens: int) -> Speed:
    assert process.stdin
    print(json.dumps({"prompt": prompt, "tokens": tokens}), file=process.stdin, flush=True)
    told = answer(process)
    check({"prompt": told["prompt"], "made": told["made"]}, {"prompt": len(prompt), "made": tokens})
    return Speed(told["prefill"], told["decode"])


def ask_camelid(llm: LLM, prompt: str, tokens: int) -> Speed:
    told = llm.generate(prompt, max_tokens=tokens, temperature=0.0, ignore_eos=True)
    counts = {
        "prompt": told.usage.prompt_tokens,
        "cached": told.usage.cached_tokens,
        "made": len(told.token_ids),
    }
    check(counts, {"prompt": len(prompt), "cached": 0, "made": tokens})
    return Speed(told.usage.prompt_tokens / told.timings.ttft_s, told.timings.decode_tps)


def compare(model: Path, how: Mapping[str, Any]) -> None:
    context = how["prompt"] + how["tokens"] + 16
    with (
        open_rival(model, context) as process,
        camelid.load(
            str(model), backend="vulkan", adapter=how["adapter"], context=context, parallel=1
        ) as llm,
    ):
        print(f"{model.name} · {read_machine().processor}\nCamelid on {llm.capabilities.device}")
        print(f"llama.cpp (node-llama-cpp {VERSION}) on {answer(process)}", flush=True)
        found: list[tuple[Speed, Speed]] = []
        for turn in range(how["runs"] + 1):
            prompt = prompt_of(how["prompt"], turn)
            ours = ask_camelid(llm, prompt, how["tokens"])
            found.append((ours, ask_rival(process, prompt, how["tokens"])))
        report(found[1:], how, "llama.cpp")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    kinds = [f"{short}-{kind}" for short in NAMES for kind in ("q4_0", "q4_k_m", "q8_0")]
    parser.add_argument("--shape", choices=kinds, default="135m-q4_0")
    parser.add_argument("--adapter", default="llvmpipe", help="part of the adapter's name")
    parser.add_argument("--prompt", type=int, default=64, metavar="N")
    parser.add_argument("--tokens", type=int, default=16, metavar="N")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "shapes", help="folder of the model files"
    )
    how = vars(parser.parse_args())
    compare(shape_file(how["shape"], how["folder"]), how)


if __name__ == "__main__":
    main()
