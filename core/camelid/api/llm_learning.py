"""Methods of `LLM` for feedback and learning."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from camelid.api.runner import Runner
from camelid.engine.request import Request
from camelid.engine.stream import Stream
from camelid.errors import RequestError
from camelid.loading.start import RunningModel
from camelid.requests.build import RequestBuilder
from camelid.requests.options import Message
from camelid.requests.output_text import Completion

if TYPE_CHECKING:
    from camelid.api.learning import Learning
    from camelid.learning.background import Background
    from camelid.learning.learner import Learner
    from camelid.learning.space import Space


class LearningMethods:
    """Feedback on answers, and what a model has learnt from it."""

    _running: RunningModel
    _builder: RequestBuilder
    _runner: Runner
    _learner: Learner | None = None
    _background: Background | None = None
    asubmit: Callable[[Request], Awaitable[Stream[Any, Any]]]
    _check_open: Callable[[], None]

    async def start_learning(self) -> None:
        """Opens the user's store, as the load option `learn` asks; fits the scope of memory if it is missing.

        Raises LearningError.
        """
        from camelid.api.learning import open_learner  # most models learn nothing

        self._learner = await open_learner(self._running, self._builder, self.asubmit)
        if self._learner.space.memory.n_acting:
            await self._learner.settle()

    def train_when_idle(self, begin: Callable[[Space, Callable[[], bool]], Background]) -> None:
        """Trains adapters from feedback while no request runs: `begin` of the user's space, and of a function
        that returns True while one does.
        """
        engine = self._running.engine
        self._background = begin(self._learning_learner().space, lambda: not engine.is_idle)

    async def _end_learning(self) -> None:
        """Stops a run at its next step, and closes the store."""
        if self._background:
            await asyncio.to_thread(self._background.close)
        if self._learner:
            self._learner.space.close()

    @property
    def learning(self) -> Learning:
        """Status and versions of learning, and ways to take it back. Raises RequestError without `learn`."""
        from camelid.api.learning import Learning

        return Learning(self._learning_learner(), self._running.options, self._runner)

    def _learning_learner(self) -> Learner:
        self._check_open()
        if self._learner is None:
            raise RequestError(
                "this model does not learn; load it with learn='memory' or learn='on'", field="learn"
            )
        return self._learner

    async def afeedback(
        self, completion: Completion | str, rating: int, *, correction: str | Message | None = None
    ) -> int:
        """Stores a thumb up (+1) or down (-1) on an answer or its id, and perhaps the right answer.

        Returns the item's number, with which `learning.forget` takes it back. The feedback acts on the next
        request. Raises RequestError, and LearningError if it cannot be stored.
        """
        learner = self._learning_learner()
        item = learner.feedback(completion, rating, correction, self._running.options.learn_user)
        await learner.settle()
        return item.id

    def feedback(
        self, completion: Completion | str, rating: int, *, correction: str | Message | None = None
    ) -> int:
        """As `afeedback`, without an event loop."""
        return self._runner.run(self.afeedback(completion, rating, correction=correction))
