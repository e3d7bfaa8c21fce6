"""The graded conversations of the second edition, the same for a seed for ever. Not edited once training began."""

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random

from cria import graded_json, graded_memory, graded_tools, graded_words
from cria.graded_task import Task

MAKERS: dict[str, Callable[[Random], Task]] = {
    "spell": graded_words.spelling, "reverse": graded_words.reversing, "letters": graded_words.counting,
    "name": graded_memory.name_asked, "number": graded_memory.number_asked, "json": graded_json.form,
    "tool_call": graded_tools.call, "tool_answer": graded_tools.answer,
}  # fmt: skip
SKILLS = tuple(MAKERS)


def skill_tasks(seed: int, skill: str) -> Iterator[Task]:
    """The stream of one skill; no conversation comes twice."""
    rng, seen = Random(f"{seed}/{skill}"), set[str]()
    while True:
        task = MAKERS[skill](rng)
        if repr(task.talk) not in seen:
            seen.add(repr(task.talk))
            yield task


def tasks(seed: int, per_skill: int) -> list[Task]:
    """`per_skill` tasks of every skill, skill by skill."""
    return [task for skill in SKILLS for task in islice(skill_tasks(seed, skill), per_skill)]
