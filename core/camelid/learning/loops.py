"""The loops that train: one run on demand, the background thread that starts runs, and the deep run.

The instant loop is `space.py`: it has no gradient. All runs share one gate and publish atomically or not at
all; a run may be stopped at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from camelid.errors import CamelidError
from camelid.learning.gate import Check, Report, held_out, kept_requests, retained
from camelid.learning.items import Item
from camelid.learning.robust import trusted
from camelid.learning.rows import MOST_FITTED, MOST_PAST
from camelid.learning.sign_test import LEVEL
from camelid.learning.space import FORMS, Space
from camelid.learning.store.store import Store
from camelid.learning.store.versions import Version, item_hashes, publish, refuse
from camelid.learning.training import (
    Candidate,
    Evaluator,
    Interrupted,
    Pace,
    Recalled,
    Trained,
    Trainer,
    TrainingJob,
)

FEWEST_ITEMS = 5  # approved answers below which nothing is trained
# Candidates: an adapter that acts from the answer on, and one on all rows, which is tried if that fails.
KINDS: Mapping[str, Mapping[str, Any]] = {"activated": {"activated": True}, "plain": {"activated": False}}
# Settings that a deep run compares on held-out items, on top of those of each kind.
GRID: Sequence[Mapping[str, Any]] = ({"rank": 8}, {"rank": 4}, {"rank": 16}, {"rank": 8, "kl": 0.3})
LEVELS = (0.04, 0.01)  # of the first kind that is tried, and of the next: LEVEL in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one run."""

    seconds: float = 3600.0
    n_bytes: int = 2 << 30
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """One run: what it found, the version that it published, and the form of memory that it chose."""

    reports: tuple[Report, ...]
    version: str | None = None
    form: str | None = None


