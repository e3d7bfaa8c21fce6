"""The loops that train: one run on demand, the background thread that starts runs, and the deep run.

The instant loop is `space.py`: it has no gradient. All runs share one gate and publish atomically or not at
all; a run may be stopped at any step.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from camelid.errors import CamelidError
from camelid.learning.gate import Report, Trial, asked, held_out, is_right
from camelid.learning.items import Exchange, Item
from camelid.learning.orders import Side, chosen, with_order
from camelid.learning.retention import MOST_LOST, Check, Retention, kept_requests
from camelid.learning.robust import conversation_key, trusted
from camelid.learning.rows import FORMS, MOST_FITTED, MOST_PAST, NO_FORM
from camelid.learning.shared import wanted
from camelid.learning.sign_test import LEVEL
from camelid.learning.space import Space
from camelid.learning.store.store import Store
from camelid.learning.store.versions import Version, item_hashes, publish, refuse
from camelid.learning.training import (
    Candidate,
    Evaluator,
    Interrupted,
    Pace,
    Question,
    Recalled,
    Trained,
    Trainer,
    TrainingJob,
)

if TYPE_CHECKING:
    from camelid.learning.trained.memory_scope import Near

FEWEST_ITEMS = 5  # approved answers below which nothing is trained
# Candidates: an adapter that acts from the answer on, and one on all rows, which is tried if that fails.
KINDS: Mapping[str, Mapping[str, Any]] = {"activated": {"activated": True}, "plain": {"activated": False}}
# Settings that a deep run compares on held-out items, on top of those of each kind. All but the last distil
# memory, where it has acted on requests.
GRID: Sequence[Mapping[str, Any]] = (
    {"rank": 8}, {"rank": 4}, {"rank": 16}, {"rank": 8, "kl": 0.3}, {"rank": 8, "distils": False},
)  # fmt: skip
MOST_DISTILLED = 60  # requests
LEVELS = (0.04, 0.01)  # of the first kind that is tried, and of the next: LEVEL in all
NOTHING = Side(Trial(Report(name="memory: none")), ())


class RunEvaluator(Evaluator, Protocol):
    """An evaluator that also fits the scope of memory."""

    def scope(self, candidate: Recalled, pace: Pace) -> Near | None:
        """The scope that is fitted to memory; None where the similarity of words decides.

        Raises Interrupted.
        """
        ...


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


@dataclass(frozen=True, slots=True)
class Lesson:
    """The data of a run: items with right answers, refused answers, past requests, the retention, whether
    memory has a fitted scope, memory in the form that the run has chosen, and whether it is distilled.
    """

    items: Sequence[Item]
    refused: Sequence[Item]
    past: tuple[Exchange, ...]
    retention: Retention
    has_scope: bool
    form: str = NO_FORM
    memory: Side = NOTHING
    distils: bool = False

    @property
    def all(self) -> list[Item]:
        """All items."""
        return [*self.items, *self.refused]


@dataclass(slots=True)
class Learning:
    """Parts of a run. `checks` count as past requests at the gate."""

    space: Space
    store: Store
    evaluator: RunEvaluator
    trainer: Trainer | None = None
    bounds: Bounds = field(default_factory=Bounds)
    checks: Sequence[Check] = ()
    _distillates: dict[tuple[int, ...], list[Item]] = field(default_factory=dict[tuple[int, ...], list[Item]])

    def run(
        self,
        pace: Pace,
        settings: Sequence[Mapping[str, Any]] = tuple(KINDS.values()),
        *,
        compares: bool = False,
    ) -> Run:
        """Chooses the form of memory, trains candidates, and publishes one that passes: of the settings in
        order the first, or with `compares` the best.

        Raises Interrupted, and nothing but the fitted scope of memory has changed.
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
        self._distillates.clear()
        past = tuple(self.space.past[-MOST_PAST:])
        has_scope = self._fit_scope(items, past, pace)
        lesson = Lesson(items, refused, past, self._retention(items, past, pace), has_scope)
        lesson, of_memory = self._with_memory(lesson, pace)
        if self.trainer is None:
            self.space.set_form(lesson.form)
            return Run(tuple(of_memory), form=lesson.form)
        distilling = [own for own in settings if own.get("distils", True)]
        if len(distilling) < len(settings) and not self._distilled(lesson, lesson.items, pace):
            settings = distilling
        found = list(self._candidates(lesson, settings, pace, compares=compares))
        best, trial = max(found, key=lambda pair: _merit(pair[1].report))
        final, trained = self._final(lesson, best, trial, pace)
        reports = (*of_memory, *(trial.report for _, trial in found), final)
        if not final.is_accepted or trained is None:
            refuse(self.store, final.facts())
            self.space.set_form(lesson.form)
            return Run(reports, form=lesson.form)
        return Run(reports, self._publish(lesson.all, trained, final, since), lesson.form)

    def deep(self, pace: Pace) -> Run:
        """All feedback anew, with the settings of GRID compared by their held-out items."""
        kinds = KINDS.values()
        return self.run(pace, [{**kind, **own} for kind in kinds for own in GRID], compares=True)

    def _fit_scope(self, items: Sequence[Item], past: tuple[Exchange, ...], pace: Pace) -> bool:
        """Fits the scope of memory, and keeps it: a slow model has no time for that beside requests.

        False where the similarity of words decides.
        """
        n_changes, acting = self.space.to_fit()
        near = self.evaluator.scope(_recalled(FORMS[0], past, items), pace)
        if near and set(near.items) == {item.id for item in acting}:
            self.space.set_near(near, n_changes)
        return near is not None

    def _retention(self, items: Sequence[Item], past: Sequence[Exchange], pace: Pace) -> Retention:
        """The past requests and checks that a candidate may not lose, answered by the base."""
        rows, ids = dict(self.store.vectors()), {each.completion_id for each in past}
        pairs = [(item, rows[item.id]) for item in items if item.id in rows]
        stored = [each for each in self.store.requests() if each.exchange.completion_id in ids]
        kept = kept_requests(pairs, stored, self.space.memory.kernels, self.bounds.seed)
        known = self.space.memory.items
        vectors = {item.exchange.completion_id: rows[item.id] for item in known}
        vectors |= {each.exchange.completion_id: each.vector for each in stored}
        meant = wanted(known, past, lambda each: array("f", vectors[each.completion_id]))
        found = Retention(kept, self.checks, wanted=meant)
        return replace(found, before=asked(self.evaluator.answers(None, found.questions), pace))

    def _candidates(
        self,
        lesson: Lesson,
        settings: Sequence[Mapping[str, Any]],
        pace: Pace,
        *,
        compares: bool,
    ) -> Iterator[tuple[Mapping[str, Any], Trial]]:
        """Settings with their trials, up to the first that passes unless all are compared."""
        for i, own in enumerate(settings):
            level = LEVEL / len(settings) if compares else LEVELS[min(i, len(LEVELS) - 1)]
            try:
                trial = self._trial(lesson, own, pace, level)
            except CamelidError as error:
                name, n = f"adapter: {_words(own)}", len(lesson.items)
                trial = Trial(Report(name=name, n_items=n, why=error.message))
            yield own, trial
            if trial.report.is_accepted and not compares:
                return

    def _with_memory(self, lesson: Lesson, pace: Pace) -> tuple[Lesson, list[Report]]:
        """The lesson with the usable form of memory that has the most held-out answers right, and the
        reports.
        """
        sides, reports = dict[str, Side](), list[Report]()
        for form in FORMS[:-1]:
            if form == "narrow" and ("mix" in sides or not lesson.has_scope):
                continue  # it is the second attempt, and needs a fitted scope
            recalled = partial(_recalled, form, lesson.past)
            trial = held_out(f"memory: {form}", lesson.all, recalled, self.evaluator, pace)
            questions = lesson.retention.questions
            kept = asked(self.evaluator.answers(recalled(lesson.items), questions), pace)
            report = lesson.retention.judged(trial.report, kept)
            reports.append(report)
            if _is_usable(form, report):
                sides[form] = Side(replace(trial, report=report), kept)
        best = max(sides, key=lambda form: sides[form].trial.report.held_after, default=NO_FORM)
        memory = sides.get(best, NOTHING)
        acted = [
            is_right(item, given.answer)
            for item, _, given in memory.trial.answered
            if given.in_scope and item.approved
        ]
        distils = memory.trial.report.is_accepted and 2 * sum(acted) > len(acted)  # it is right about most
        return replace(lesson, form=best, memory=memory, distils=distils), reports

    def _unrated(self) -> list[Exchange]:
        """The latest requests that feedback acted on and that nobody rated, each prompt once."""
        rated = {conversation_key(item.exchange) for item in self.space.memory.items}
        found = dict[str, Exchange]()
        for each in reversed([each.exchange for each in self.store.requests()]):
            if each.is_learnt and (key := conversation_key(each)) not in rated:
                found.setdefault(key, each)
        return list(found.values())[:MOST_DISTILLED][::-1]

    def _distilled(self, lesson: Lesson, seen: Sequence[Item], pace: Pace) -> list[Item]:
        """Memory of these items, distilled once: requests in its scope, its whole answers as right ones."""
        key = tuple(item.id for item in seen)
        if key not in self._distillates:
            self._distillates[key] = self._distillate(lesson, seen, pace)
        return self._distillates[key]

    def _distillate(self, lesson: Lesson, seen: Sequence[Item], pace: Pace) -> list[Item]:
        asks = self._unrated() if lesson.distils else []
        if not asks:
            return []
        recalled = _recalled(lesson.form, lesson.past, seen)
        answers = asked(self.evaluator.answers(recalled, [Question.of(each) for each in asks]), pace)
        items = [
            Item(exchange=replace(each, answer=given.answer, answer_ids=()), rating=1)
            for each, given in zip(asks, answers, strict=True)
            if given.in_scope and given.is_whole
        ]
        return [item for item in items if item.approved]

    def _trial(self, lesson: Lesson, settings: Mapping[str, Any], pace: Pace, level: float) -> Trial:
        """A kind of adapter on items that it has not seen."""
        ids = {item.id for item in lesson.refused}

        def make(seen: Sequence[Item]) -> Candidate:
            right = [item for item in seen if item.id not in ids]
            wrong = [item for item in seen if item.id in ids]
            return self._trained(replace(lesson, items=right, refused=wrong), settings, pace, is_trial=True)

        name = f"adapter: {_words(settings)}"
        return held_out(name, lesson.all, make, self.evaluator, pace, level)

    def _trained(
        self, lesson: Lesson, settings: Mapping[str, Any], pace: Pace, *, is_trial: bool = False
    ) -> Trained:
        assert self.trainer, "a run without a trainer trains nothing"
        pace.check()
        more = self._distilled(lesson, lesson.items, pace) if settings.get("distils", True) else []
        job = TrainingJob(
            items=tuple(lesson.items), refused=tuple(lesson.refused), distilled=tuple(more),
            keep=lesson.past, settings=settings, seed=self.bounds.seed, n_bytes=self.bounds.n_bytes,
            seconds=max(self.bounds.seconds - pace.spent, 0.0), is_trial=is_trial,
        )  # fmt: skip
        trained = self.trainer.train(job, pace.ends)
        if trained is None:
            raise Interrupted
        return replace(trained, kept=(*trained.kept, *(item.exchange.completion_id for item in more)))

    def _final(
        self,
        lesson: Lesson,
        settings: Mapping[str, Any],
        trial: Trial,
        pace: Pace,
    ) -> tuple[Report, Trained | None]:
        """The candidate that has seen all items, and what it loses; none is trained if folds were refused."""
        if not trial.report.is_accepted:
            return replace(trial.report, seconds=pace.spent), None
        trained = self._trained(lesson, settings, pace)
        kept = asked(self.evaluator.answers(trained, lesson.retention.questions), pace)
        report = lesson.retention.judged(trial.report, kept)
        if report.is_accepted:
            memory, adapter = lesson.memory, Side(trial, kept)
            choice = chosen(lesson.form, memory, adapter, lesson.retention)
            n_memory = report.held_before if memory is NOTHING else memory.trial.report.held_after
            report = with_order(report, choice, lesson.form, n_memory)
            config = {**trained.config, "order": choice.order, "form": lesson.form}
            trained = replace(trained, config=config)
        return replace(report, seconds=pace.spent), trained

    def _publish(self, items: Sequence[Item], trained: Trained, report: Report, since: int) -> str:
        version = Version(
            adapter=trained.adapter, scope=trained.scope, config=trained.config,
            items=item_hashes(self.store, [item.id for item in items]), kept=trained.kept,
            report=report.facts(),
        )  # fmt: skip
        return publish(self.store, version, since).name


def _recalled(form: str, past: tuple[Exchange, ...], seen: Sequence[Item]) -> Recalled:
    """Memory of the right answers among the items, as a candidate."""
    return Recalled(items=tuple(item for item in seen if item.approved), form=form, past=past)


def _is_usable(form: str, report: Report) -> bool:
    """True for a form of memory that loses few past requests, keeps the bits of requests out of its scope,
    and does not harm; the second and the third attempt must help.

    Thumbs up alone show harm alone, since the base gave these answers: of them, as of past requests, the
    first attempt may lose MOST_LOST.
    """
    helps = {
        "mix": report.held_after >= report.held_before - MOST_LOST,
        "narrow": report.is_accepted,  # by more than chance: the mixture has lost too much before
        "turns": report.n_better > report.n_worse,
    }
    return helps[form] and len(report.lost) <= MOST_LOST and not report.n_changed_bits


def _merit(report: Report) -> tuple[bool, int, int]:
    """Greater for a better candidate."""
    return report.is_accepted, report.held_after, -report.n_worse


def _words(settings: Mapping[str, Any]) -> str:
    """Settings as a name of a candidate."""
    return ", ".join(f"{key} {value}" for key, value in settings.items())
