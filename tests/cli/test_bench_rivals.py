"""`camelid bench --compare`: an earlier result and llama.cpp as rivals, and refused comparisons."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.gguf_files import write_tiny_llama
from tests.support.mlx_dirs import FOLDER

from camelid.cli import bench, bench_llama_cpp, bench_mlx_lm
from camelid.cli.bench_cases import Case
from camelid.cli.bench_llama_cpp import FLASH_ATTENTION, LlamaCpp
from camelid.cli.bench_mlx_lm import MlxLm
from camelid.cli.bench_predict import Yardstick
from camelid.cli.bench_runs import Bench, Run
from camelid.cli.main import main
from camelid.errors import BackendError
from camelid_native.cpu import threads as cpu_threads

no_wheel = pytest.mark.skipif(
    not find_spec("llama_cpp"), reason="no llama.cpp wheel: `make rivals` builds and caches it"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=3, hidden=64, head_dim=16, ffn=96, context=1024)
    return str(place)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant yardstick."""
    monkeypatch.setattr(Yardstick, "measure", classmethod(lambda cls, backend: Yardstick(2.0, 3.0)))


def call(*words: object) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, words)])


SMALL = ("-p", 8, "-n", 4, "-r", 1, "--backend", "reference", "--json")


@pytest.fixture(scope="module")
def earlier(path: str) -> dict[str, Any]:
    return json.loads(call(path, *SMALL).stdout)


@contextmanager
def stored(facts: Mapping[str, Any], folder: Path, factor: float = 1.0) -> Iterator[Path]:
    """A result in a file, with every rate times `factor`."""
    rows = [{**each, "tps": each["tps"] * factor} for each in facts["rows"]]
    (place := folder / "earlier.json").write_text(json.dumps({**facts, "rows": rows}))
    yield place


@pytest.mark.parametrize(("factor", "code"), [(1e-6, 0), (1 / 0.91, 0), (1 / 0.89, 1), (1e6, 1)])
def test_slowdown_of_more_than_a_tenth_fails(
    path: str, earlier: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None,
    factor: float, code: int,
) -> None:  # fmt: skip
    rates = {each["kind"]: each["tps"] for each in earlier["rows"]}

    async def run(bench: Bench, case: Case, repetition: int) -> Run:
        return Run(seconds=1 / rates[case.kind], n_tokens=1, ttft_s=0.0)

    monkeypatch.setattr(Bench, "run", run)  # at the earlier rates
    with stored(earlier, tmp_path, factor) as place:
        done = call(path, *SMALL, "--compare", place)
        shown = call(path, *SMALL[:-1], "--compare", place)
    assert done.exit_code == code
    assert json.loads(done.stdout)["rows"], "the figures are missing"
    assert ("error: slower than" in done.stderr) == bool(code)
    assert f"pp8: {1 / factor:.3g} times earlier.json" in shown.stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_id": "0", "model": "x.gguf", "model_bytes": 7}, "has another file: x.gguf, 0, expected "),
        ({"threads": 99}, "has another number of threads: 99"),
        ({"kv_type": "f16"}, "has another KV cache type: f16, expected f32"),
        ({"gpu_layers": 3}, "has another number of layers on the GPU: 3, expected None"),
        ({"rows": []}, "lacks pp8"),
    ],
)
def test_incomparable_results_are_refused(
    path: str, earlier: dict[str, Any], tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    with stored({**earlier, **change}, tmp_path) as place:
        done = call(path, *SMALL, "--compare", place)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "missing"),
    [(("-d", 16), "pp8 @ 16"), (("-b", 2), "pp8 x 2"), (("-p", 9), "pp9"), (("-p", 0, "-n", 5), "tg5")],
    ids=["depth", "batch", "prompt", "answer"],
)
def test_cases_missing_in_a_result_are_refused(
    path: str, earlier: dict[str, Any], tmp_path: Path, words: tuple[object, ...], missing: str
) -> None:
    with stored(earlier, tmp_path) as place:
        done = call(path, *SMALL, *words, "--compare", place)
    assert done.exit_code == 2
    said = f"lacks {missing}; its cases: pp8, tg4. Give the same -p, -n, -d and -b"
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"rows": 1}', '{"rows": [{}]}', "\xff",
     '{"model_id": 1, "threads": 1, "kv_type": 1, "gpu_layers": 1, "rows": [1]}',
     '{"model_id":1,"threads":1,"kv_type":1,"gpu_layers":1,'
     '"rows":[{"kind":"pp","n":8,"depth":0,"batch":1,"tps":0}]}'],
)  # fmt: skip
def test_file_without_a_result_is_refused(path: str, tmp_path: Path, text: str) -> None:
    (place := tmp_path / "x.json").write_text(text, "latin-1")
    done = call(path, *SMALL, "--compare", place)
    assert done.exit_code == 2
    assert "is not a result of camelid bench --json" in " ".join(done.stderr.split())


