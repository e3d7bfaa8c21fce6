"""Nine scenarios of feedback for cria, written before any training: seeded, standard library only."""

from collections.abc import Callable

from tests.learning.scenarios.bare import bare
from tests.learning.scenarios.facts import facts
from tests.learning.scenarios.habit import habit
from tests.learning.scenarios.order import order
from tests.learning.scenarios.persona import persona
from tests.learning.scenarios.recall import recall
from tests.learning.scenarios.rule import rule
from tests.learning.scenarios.scenario import Scenario
from tests.learning.scenarios.style import style
from tests.learning.scenarios.toolkit import toolkit

SCENARIOS: dict[str, Callable[[int], Scenario]] = {
    "persona": persona, "facts": facts, "toolkit": toolkit, "style": style, "order": order, "recall": recall,
    "bare": bare, "habit": habit, "rule": rule,
}  # fmt: skip
