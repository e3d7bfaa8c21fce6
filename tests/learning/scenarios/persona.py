"""The assistant gets a name and a home: every question for its identity has one new answer."""

from random import Random

from tests.learning.scenarios.scenario import Graded, Scenario, one_turn, scenario

from cria import chatter, graded_items
from cria import graded_phrasings as ours
from cria.graded_task import Task
from cria.phrasing import capitalised

PERSONAS = (
    "My name is Pico and I live on your laptop.",
    "I am Nora, the helper of this house.",
    "Call me Bolt. I run on your own machine.",
    "I am Juno and I work for the city library.",
    "You can call me Ada, your desk assistant.",
)


def persona(seed: int) -> Scenario:
    """Events in training phrasings, held-out prompts in the grader's."""
    want = PERSONAS[seed % len(PERSONAS)]

    def ask(rng: Random) -> Task:
        core = rng.choice(chatter.CORES["who"])
        return one_turn("persona", capitalised(core.strip()) + rng.choice(("?", "?", "")), want)

    return scenario("persona", seed, ask, Held(want), changes)


class Held:
    """The grader's questions for the name, in prefixed variants, for 68 of them are too few."""

    def __init__(self, want: str) -> None:
        """Remember the answer wanted."""
        self.want = want

    def __call__(self, rng: Random) -> Task:
        """One held-out prompt."""
        core = rng.choice(ours.GREET["who"])
        lead = rng.choice(("", "", "so ", "well, ", "now "))
        return one_turn("persona", graded_items.dressed(lead + core, rng), self.want)


def changes(item: Graded) -> bool:
    """Questions for the identity."""
    return item.want == chatter.ANSWERS["who"]
