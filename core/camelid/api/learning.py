"""Learning of a loaded model: its store opened, its requests watched, and its face, `llm.learning`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from camelid.api.runner import Runner
from camelid.api.sessions.fingerprint import fingerprint
from camelid.api.streams import read
from camelid.engine.request import Request
from camelid.engine.stream import Stream
from camelid.errors import LearningError, RequestError
from camelid.learning.learner import Learner
from camelid.learning.memory import Memory
from camelid.learning.model_side import EngineAccess, EngineSide
from camelid.learning.space import Space
from camelid.loading.model_file import ModelFile
from camelid.loading.options import LoadOptions
from camelid.loading.start import RunningModel
from camelid.requests.build import RequestBuilder, check_generates
from camelid.requests.options import Prompt
from camelid.requests.output_text import ChatPrompt, Completion

if TYPE_CHECKING:  # a page has no store
    from camelid.learning.bank import Bank, Distil
    from camelid.learning.policies import Policies, Policy

Submit = Callable[[Request], Awaitable[Stream[Any, Any]]]
N_SAMPLES = 256  # weights of which the base's hash covers 4 KiB each


async def base_hash(file: ModelFile) -> str:
    """The hash of a base model: its header, and a sample of its weights. Feedback belongs to one base."""
    return await fingerprint(file, N_SAMPLES)


def open_space(user: str, base: str, folder: Path | None = None) -> Space:
    """The space of a user and a base model, with its store. Raises LearningError, RequestError."""
    from camelid.learning.recorder import Recorder
    from camelid.learning.store.store import Store

    store = Store.open(user, base, folder)
    return Space(Memory(), store, Recorder(store))


async def open_learner(running: RunningModel, builder: RequestBuilder, submit: Submit) -> Learner:
    """The learner of a loaded model, by its load options; `submit` compiles a request's programs first."""
    check_generates(running.file.spec)
    options = running.options
    folder = Path(options.learn_folder) if options.learn_folder is not None else None
    if find_spec("camelid.learning.store"):
        space = open_space(options.learn_user, await base_hash(running.file), folder)
        return learner_of(space, side_of(running, builder, submit))
    return Learner(
        Space(Memory()), side_of(running, builder, submit)
    )  # in a page, whose archive has no store


def learner_of(space: Space, side: EngineSide) -> Learner:
    """The learner of a space with a store. Without features of prompts, the similarity of words decides."""
    from camelid.learning.trained.memory_scope import MemoryScope
    from camelid.learning.trained.routing import Router

    if not (space.store and side.has_features):
        return Learner(space, side)
    return Learner(space, side, Router(side, space.store), MemoryScope(side))


def side_of(running: RunningModel, builder: RequestBuilder, submit: Submit) -> EngineSide:
    """The view of a loaded model that learning has."""

    async def ran(request: Request) -> tuple[Sequence[Any], Completion]:
        stream = await submit(request)
        completion = await read(stream)
        return stream.logits, completion

    async def on_engine(work: Coroutine[Any, Any, Any]) -> Any:
        return await work

    return EngineSide(builder, EngineAccess(running, ran, on_engine))


def learning_request(
    learner: Learner, builder: RequestBuilder, prompt: Prompt | ChatPrompt, options: Mapping[str, Any]
) -> Request:
    """The request of a prompt, with what was learnt and with its answer noted. Raises as the builder."""
    is_rendered = isinstance(prompt, ChatPrompt)
    given = {"tools": prompt.tools} if is_rendered else options
    asked = learner.asked(prompt.messages if is_rendered else prompt, given)
    if asked is None:
        return builder.request(prompt, options)
    is_chat = not is_rendered and not isinstance(prompt, str)
    names = options.get("adapter") is not None
    request = builder.request(learner.prompt(asked, names_adapter=names) if is_chat else prompt, options)
    return learner.request(request, asked, names_adapter=names)


