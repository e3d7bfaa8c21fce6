"""What cria learns from 20 corrections or thumbs, in the scenarios of tests/learning/scenarios.

`python -m tests.perf.learning_scenarios [NAME ...] [--seeds 0 1 2 3 4] [--thumbs right|random|wrong]
[--used N] [--threads N]` prints for each scenario and seed: held-out answers right before, with each form of
memory, with the version that the gate published, and with both as they are served; skills lost and won among
the retention items; the gate's report; seconds and bytes. A store of 600 past requests is filled first. The
gate also asks checks of the 13 skills, drawn with another seed than the retention items. Nothing is chosen by
held-out prompts or retention items. With `--used`, so many requests of the feedback's kind were made since,
on which memory acted, and it is distilled into the adapter.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from tests.learning.scenarios import SCENARIOS
from tests.learning.scenarios.retention import checks_of_skills, kept, past_requests, retention
from tests.learning.scenarios.scenario import Graded, Scenario

from camelid.api.learnt.base_facts import BaseFacts
from camelid.api.learnt.evaluator import LlmEvaluator
from camelid.api.load import aload
from camelid.api.thread import EngineThread
from camelid.learning.items import Exchange, Item, Message, text_of
from camelid.learning.loops import Bounds, Learning, Run
from camelid.learning.memory import Memory
from camelid.learning.orders import ORDERS
from camelid.learning.rows import FORMS, PastRequest
from camelid.learning.space import Space
from camelid.learning.store.store import Store
from camelid.learning.store.versions import BASE, current, version_of
from camelid.learning.trained.recipe import Recipe
from camelid.learning.training import Candidate, Given, Pace, Question, Recalled, Trained
from cria.talk import Talk

N_PAST = 600
Task = tuple[Talk, Graded]
THUMBS: dict[str, Callable[[bool, Random], bool]] = {
    "right": lambda is_right, _: is_right,
    "wrong": lambda is_right, _: not is_right,
    "random": lambda _, rng: rng.random() < 0.5,
}


def question_of(talk: Talk) -> Question:
    return Question(messages=tuple(talk.messages), tools=tuple(talk.tools))


def written(answer: Message) -> str:
    """An answer as cria writes it."""
    calls = [call["function"] for call in answer.get("tool_calls") or ()]
    texts = [
        f'<tool_call>{{"name": {json.dumps(call["name"])}, "arguments": {call["arguments"]}}}</tool_call>'
        for call in calls
    ]
    return "".join([text_of(answer), *texts])


def read(answer: str) -> Message:
    """A right answer as a message."""
    if not answer.startswith("<tool_call>"):
        return {"role": "assistant", "content": answer}
    call = json.loads(answer.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def passed_by(item: Graded) -> Callable[[Message], bool]:
    """A check of the gate."""
    return lambda answer: item.passed(written(answer))


class Bench:
    """A loaded model, and one scenario in a store of its own."""

    def __init__(self, thread: EngineThread, threads: int) -> None:
        self.thread = thread
        self.llm = thread.run(aload("cria", backend="cpu", parallel=8))
        self.facts = BaseFacts(self.llm, thread.run, threads)
        self.evaluator = LlmEvaluator(self.facts)

    def given(self, candidate: Candidate, items: Sequence[Task]) -> list[Given]:
        return list(self.evaluator.answers(candidate, [question_of(talk) for talk, _ in items]))

    def passed(self, items: Sequence[Task], given: Sequence[Given]) -> list[bool]:
        pairs = zip(items, given, strict=True)
        return [item.passed(written(each.answer)) for (_, item), each in pairs]

    def exchange(self, id: str, talk: Talk) -> Exchange:
        """A past request, answered by the base."""
        (known,) = self.facts.known([question_of(talk)], lambda: False)
        assert known
        ids = tuple(id for id in known.answer_ids if id not in self.llm.tokenizer.eos_ids)
        return Exchange(
            completion_id=id, messages=tuple(talk.messages), tools=tuple(talk.tools), answer=known.answer,
            prompt_ids=known.prompt, answer_ids=ids,
        )  # fmt: skip

    def space(self, folder: Path, made: Scenario, seed: int, thumbs: str) -> Space:
        """A space with past requests and the scenario's feedback."""
        store = Store.open("local", "ab" * 32, folder)
        past = past_requests(seed, N_PAST)
        self.facts.known([question_of(talk) for talk in past], lambda: False)
        for i, talk in enumerate(past):
            each = self.exchange(f"past-{seed}-{i}", talk)
            store.add_requests([PastRequest(each, self.facts.side.vector(each.question).tobytes())])
        space = Space(Memory(), store)
        rng = Random(f"thumbs/{seed}")
        for i, event in enumerate(made.events):
            exchange = self.exchange(f"{made.name}-{seed}-{i}", event.talk)
            rating, correction = -1, read(event.answer)
            if thumbs:
                is_right = event.task.passed(written(exchange.answer))
                rating, correction = (1 if THUMBS[thumbs](is_right, rng) else -1), None
            item = Item(exchange=exchange, rating=rating, correction=correction)
            space.feedback(item, self.facts.side.vector(exchange.question))
        return space

    def use(self, space: Space, made: Scenario, seed: int, n: int) -> None:
        """Further requests of the feedback's kind, on which memory acts and which nobody rates."""
        own = {repr(task.talk.messages) for task in (*made.held, *(event.task for event in made.events))}
        others = [task.talk for task in SCENARIOS[made.name](seed + 100).held]
        fresh = [talk for talk in others if repr(talk.messages) not in own][:n]
        for i, talk in enumerate(fresh):
            each = replace(self.exchange(f"used-{seed}-{i}", talk), is_learnt=True)
            assert space.store
            space.store.add_requests([PastRequest(each, self.facts.side.vector(each.question).tobytes())])

    def measure(self, made: Scenario, seed: int, thumbs: str, used: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            began, space = time.monotonic(), self.space(Path(folder), made, seed, thumbs)
            self.use(space, made, seed, used)
            filled, store = time.monotonic(), space.store
            assert store
            bounds = Bounds(seed=seed)
            checks = [
                (question_of(talk), passed_by(item)) for talk, item in kept(made, checks_of_skills(seed))
            ]
            learning = Learning(space, store, self.evaluator, Recipe(self.facts), bounds, checks)
            run = learning.run(Pace(time.monotonic, time.sleep))
            seconds, n_bytes, is_wide = time.monotonic() - filled, 0, False
            held = [(task.talk, task) for task in made.held]
            left = kept(made, retention(seed))
            right = [item for item in space.memory.items if item.approved]
            past, name = tuple(space.past), current(store)
            candidates: dict[str, Candidate] = {
                form: Recalled(items=tuple(right), form=form, past=past) for form in FORMS[:-1]
            }
            order: Sequence[str] = () if space.form == "none" else ("memory",)
            if name != BASE:
                version = version_of(store, name)
                n_bytes = len(version.adapter) + len(version.scope)
                candidates["version"] = Trained(
                    adapter=version.adapter, scope=version.scope, config=version.config
                )
                is_wide = bool(version.config["wide"])
                order = ORDERS[space.form][version.config["order"]]
            names = [space.form if actor == "memory" else "version" for actor in order]
            base = (self.given(None, held), self.given(None, left))
            before = (self.passed(held, base[0]), self.passed(left, base[1]))
            found: dict[str, Any] = {
                "scenario": made.name, "seed": seed, "thumbs": thumbs, "used": used, "form": space.form,
                "order": order, "before": sum(before[0]), "kept": len(left),
            }  # fmt: skip
            given = {
                name: (self.given(each, held), self.given(each, left)) for name, each in candidates.items()
            }
            given["served"] = (
                served(base[0], [given[name][0] for name in names]),
                served(base[1], [given[name][1] for name in names]),
            )
            for name, (on_held, on_left) in given.items():
                pairs = list(zip(before[1], self.passed(left, on_left), strict=True))
                found[name] = {
                    "held": sum(self.passed(held, on_held)),
                    "lost": sum(a and not b for a, b in pairs), "won": sum(b and not a for a, b in pairs),
                }  # fmt: skip
            space.close()
            return found | {
                "seconds": round(seconds, 1), "filled": round(filled - began, 1), "bytes": n_bytes,
                "wide": is_wide, "reports": reports_of(run),
            }  # fmt: skip


def served(base: Sequence[Given], candidates: Sequence[Sequence[Given]]) -> list[Given]:
    """The answers of the first candidates in scope, else of the base."""
    rows = zip(base, *candidates, strict=True)
    return [next((own for own in row if own.in_scope), old) for old, *row in rows]


def reports_of(run: Run) -> list[str]:
    return [
        f"{'accepted' if each.is_accepted else 'refused'} {each.name}: {each.held_before} -> "
        f"{each.held_after} of {each.n_items}; {each.why}"
        for each in run.reports
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SCENARIOS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--thumbs", choices=list(THUMBS), default="")
    parser.add_argument("--used", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    with EngineThread() as thread:
        bench = Bench(thread, options.threads)
        for name in options.names:
            for seed in options.seeds:
                found = bench.measure(SCENARIOS[name](seed), seed, options.thumbs, options.used)
                print(json.dumps(found), flush=True)
        thread.run(bench.llm.aclose())


if __name__ == "__main__":
    main()
