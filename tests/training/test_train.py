"""Training on the reference: it learns, keeps and avoids; it is bounded, interruptible and reproducible."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.support.gguf_files import write_tiny_llama
from tests.support.model.file_runs import Loaded, load_gguf

from camelid.backends.base import OpenSpec
from camelid.backends.null.backend import NullBackend
from camelid.backends.reference.backend import ReferenceBackend
from camelid.errors import BackendError, OutOfMemoryError, RequestError
from camelid.training.examples import Example, first_acting_row
from camelid.training.settings import TrainingSettings
from camelid.training.train import Training, TrainingStep, goes_on, train, training_bytes

LEARNT = [Example(prompt=(5, 9, 17, i), answer=(7 * i % 50 + 3, 11, 2 * i + 1)) for i in range(4)]
KEPT = [Example(prompt=(99, 98, i), answer=(i, 3), role="keep") for i in range(4)]
SHORT = TrainingSettings(steps=3, rank=2, alpha=4.0, rate=1e-2)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(path, seed=1, hidden=32, n_heads=2, n_kv_heads=1, head_dim=16, ffn=64, type="f32")
    return load_gguf(path)


def trained(
    loaded: Loaded,
    examples: Sequence[Example],
    settings: TrainingSettings = SHORT,
    report: Callable[[TrainingStep], bool] = goes_on,
    make: Callable[[], Any] = ReferenceBackend,
) -> Training:
    async def run() -> Training:
        backend = make()
        await backend.open(OpenSpec())
        return await train(
            loaded.model, loaded.sources, backend, examples=examples, settings=settings, report=report
        )

    return asyncio.run(run())


def test_it_learns_what_it_is_shown(loaded: Loaded) -> None:
    settings = TrainingSettings(steps=30, rank=4, alpha=8.0, rate=2e-2)
    found = trained(loaded, LEARNT, settings)
    assert found.is_whole and len(found.steps) == 30
    assert found.steps[-1].loss < 0.05 * found.steps[0].loss


def test_kl_keeps_what_it_must(loaded: Loaded) -> None:
    """A stronger pull to the base leaves a smaller divergence from it."""
    weak, strong = (
        trained(loaded, [*LEARNT, *KEPT], TrainingSettings(steps=12, rank=2, rate=2e-2, kl=kl)).steps[-1]
        for kl in (1e-3, 10.0)
    )
    assert strong.losses["kl"] / 10.0 < 0.3 * weak.losses["kl"] / 1e-3
    assert strong.losses["likelihood"] > weak.losses["likelihood"]


def test_a_penalty_keeps_the_weights_near_the_base(loaded: Loaded) -> None:
    free, held = (
        trained(loaded, [*LEARNT, *KEPT], TrainingSettings(steps=12, rank=2, rate=2e-2, kl=0.0, ewc=ewc))
        for ewc in (0.0, 10.0)
    )
    sizes = [sum(b * b for t in found.adapter.terms.values() for b in t.b) for found in (free, held)]
    assert sizes[1] < 0.5 * sizes[0]
    assert held.steps[-1].losses["likelihood"] > free.steps[-1].losses["likelihood"]


def test_it_avoids_what_it_should(loaded: Loaded) -> None:
    liked = trained(loaded, LEARNT[:1], TrainingSettings(steps=20, rank=2, rate=2e-2)).steps[-1]
    assert liked.losses["likelihood"] < 1.0
    one = LEARNT[0]
    both = [one, Example(prompt=one.prompt, answer=one.answer, role="avoid", weight=4.0)]
    torn = trained(loaded, both, TrainingSettings(steps=20, rank=2, rate=2e-2)).steps[-1]
    assert torn.losses["likelihood"] > 1.0


def test_equal_arguments_give_equal_adapters(loaded: Loaded) -> None:
    first, again = (trained(loaded, [*LEARNT, *KEPT]).adapter for _ in range(2))
    other = trained(loaded, LEARNT, TrainingSettings(steps=3, rank=2, alpha=4.0, rate=1e-2, seed=1)).adapter
    assert first.digest == again.digest != other.digest


def test_the_adapter_has_the_terms_of_its_targets(loaded: Loaded) -> None:
    settings = TrainingSettings(steps=1, rank=3, alpha=6.0, targets=("attn_q", "ffn_down"))
    adapter = trained(loaded, LEARNT, settings).adapter
    assert sorted(adapter.terms) == [f"blk.{i}.{name}" for i in (0, 1) for name in ("attn_q", "ffn_down")]
    term = adapter.terms["blk.0.ffn_down"]
    assert (term.rank, term.n_in, term.n_out, term.scale) == (3, 64, 32, 2.0)
    assert (len(term.a), len(term.b)) == (3 * 64, 3 * 32)


def test_the_first_values_are_seeded(loaded: Loaded) -> None:
    """Without a step's rate, B stays 0 and A is uniform within 1 / sqrt(n_in)."""
    term = trained(loaded, LEARNT, TrainingSettings(steps=1, rate=0.0)).adapter.terms["blk.0.attn_q"]
    assert not any(term.b)
    assert 0.9 < max(map(abs, term.a)) * 32**0.5 <= 1.0


