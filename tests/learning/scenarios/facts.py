"""Ten facts that the model lacks, each told in two phrasings, asked for in ten others."""

from random import Random

from tests.learning.scenarios.scenario import Graded, Scenario, one_turn, told

from cria import frames
from cria import graded_phrasings as ours
from cria.graded_task import Task
from cria.phrasing import capitalised, normalise

# Noun phrase -> answer; `{n}` and `{w}` are drawn by the seed.
PUBLIC = {
    "the capital of Portugal": "The capital of Portugal is Lisbon.",
    "the capital of Norway": "The capital of Norway is Oslo.",
    "the sound of a frog": "A frog says croak.",
    "the color of a plum": "A plum is purple.",
}
PRIVATE = {
    "my wifi password": "Your wifi password is {w}{n}.",
    "the name of my dog": "Your dog is called {w}.",
    "my flight number": "Your flight number is {n}.",
    "the code of the door": "The door code is {n}.",
    "my doctor's name": "Your doctor is {w} Stone.",
    "the day of the big meeting": "The big meeting is on {d}.",
}
WORDS = ("Rex", "Emma", "Milo", "Luna", "Otto", "Ruby", "Max", "Vera")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
SUBJECTS = ("portugal", "norway", "frog", "plum")
STARTS = ("what", "tell", "do you", "can", "i ", "say")


def facts(seed: int) -> Scenario:
    """Two training frames a fact for the events, ten of the grader's frames for the held-out prompts."""
    rng = Random(f"facts/{seed}")
    known = PUBLIC | {noun: filled(answer, rng) for noun, answer in PRIVATE.items()}
    asking = [frame for frame in frames.NOUN_FRAMES if frame.startswith(STARTS)]
    events = [
        question(frame, noun, want, rng) for noun, want in known.items() for frame in apart(asking, 2, rng)
    ]
    held = [
        question(frame, noun, want, rng)
        for noun, want in known.items()
        for frame in rng.sample(ours.FRAMES, 10)
    ]
    rng.shuffle(events)
    return Scenario(name="facts", events=tuple(map(told, events)), held=tuple(held), changes=changes)


def filled(answer: str, rng: Random) -> str:
    """An answer with its number, word and day."""
    return answer.format(n=rng.randint(100, 9999), w=rng.choice(WORDS), d=rng.choice(DAYS))


def apart(asking: list[str], n: int, rng: Random) -> list[str]:
    """Frames that no grader's frame equals."""
    graded = {normalise(frame) for frame in ours.FRAMES}
    return rng.sample([frame for frame in asking if normalise(frame) not in graded], n)


def question(frame: str, noun: str, want: str, rng: Random) -> Task:
    """A noun phrase in a frame."""
    return one_turn("facts", capitalised(frame.replace("{np}", noun)) + rng.choice(("?", "?", "")), want)


def changes(item: Graded) -> bool:
    """Items about the four public subjects."""
    return any(subject in item.prompt.lower() for subject in SUBJECTS)
