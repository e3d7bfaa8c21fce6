"""Time and memory of a file of 1.2 GB on the reference: `python -m tests.perf.big_file [q8_0] [q4_k]`.

Writes a random llama of hidden size 2048 with 128 k tokens, runs `camelid info` on it, and has a child
process compute the logits after four tokens twice while it measures the child's memory. The file is deleted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

import gguf
import numpy as np
from tests.golden.quant_oracle import oracle_type, random_blocks
from tests.support.gguf_files import byte_alphabet

from camelid.formats.quants import QUANTS

HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, CONTEXT = 2048, 32, 8, 8192, 1 << 17, 4096
LAYERS = {"q8_0": 10, "q4_k": 27}  # 1.2 GB each
LAYER = {
    "attn_q": (HIDDEN, HIDDEN),
    "attn_k": (HIDDEN // HEADS * KV_HEADS, HIDDEN),
    "attn_v": (HIDDEN // HEADS * KV_HEADS, HIDDEN),
    "attn_output": (HIDDEN, HIDDEN),
    "ffn_gate": (FFN, HIDDEN),
    "ffn_up": (FFN, HIDDEN),
    "ffn_down": (HIDDEN, FFN),
}
# The measured process; it prints one line of JSON.
PASSES = """
import json, sys, time
from camelid import load
import numpy as np
start = time.perf_counter()
llm = load(sys.argv[1], backend="reference")
times = [time.perf_counter()]
for _ in range(2):
    logits = np.asarray(llm.logits([1, 131071, 70000, 5]))
    times.append(time.perf_counter())
loaded, first, second = (b - a for a, b in zip([start, *times], times))
print(json.dumps({"load s": loaded, "first pass s": first, "second pass s": second,
                  "finite": bool(np.isfinite(logits).all()), "shape": logits.shape}))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for type_ in sys.argv[1:] or LAYERS:
            path = Path(folder) / f"{type_}.gguf"
            write(path, type_)
            print(json.dumps({"type": type_, "file MB": path.stat().st_size / 1e6, **measured(path)}))
            path.unlink()


def measured(path: Path) -> dict[str, object]:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "camelid", "info", path], check=True, stdout=subprocess.DEVNULL)
    info = time.perf_counter() - start
    found, anonymous, most = watch([sys.executable, "-c", PASSES, str(path)])
    return {"info s": info, **json.loads(found), "anonymous MB": anonymous / 1e6, "VmHWM MB": most / 1e6}


def watch(command: list[str]) -> tuple[str, int, int]:
    """A process's output, its peak anonymous bytes and its peak resident bytes, mapped files included."""
    anonymous = most = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        while child.poll() is None:
            status = dict(status_of(child.pid))
            anonymous = max(anonymous, status.get("RssAnon", 0))
            most = max(most, status.get("VmHWM", 0))
            time.sleep(0.005)
        found = child.stdout.read()
    if child.returncode:
        raise SystemExit(f"{command[0]} ended with {child.returncode}")
    return found, anonymous, most


def status_of(pid: int) -> Iterator[tuple[str, int]]:
    """(name, bytes) of the lines of /proc/PID/status that are in kB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if value.endswith(" kB"):
            yield name, int(value.split()[0]) * 1024


def write(path: Path, type_: str) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    add_metadata(writer, LAYERS[type_])
    add_tokenizer(writer)
    for seed, (name, shape) in enumerate(shapes(LAYERS[type_])):
        row = QUANTS[type_]
        raw = random_blocks(type_, seed, n=shape[0] * shape[1] // row.block, finite=True)
        writer.add_tensor(name, raw.reshape(shape[0], -1), raw_dtype=oracle_type(type_))
    for name in norms(LAYERS[type_]):
        writer.add_tensor(name, np.ones(HIDDEN, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def shapes(n_layers: int) -> Iterator[tuple[str, tuple[int, int]]]:
    yield from (("token_embd.weight", (VOCAB, HIDDEN)), ("output.weight", (VOCAB, HIDDEN)))
    for i in range(n_layers):
        yield from ((f"blk.{i}.{name}.weight", shape) for name, shape in LAYER.items())


def norms(n_layers: int) -> list[str]:
    return [
        "output_norm.weight",
        *(f"blk.{i}.{kind}_norm.weight" for i in range(n_layers) for kind in ("attn", "ffn")),
    ]


def add_metadata(writer: gguf.GGUFWriter, n_layers: int) -> None:
    writer.add_block_count(n_layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(500000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB)


def add_tokenizer(writer: gguf.GGUFWriter) -> None:
    """All bytes, all pairs of bytes, and triples of bytes up to the vocabulary size."""
    letters = byte_alphabet()
    pairs = [*product(letters, letters)]
    longer = product(("".join(pair) for pair in pairs), letters)
    merges = [*pairs, *islice(longer, VOCAB - len(letters) - len(pairs))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([*letters, *("".join(merge) for merge in merges)])
    writer.add_token_types([gguf.TokenType.NORMAL] * VOCAB)
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_add_bos_token(False)
    writer.add_eos_token_id(VOCAB - 1)


if __name__ == "__main__":
    main()
