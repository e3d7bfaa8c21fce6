"""camelid quantize to GGUF: options, refusals, files."""

from __future__ import annotations

import asyncio
import struct
from array import array
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import load_case, write_hf
from tests.support.model.file_runs import load_gguf, reference_logits

from camelid.cli.main import main
from camelid.formats.gguf import open_gguf
from camelid.formats.gguf_writer import TensorOut, infer_kinds, write_gguf
from camelid.formats.imatrix import Sums, write_imatrix
from camelid.loading.model_file import open_model


def call(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_tiny_llama(tmp_path / "m.gguf", seed=2, type="f32", tied=False)
    return tmp_path / "m.gguf"


def types_of(path: Path) -> dict[str, str]:
    return {name: tensor.type for name, tensor in open_gguf(path).tensors.items()}


def bytes_of(path: Path) -> dict[str, bytes]:
    raw = path.read_bytes()
    return {name: raw[t.offset : t.offset + t.n_bytes] for name, t in open_gguf(path).tensors.items()}


def imatrix_of(model: Path, path: Path, *, cols: int | None = None) -> Path:
    tensors = {n: t for n, t in open_gguf(model).tensors.items() if len(t.shape) > 1}
    sums = {
        name: Sums(array("f", [1.0 + i % 7 for i in range(cols or tensor.shape[-1])]), array("f", [2.0]))
        for name, tensor in tensors.items()
    }
    write_imatrix(path, sums, datasets=["x.txt"], chunks=2, chunk_size=64)
    return path


def test_a_mix_is_written_and_runs(model: Path) -> None:
    target = model.with_name("q.gguf")
    done = call("quantize", model, target, "Q4_K_M", "-v")
    assert done.exit_code == 0, done.output
    types = types_of(target)
    assert types["blk.0.ffn_up.weight"] == "q4_k" and types["output.weight"] == "q6_k"
    assert types["blk.0.attn_norm.weight"] == "f32" and "q4_k" in done.stdout
    assert open_gguf(target).metadata["general.file_type"] == 15
    want = reference_logits(load_gguf(model), [[1, 2, 3]])[0]
    got = reference_logits(load_gguf(target), [[1, 2, 3]])[0]
    assert ((got - want) ** 2).sum() < 0.1 * (want**2).sum()


def test_dry_run_prints_what_is_written(model: Path) -> None:
    target = model.with_name("q.gguf")
    dry = call("quantize", model, target, "q3_k_m", "--dry-run")
    assert dry.exit_code == 0 and not target.exists()
    assert call("quantize", model, target, "q3_k_m").exit_code == 0
    shown = {line.split()[0]: line.split()[-1] for line in dry.stdout.splitlines()[:-1]}
    assert shown == types_of(target)
    assert dry.stdout.splitlines()[-1].endswith("nothing was written")
    n_bytes = sum(tensor.n_bytes for tensor in open_gguf(target).tensors.values())
    assert dry.stdout.splitlines()[-1].startswith(f"{n_bytes:,} bytes of weights")


@pytest.mark.parametrize("alias", ["q3_k", "Q4_K", "q5_k"])
def test_an_alias_is_the_mix_of_middle_size(model: Path, alias: str) -> None:
    short, whole = model.with_name("short.gguf"), model.with_name("whole.gguf")
    assert call("quantize", model, short, alias).exit_code == 0
    assert call("quantize", model, whole, f"{alias}_m").exit_code == 0
    assert short.read_bytes() == whole.read_bytes()


def test_importance_changes_the_bytes(model: Path) -> None:
    imatrix = imatrix_of(model, model.with_name("i.gguf"))
    plain, weighted = model.with_name("a.gguf"), model.with_name("b.gguf")
    assert call("quantize", model, plain, "q4_k_m").exit_code == 0
    assert call("quantize", model, weighted, "q4_k_m", "--imatrix", imatrix).exit_code == 0
    assert bytes_of(plain)["blk.1.ffn_down.weight"] != bytes_of(weighted)["blk.1.ffn_down.weight"]
    metadata = open_gguf(weighted).metadata
    assert metadata["quantize.imatrix.file"] == "i.gguf" and metadata["quantize.imatrix.chunks_count"] == 2
    assert call("quantize", model, weighted, "iq2_xs", "--imatrix", imatrix).exit_code == 0
    assert types_of(weighted)["blk.0.ffn_up.weight"] == "iq2_xs"


def test_the_older_form_gives_the_same_bytes(model: Path) -> None:
    imatrix, old = imatrix_of(model, model.with_name("i.gguf")), model.with_name("i.dat")
    tensors = {n: t for n, t in open_gguf(model).tensors.items() if len(t.shape) > 1}
    raw = struct.pack("<i", len(tensors))
    for name, tensor in tensors.items():
        n = tensor.shape[-1]
        raw += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 2, n)
        raw += struct.pack(f"<{n}f", *(1.0 + i % 7 for i in range(n)))
    old.write_bytes(raw)
    files = [model.with_name(f"{i}.gguf") for i in range(2)]
    for path, given in zip(files, (imatrix, old), strict=True):
        assert call("quantize", model, path, "iq3_xxs", "--imatrix", given).exit_code == 0
    assert bytes_of(files[0]) == bytes_of(files[1])