@pytest.mark.conformance
@no_wheel
def test_llama_cpp_runs_in_turns_on_the_same_file(
    path: str, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    for owner, name in ((Bench, "ours"), (LlamaCpp, "theirs")):
        inner = owner.run

        def run(self: Any, case: Case, repetition: int, inner: Any = inner, name: str = name) -> Any:
            order.append(f"{name} {repetition}")
            return inner(self, case, repetition)

        monkeypatch.setattr(owner, "run", run)
    done = call(path, *SMALL, "-r", 2, "-n", 0, "--compare", "llama.cpp")
    facts = json.loads(done.stdout)
    assert facts["rival"] == "llama.cpp"
    assert "llama-cpp-python" in facts["rival_build"]
    (only,) = facts["rows"]
    assert only["rival"]["tps"] > 0
    assert only["ratio"] == pytest.approx(only["tps"] / only["rival"]["tps"])
    assert order == ["ours 0", "theirs 0", "ours 1", "theirs 1", "ours 2", "theirs 2"]
    shown = call(path, *SMALL[:-1], "-n", 0, "--compare", "llama.cpp").stdout
    assert "beside llama.cpp: llama-cpp-python" in shown
    assert "times that" in shown.splitlines()[-1]


@pytest.mark.conformance
@no_wheel
@pytest.mark.parametrize("kv_type", ["f32", "f16"])
@pytest.mark.parametrize(
    "case", [Case("pp", 40), Case("pp", 700, 20, 2), Case("tg", 5), Case("tg", 5, 9, 3)], ids=str
)
def test_llama_cpp_computes_the_rows_of_the_case(path: str, case: Case, kv_type: str) -> None:
    """llama.cpp's memory holds each stream's last position."""
    lib = import_module("llama_cpp")
    with LlamaCpp(Path(path), context=768, batch=3, threads=1, kv_type=kv_type, clock=perf_counter) as rival:
        for repetition in range(2):
            run = rival.run(case, repetition)
            memory = lib.llama_get_memory(rival._context)
            last = [lib.llama_memory_seq_pos_max(memory, s) for s in range(case.batch)]
            assert last == [case.held + case.n - 1] * case.batch
            assert (run.n_tokens, run.seconds > 0) == (case.n * case.batch, True)


@pytest.mark.conformance
@no_wheel
@pytest.mark.parametrize("flash", list(FLASH_ATTENTION))
@pytest.mark.parametrize("case", [Case("tg", 5, 40), Case("pp", 8, 40, 2)], ids=str)
def test_depth_is_computed_once(path: str, monkeypatch: pytest.MonkeyPatch, case: Case, flash: str) -> None:
    """Rows of each run, and of a run with fewer. The cached prefix begins with the first row."""
    lib = import_module("llama_cpp")
    rows: list[int] = []
    inner = LlamaCpp._decode
    monkeypatch.setattr(LlamaCpp, "_decode", lambda s, asked: (rows.append(len(asked)), inner(s, asked)))
    options: Any = {"context": 768, "batch": 2, "threads": 1, "kv_type": "f16", "flash_attention": flash}
    counts = list[int]()
    with LlamaCpp(Path(path), **options, clock=perf_counter) as rival:
        for repetition, each in enumerate([case, case, case, replace(case, depth=20), case]):
            rival.run(each, repetition)
            counts.append(sum(rows))
            rows.clear()
            memory = lib.llama_get_memory(rival._context)
            assert not any(lib.llama_memory_seq_pos_min(memory, stream) for stream in range(case.batch))
    timed = case.n * case.batch
    held = [40, 0, 0, 20, 40]
    assert counts == [timed + n * case.batch for n in held]


@pytest.mark.conformance
@no_wheel
def test_quantized_values_need_flash_attention(tmp_path: Path) -> None:
    write_tiny_llama(place := tmp_path / "wide.gguf", seed=3, hidden=64, head_dim=32, context=1024)
    options: Any = {"context": 64, "batch": 1, "threads": 1, "kv_type": "q8_0", "clock": perf_counter}
    with LlamaCpp(place, **options, flash_attention="on") as rival:
        assert rival.run(Case("pp", 4), 0).n_tokens == 4
    with pytest.raises(BackendError, match="of type q8_0 with flash attention off; give smaller"):
        LlamaCpp(place, **options, flash_attention="off")


@pytest.mark.parametrize(("quota", "n"), [(None, 6), (0.5, 1), (2.5, 2), (64.0, 6)])
def test_a_rival_has_cpus_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, n: int
) -> None:
    for module in (bench, cpu_threads):
        monkeypatch.setattr(module, "allowed_processors", lambda: [0, 1, 2, 5, 6, 7])
        monkeypatch.setattr(module, "cpu_quota", lambda: quota)
    assert bench.n_threads() == len(cpu_threads.processors()) == n


