"""Output rows of retired steps: to their sequences, back to the step, or to nobody."""

from __future__ import annotations

from collections.abc import Callable

from camelid.backends.base import Result
from camelid.engine.batch import Batch, OutputProcessor, ScheduledSequence
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.metrics import Counters
from camelid.engine.results import FinishReason
from camelid.engine.scheduler import Scheduler
from camelid.engine.sequence import Sequence
from camelid.sampling.drawing import LateMask
from camelid.sampling.host import NeedsAllLogits


class Delivery:
    """Passes the rows of retired steps to their sequences.

    `end` ends a sequence, with an error if it has one; `release` removes a finished one.
    """

    def __init__(
        self,
        state: KVCacheManager,
        scheduler: Scheduler,
        outputs: OutputProcessor,
        counters: Counters,
        *,
        end: Callable[[Sequence, FinishReason, Exception | None], None],
        release: Callable[[Sequence], None],
    ) -> None:
        self._state, self._scheduler, self._outputs = state, scheduler, outputs
        self._counters = counters
        self._end, self._release = end, release

    def deliver(self, batch: Batch, result: Result) -> None:
        """Passes each sequence its output rows; rows of finished sequences are discarded."""
        at = 0
        for item in batch.scheduled:
            rows = result[at : at + item.n_outputs]
            at += item.n_outputs
            if item.sequence.is_finished:
                self._counters.discarded_rows += item.n_rows
                self._release(item.sequence)
            else:
                self.process(item, rows)

    def process(self, item: ScheduledSequence, rows: Result) -> None:
        """Processes one sequence's output rows; an exception ends only this sequence."""
        s = item.sequence
        try:
            accepted = self._outputs.process(s, rows, item.n_outputs)
        except NeedsAllLogits:
            self._rerun(item)
            return
        except LateMask:
            s.late = rows
            self._counters.late_masks += 1
            self._scheduler.requeue_if_preempted(s)
            return
        except Exception as error:
            self._end(s, "error", error)
            return
        if accepted.n_rows < item.n_outputs:
            self._reject(item, item.n_outputs - accepted.n_rows)
        if accepted.finish_reason:
            self._end(s, accepted.finish_reason, None)
            return
        self._retire(s)

    def _rerun(self, item: ScheduledSequence) -> None:
        """Repeats the last row with all logits, because its candidates or its draw do not suffice."""
        s = item.sequence
        self._counters.full_logits_rows += 1
        s.needs_all = True
        self._reject(item, 1)
        self._scheduler.requeue_if_preempted(s)

    def _reject(self, item: ScheduledSequence, n_rejected: int) -> None:
        """Rolls back the last rows of a step; recurrent state rolls back the whole step."""
        s = item.sequence
        if self._state.has_recurrent:
            assert s.allocation is not None, "a sequence has an allocation when its rows retire"
            self._state.rollback(s.allocation)
        s.rollback(item.n_rows if self._state.has_recurrent else n_rejected)

    def _retire(self, s: Sequence) -> None:
        """Caches retired pages, shifts a full context, and requeues a preempted sequence."""
        assert s.allocation is not None, "a sequence has an allocation when its rows retire"
        self._state.retire_rows(s.allocation, s.key_ids, s.n_valid)
        if s.shifts_context and len(s.token_ids) == s.limit:
            self._scheduler.preempt(s)
            s.shift()
            self._counters.shifted += 1
        else:
            self._scheduler.requeue_if_preempted(s)