@dataclass(slots=True)
class Learning:
    """Parts of a run. `checks` count as past requests at the gate."""

    space: Space
    store: Store
    evaluator: Evaluator
    trainer: Trainer | None = None
    bounds: Bounds = field(default_factory=Bounds)
    checks: Sequence[Check] = ()

    def run(
        self,
        pace: Pace,
        settings: Sequence[Mapping[str, Any]] = tuple(KINDS.values()),
        *,
        compares: bool = False,
    ) -> Run:
        """Chooses the form of memory, trains candidates, and publishes one that passes: of the settings in
        order the first, or with `compares` the best.

        Raises Interrupted, and nothing has changed but the form of memory.
        """
        self.space.refresh()
        known = self.space.memory.items
        since, items = self.store.last_event(), trusted(known)[-MOST_FITTED:]
        refused = [item for item in known if item.refused and not item.approved][-MOST_FITTED:]
        if len(items) < FEWEST_ITEMS:
            why = f"{len(items)} right answers, at least {FEWEST_ITEMS} are needed; memory acts alone"
            report = Report(name="adapter", n_items=len(items), why=why)
            refuse(self.store, report.facts())
            return Run((report,))
        form, of_memory = self._memory_form(items, pace)
        self.space.set_form(form)
        if self.trainer is None:
            return Run(tuple(of_memory), form=form)
        found = list(self._candidates(items, refused, settings, pace, compares=compares))
        reports = [*of_memory, *(report for _, report in found)]
        best = max(found, key=lambda pair: (pair[1].is_accepted, pair[1].held_after, -pair[1].n_worse))
        final, trained = self._final(items, refused, *best, pace)
        reports.append(final)
        if not final.is_accepted or trained is None:
            refuse(self.store, final.facts())
            return Run(tuple(reports), form=form)
        return Run(tuple(reports), self._publish([*items, *refused], trained, final, since), form)

    def deep(self, pace: Pace) -> Run:
        """All feedback anew, with the settings of GRID compared by their held-out items."""
        kinds = KINDS.values()
        return self.run(pace, [{**kind, **own} for kind in kinds for own in GRID], compares=True)

    def _candidates(
        self,
        items: Sequence[Item],
        refused: Sequence[Item],
        settings: Sequence[Mapping[str, Any]],
        pace: Pace,
        *,
        compares: bool,
    ) -> Iterator[tuple[Mapping[str, Any], Report]]:
        """Settings with their held-out reports, up to the first that passes unless all are compared."""
        for i, own in enumerate(settings):
            level = LEVEL / len(settings) if compares else LEVELS[min(i, len(LEVELS) - 1)]
            try:
                report = self._held_out(items, refused, own, pace, level)
            except CamelidError as error:
                report = Report(name=f"adapter: {_words(own)}", n_items=len(items), why=error.message)
            yield own, report
            if report.is_accepted and not compares:
                return

    def _memory_form(self, items: Sequence[Item], pace: Pace) -> tuple[str, list[Report]]:
        """The form of memory with the most held-out answers right; none unless it helps."""
        reports = [
            held_out(f"memory: {form}", items, self._recalled(form), self.evaluator, pace)
            for form in FORMS[:-1]
        ]
        best = max(reports, key=lambda report: (report.is_accepted, report.held_after))
        # Too few items to tell: memory stays on, as its scope is narrow.
        helps = best.n_better >= best.n_worse
        return (best.name.removeprefix("memory: ") if helps else FORMS[-1]), reports

    def _recalled(self, form: str) -> Callable[[Sequence[Item]], Candidate]:
        past = tuple(self.space.past[-MOST_PAST:])
        return lambda seen: Recalled(items=tuple(seen), form=form, past=past)

    def _held_out(
        self,
        items: Sequence[Item],
        refused: Sequence[Item],
        settings: Mapping[str, Any],
        pace: Pace,
        level: float,
    ) -> Report:
        """The report of a kind of adapter on items that it has not seen."""
        ids = {item.id for item in refused}

        def make(seen: Sequence[Item]) -> Candidate:
            right = [item for item in seen if item.id not in ids]
            wrong = [item for item in seen if item.id in ids]
            return self._trained(right, wrong, settings, pace, is_trial=True)

        name = f"adapter: {_words(settings)}"
        return held_out(name, [*items, *refused], make, self.evaluator, pace, level)

    def _trained(
        self,
        items: Sequence[Item],
        refused: Sequence[Item],
        settings: Mapping[str, Any],
        pace: Pace,
        *,
        is_trial: bool = False,
    ) -> Trained:
        assert self.trainer, "a run without a trainer trains nothing"
        pace.check()
        job = TrainingJob(
            items=tuple(items), refused=tuple(refused), keep=tuple(self.space.past[-MOST_PAST:]),
            settings=settings,
            seed=self.bounds.seed, seconds=max(self.bounds.seconds - pace.spent, 0.0),
            n_bytes=self.bounds.n_bytes, is_trial=is_trial,
        )  # fmt: skip
        trained = self.trainer.train(job, pace.ends)
        if trained is None:
            raise Interrupted
        return trained

    def _final(
        self,
        items: Sequence[Item],
        refused: Sequence[Item],
        settings: Mapping[str, Any],
        report: Report,
        pace: Pace,
    ) -> tuple[Report, Trained | None]:
        """The candidate that has seen all items, and what it loses; none is trained if folds were refused."""
        if not report.is_accepted:
            return replace(report, seconds=pace.spent), None
        trained = self._trained(items, refused, settings, pace)
        vectors = dict(self.store.vectors())
        pairs = [(item, vectors[item.id]) for item in items if item.id in vectors]
        ids = {each.completion_id for each in self.space.past[-MOST_PAST:]}
        past = [each for each in self.store.requests() if each.exchange.completion_id in ids]
        kept = kept_requests(pairs, past, self.space.memory.kernels, self.bounds.seed)
        judged = retained(report, trained, kept, self.evaluator, pace, self.checks)
        return replace(judged, seconds=pace.spent), trained

    def _publish(self, items: Sequence[Item], trained: Trained, report: Report, since: int) -> str:
        version = Version(
            adapter=trained.adapter, scope=trained.scope, config=trained.config,
            items=item_hashes(self.store, [item.id for item in items]), kept=trained.kept,
            report=report.facts(),
        )  # fmt: skip
        return publish(self.store, version, since).name


def _words(settings: Mapping[str, Any]) -> str:
    """Settings as a name of a candidate."""
    return ", ".join(f"{key} {value}" for key, value in settings.items())