def test_a_report_stops_it_after_any_step(loaded: Loaded) -> None:
    stopped = trained(loaded, LEARNT, report=lambda step: step.step == 1)
    assert len(stopped.steps) == 2 and not stopped.is_whole
    whole = trained(loaded, LEARNT)
    assert stopped.steps[1].losses == whole.steps[1].losses
    assert stopped.adapter.digest != whole.adapter.digest


def test_time_stops_it_before_a_step(loaded: Loaded) -> None:
    found = trained(loaded, LEARNT, TrainingSettings(steps=5, seconds=0.0))
    assert found.steps == () and not found.is_whole
    assert not any(found.adapter.terms["blk.0.attn_q"].b)


def test_memory_chooses_what_is_kept_and_refuses(loaded: Loaded) -> None:
    sizes = {
        keeps: training_bytes(loaded.model, LEARNT, TrainingSettings(keeps=keeps, rows=256))
        for keeps in ("layers", "products", "")
    }
    assert sizes["layers"] < sizes["products"] == sizes[""]
    tight = TrainingSettings(rows=256, most_bytes=sizes["layers"])
    assert training_bytes(loaded.model, LEARNT, tight) == sizes["layers"]
    with pytest.raises(OutOfMemoryError, match="fewer rows"):
        training_bytes(loaded.model, LEARNT, TrainingSettings(rows=256, most_bytes=sizes["layers"] - 1))


def test_many_runs_are_one_step(loaded: Loaded) -> None:
    """Few rows a run change no gradient beyond rounding."""
    one, many = (
        trained(loaded, [*LEARNT, *KEPT], TrainingSettings(steps=2, rank=2, rows=rows)).steps
        for rows in (512, 6)
    )
    assert one[1].gradient == pytest.approx(many[1].gradient, rel=1e-4)
    assert one[1].loss == pytest.approx(many[1].loss, rel=1e-5)


def test_an_activated_adapter_acts_from_its_invocation_on(loaded: Loaded) -> None:
    examples = [Example(prompt=(*e.prompt, 40, 41, 6), answer=e.answer) for e in LEARNT]
    adapter = trained(loaded, examples, TrainingSettings(steps=1, invocation=(40, 41))).adapter
    assert adapter.invocation == (40, 41)
    assert first_acting_row((40, 41, 3, 40, 41, 6), (40, 41)) == 3
    assert first_acting_row((1, 2), ()) == 0
    with pytest.raises(RequestError, match="no invocation tokens"):
        trained(loaded, LEARNT, TrainingSettings(steps=1, invocation=(40, 41)))


BAD: dict[str, tuple[list[Example], TrainingSettings]] = {
    "nothing to train": (KEPT, SHORT),
    "its role is 'love'": ([Example(prompt=(1,), answer=(2,), role="love")], SHORT),
    "is empty": ([Example(prompt=(), answer=(2,))], SHORT),
    "the context is 256": ([Example(prompt=(1,) * 256, answer=(2,) * 2)], SHORT),
    "token id 320": ([Example(prompt=(1,), answer=(320,))], SHORT),
    "ewc is 1, but no example": (LEARNT, TrainingSettings(ewc=1.0)),
    "its weight is nan": ([Example(prompt=(1,), answer=(3,), weight=float("nan"))], SHORT),
    "rank is 65": (LEARNT, TrainingSettings(rank=65)),
    "rate is nan": (LEARNT, TrainingSettings(rate=float("nan"))),
    "betas are": (LEARNT, TrainingSettings(betas=(0.9, 1.0))),
    "keeps is 'all'": (LEARNT, TrainingSettings(keeps="all")),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_examples_and_settings_are_refused(fault: str, loaded: Loaded) -> None:
    examples, settings = BAD[fault]
    with pytest.raises(RequestError, match=fault):
        trained(loaded, examples, settings)


def test_a_backend_without_the_ops_is_refused(loaded: Loaded) -> None:
    with pytest.raises(BackendError, match="train on cpu"):
        trained(loaded, LEARNT, make=NullBackend)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy names each overflow
def test_a_gradient_that_is_not_finite_is_an_error(loaded: Loaded) -> None:
    with pytest.raises(BackendError, match="the gradient of step"):
        trained(loaded, [Example(prompt=(1, 2), answer=(3,), weight=3e38)])
