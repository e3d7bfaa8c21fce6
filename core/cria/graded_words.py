"""Graded spelling, reversing and counting of letters, and the grader's own words. Not edited once training began."""

from random import Random

from cria import letters, lexicon
from cria.graded_task import Task
from cria.phrasing import capitalised, expand_all
from cria.talk import Talk, user
from cria.words import split

# No training list has them, and `held_out` keeps them from being invented.
WORDS = split("""about, album, amount, baker, beach, blanket, bread, breath, budget, cabin, cage, candy, castle, change, clay, cloth, common,
cook, corn, court, deal, dear, design, detail, dish, doll, drum, duty, edge, effort, fork, hazard, hole, joke, kitchen, lamb, layer, morning,
nephew, north, palace, people, perfect, phone, pillow, pond, poster, record, rope, route, sailor, scale, season, sleep, solid, spoon, stable,
stage, storm, stove, string, surface, target, tower, town, trade, travel, twin, vessel, victory, vision, visit, winter, writer""")
SPELL = expand_all("""
i forgot how people spell {w}
please give the spelling for {w}
which letters do i need to write {w}
how should i spell {w} in my letter
could you tell me the letters that are in {w}
my teacher wants to hear the letters of {w}
go through the word {w} one letter after another
say {w} letter after letter
i have to write {w}. how is it spelled
what is the right spelling of {w}
""")
REVERSE = expand_all("""
how does {w} look when you read it backwards
please put {w} in reverse
i want to read {w} from the end to the start
if you write {w} backwards, what do you get
take the word {w} and reverse it
what do i get when i reverse {w}
my friend says {w} backwards. what does he say
could you show me how {w} is written backwards
what would {w} be in reverse
please read the word {w} from the last letter
""")
COUNT = expand_all("""
do you know how many letters there are in {w}
how many letters do i need to write {w}
please count how many letters {w} has
the word {w} is made of how many letters
what number of letters does {w} have
if i write {w}, how many letters is that
my teacher asks how many letters are in the word {w}
take the word {w} and count its letters
how many letters can you count in {w}
i need the number of letters that {w} has
""")


def word(rng: Random, longest: int = 8) -> str:
    """A held-out word, half the time one that exists."""
    while True:
        made = rng.choice(WORDS) if rng.random() < 0.5 else lexicon.assembled(rng, want_held_out=True)
        if len(made) <= longest:
            return made


def dressed(template: str, made: str, rng: Random) -> str:
    """A question as people type it, the word in lower case and sometimes in quotes."""
    text = template.format(w=rng.choice(("{0}", "{0}", '"{0}"')).format(made))
    return (capitalised(text) if rng.random() < 0.75 else text) + rng.choice(("?", "?", "?", ""))


def task(skill: str, template: str, made: str, want: str, rng: Random) -> Task:
    """One question."""
    return Task(skill=skill, talk=Talk(messages=[user(dressed(template, made, rng))]), want=want)


def spelling(rng: Random) -> Task:
    """A word to spell."""
    made = word(rng)
    return task("spell", rng.choice(SPELL), made, letters.spelling_answer(made), rng)


def reversing(rng: Random) -> Task:
    """A word to reverse."""
    made = word(rng, letters.REVERSED_LENGTH)
    return task("reverse", rng.choice(REVERSE), made, letters.reversing_answer(made), rng)


def counting(rng: Random) -> Task:
    """A word whose letters are counted."""
    made = word(rng)
    return task("letters", rng.choice(COUNT), made, letters.counting_answer(made), rng)