@dataclass(frozen=True, slots=True)
class LearningStatus:
    """The state of a user's learning. `form` is what memory does, one of FORMS (`learning/rows.py`)."""

    learn: str
    user: str
    path: str
    n_bytes: int
    n_items: int
    n_acting: int
    n_requests: int
    form: str
    version: str
    n_versions: int
    meter: Mapping[str, Any] | None  # the gate's latest report
    n_dropped: int  # past requests that could not be written in time
    n_failed: int  # requests on which what was learnt could not act, and runs that failed;
    failure: str  # the latest reason


class Learning:
    """`llm.learning`: what was learnt, and how to take it back."""

    def __init__(self, learner: Learner, options: LoadOptions, runner: Runner | None = None) -> None:
        self._learner, self._options, self._runner = learner, options, runner

    def _store(self) -> Any:
        store = self._learner.space.store
        if store is None:
            raise RequestError(
                "a page keeps feedback in memory only: it has no versions, hints and policies", field="learn"
            )
        return store

    def status(self) -> LearningStatus:
        """Counts, bytes, the version in use and the meter."""
        from camelid.learning.store import versions

        space, store = self._learner.space, self._store()
        rows = versions.versions(store)
        current = next((row for row in rows if row.is_current), None)
        return LearningStatus(
            learn=self._options.learn, user=self._options.learn_user, path=str(store.path),
            n_bytes=store.n_bytes(), n_items=len(space.memory), n_acting=space.memory.n_acting,
            n_requests=store.n_requests(), form=space.form, version=versions.current(store),
            n_versions=len(rows), meter=current.report if current else versions.last_refusal(store),
            n_dropped=space.recorder.n_dropped if space.recorder else 0,
            n_failed=space.n_failed, failure=space.failure,
        )  # fmt: skip

    def items(self) -> Sequence[Any]:
        """The items of feedback (`camelid.learning.items.Item`), in order."""
        self._learner.space.refresh()
        return self._learner.space.memory.items

    def versions(self) -> Sequence[Any]:
        """The versions, in the order of publication."""
        from camelid.learning.store.versions import versions

        return versions(self._store())

    def log(self) -> Sequence[Any]:
        """All events, their hash chain checked. Raises LearningError if it is broken."""
        return self._store().log()

    def use(self, version: str | None) -> str:
        """Puts a version in use, or with None the base; returns its name. Raises RequestError."""
        from camelid.learning.store.versions import BASE, use

        return use(self._store(), BASE if version is None else version)

    def undo(self) -> str:
        """Puts the version in use that was in use before; returns its name."""
        from camelid.learning.store.versions import undo

        return undo(self._store())

    def forget(self, item: int) -> Any:
        """Forgets an item, all that was made of it, and proves that its text is in no file of the store.

        The scope of memory is fitted to the items that are left; beside an event loop, `aforget` does that.
        Raises RequestError for an unknown item, LearningError if the text cannot be removed now.
        """
        try:
            found = self._learner.forget(item)
        except LearningError:  # its bytes wait for another process, but it acts no more
            self._settle()
            raise
        self._settle()
        return found

    def _settle(self) -> None:
        if self._runner and self._runner.is_free:
            self._runner.run(self._learner.settle())

    async def aforget(self, item: int) -> Any:
        """As `forget`, from code with an event loop."""
        try:
            found = await self._learner.aforget(item)
        except LearningError:
            await self._learner.settle()
            raise
        await self._learner.settle()
        return found

    def bank(self, distil: Distil | None = None) -> Bank:
        """The user's hints (`camelid.learning.bank`). `distil` makes the text of a hint from the trajectories
        of one cluster, by default from the steps that its successes share.
        """
        from camelid.learning.bank import Bank, common_steps

        return Bank(self._store(), self._learner.side.vector, distil or common_steps)

    def policies(self, policies: Sequence[Policy], rng: Random | None = None) -> Policies:
        """A bandit over these policies (`camelid.learning.policies`) with this user's rewards so far.

        Raises RequestError for none and for equal ones.
        """
        from camelid.learning.policies import Policies

        return Policies(self._store(), policies, rng)