def test_options_choose_types(model: Path) -> None:
    target = model.with_name("q.gguf")
    words = ("--tensor-type", "ffn_(up|gate)=q5_k", "--tensor-type", r"blk\.0\.=Q8_0")
    assert call("quantize", model, target, "q4_k_s", *words, "--output-tensor-type", "f16").exit_code == 0
    types = types_of(target)
    assert types["blk.0.ffn_up.weight"] == "q5_k" and types["blk.0.attn_q.weight"] == "q8_0"
    assert types["blk.1.attn_q.weight"] == "q4_k" and types["output.weight"] == "f16"
    words = ("--pure", "--leave-output-tensor", "--token-embedding-type", "q3_k", "--threads", 1)
    assert call("quantize", model, target, "q2_k", *words).exit_code == 0
    types = types_of(target)
    assert types["output.weight"] == "f32" and types["token_embd.weight"] == "q3_k"
    assert types["blk.0.attn_v.weight"] == "q2_k"


def test_threads_do_not_change_bytes(model: Path) -> None:
    files = [model.with_name(f"{n}.gguf") for n in (1, 3)]
    for path, n in zip(files, (1, 3), strict=True):
        assert call("quantize", model, path, "q5_k_m", "-t", n).exit_code == 0
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_quantized_source_is_refused_unless_allowed(model: Path) -> None:
    once, twice = model.with_name("once.gguf"), model.with_name("twice.gguf")
    assert call("quantize", model, once, "q8_0").exit_code == 0
    done = call("quantize", once, twice, "q4_k_m")
    assert done.exit_code == 1 and "is quantized already" in done.stderr and not twice.exists()
    assert call("quantize", once, twice, "q4_k_m", "--allow-requantize").exit_code == 0


def test_split_files_are_kept(tmp_path: Path, model: Path) -> None:
    split = tmp_path / "s"
    split.mkdir()
    _split(model, split)
    first = split / "m-00001-of-00002.gguf"
    assert call("quantize", first, tmp_path / "q.gguf", "q4_k_m", "--keep-split").exit_code == 0
    names = [f"q-0000{i}-of-00002.gguf" for i in (1, 2)]
    first, second = (bytes_of(tmp_path / name) for name in names)
    assert first and second and not first.keys() & second.keys()
    assert call("quantize", split / "m-00002-of-00002.gguf", tmp_path / "one.gguf", "q4_k_m").exit_code == 0
    assert first | second == bytes_of(tmp_path / "one.gguf")
    asyncio.run(open_model(tmp_path / names[1]))


def _split(model: Path, folder: Path) -> None:
    """Writes a model in two files."""
    header, raw = open_gguf(model), model.read_bytes()
    names = list(header.tensors)
    for i, own in enumerate((names[:5], names[5:])):
        split = {"split.no": i, "split.count": 2, "split.tensors.count": len(names)}
        metadata = {**(header.metadata if i == 0 else {}), **split}
        tensors = [
            TensorOut(t.name, t.type, t.shape, lambda t=t: [raw[t.offset : t.offset + t.n_bytes]])
            for t in (header.tensors[name] for name in own)
        ]
        kinds = infer_kinds(metadata, {k: v for k, v in header.kinds.items() if k in metadata})
        path = folder / f"m-0000{i + 1}-of-00002.gguf"
        write_gguf(path, metadata=metadata, kinds=kinds, tensors=tensors)


def test_a_directory_is_quantized(tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "hf", load_case("qwen3"), dtype="bf16")
    assert call("quantize", folder, tmp_path / "q.gguf", "q4_0").exit_code == 0
    types = types_of(tmp_path / "q.gguf")
    assert types["blk.0.attn_norm.weight"] == "f32" and types["blk.0.attn_q.weight"] == "q4_0"


REFUSED = {
    "no imatrix": (("iq2_xxs",), 1, "iq2_xxs needs an importance matrix (blk.0.attn_q.weight needs it"),
    "pattern": (("q4_k_m", "--tensor-type", "ffn"), 2, "expected PATTERN=TYPE"),
    "pattern's type": (("q4_k_m", "--tensor-type", "ffn=q9"), 2, "expected PATTERN=TYPE"),
    "expression": (("q4_k_m", "--tensor-type", "(=q4_0"), 2, "not a regular expression"),
    "option of GGUF": (("q4", "--format", "mlx", "--keep-split"), 2, "--keep-split is for GGUF files"),
    "imatrix of another model": (
        ("q4_k_m", "--imatrix", "WRONG"),
        1,
        "expected 256; was the importance matrix",
    ),
    "not an imatrix": (("q4_k_m", "--imatrix", "MODEL"), 1, "general.type is"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_name_the_way_out(what: str, model: Path) -> None:
    words, code, said = REFUSED[what]
    wrong = imatrix_of(model, model.with_name("wrong.gguf"), cols=96)
    filled = [str({"WRONG": wrong, "MODEL": model}.get(word, word)) for word in words]
    done = call("quantize", model, model.with_name("q.gguf"), *filled)
    assert done.exit_code == code
    assert said in " ".join(done.stderr.split())
    assert not model.with_name("q.gguf").exists()


def test_types_are_listed() -> None:
    done = call("quantize", "--list")
    assert done.exit_code == 0
    assert "Q4_K_M         4.5 bits a weight" in done.stdout and "IQ1_S" in done.stdout