def test_missing_package_names_its_pip_line(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(bench_llama_cpp, "import_module", missing)
    done = call(path, *SMALL, "--compare", "llama.cpp")
    assert done.exit_code == 1
    assert "pip install llama-cpp-python" in done.stderr


def test_unsupported_cases_of_llama_cpp_are_reported(path: str, tmp_path: Path) -> None:
    done = call(tmp_path, *SMALL, "--compare", "llama.cpp")
    assert done.exit_code == 2
    assert "llama.cpp needs GGUF" in " ".join(done.stderr.split())
    with pytest.raises(BackendError, match="no KV cache of type 'two-tier'"):
        LlamaCpp(Path(path), context=64, batch=1, threads=1, kv_type="two-tier", clock=perf_counter)


@pytest.mark.conformance
@no_wheel
def test_file_that_llama_cpp_cannot_load_is_reported(tmp_path: Path) -> None:
    (place := tmp_path / "bad.gguf").write_bytes(b"GGUF")
    with pytest.raises(BackendError, match=r"llama\.cpp cannot load"):
        LlamaCpp(place, context=64, batch=1, threads=1, kv_type="f32", clock=perf_counter)


no_mlx_lm = pytest.mark.skipif(
    not find_spec("mlx_lm"), reason="no mlx-lm: `.ci/setup goldens` installs it with transformers"
)
MLX_DIRECTORY = FOLDER / "mxfp4"


def test_mlx_lm_needs_its_package_a_directory_and_a_cache_of_16_bits(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = call(path, *SMALL, "--compare", "mlx-lm")
    assert done.exit_code == 2 and "is no directory, but mlx-lm" in " ".join(done.stderr.split())
    done = call(MLX_DIRECTORY, *SMALL, "--compare", "mlx-lm", "--kv-type", "f32")
    assert done.exit_code == 1 and "give --kv-type f16" in done.stderr

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(bench_mlx_lm, "import_module", missing)
    done = call(MLX_DIRECTORY, *SMALL, "--compare", "mlx-lm", "--kv-type", "f16")
    assert done.exit_code == 1 and "pip install mlx-lm" in done.stderr


@no_mlx_lm
def test_mlx_lm_runs_the_same_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts in calls of a few tokens have the logits of one call."""
    case = Case("pp", 8, depth=5, batch=2)
    with MlxLm(MLX_DIRECTORY, kv_type="f16", clock=perf_counter) as rival:
        assert rival.run(case, 0).n_tokens == 16
        monkeypatch.setattr(bench_mlx_lm, "PREFILL_STEP", 3)
        assert rival.run(case, 0).n_tokens == 16
        assert rival.run(Case("tg", 4, depth=5), 0).n_tokens == 4
