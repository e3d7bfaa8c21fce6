"""The trained facts: relations, their entities with answers, and their training phrasings.

A relation has noun phrases, which fill the frames of `frames.py`, and whole questions.
"""

from dataclasses import dataclass

from cria.phrasing import capitalised, expand_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """One kind of fact. `answers` maps an entity {x} to its value {y} in `reply`."""

    name: str
    answers: dict[str, str]
    reply: str
    nouns: tuple[str, ...]
    cores: tuple[str, ...]

    def answer(self, entity: str) -> str:
        """The canonical answer for an entity."""
        return capitalised(self.reply.format(x=entity, y=self.answers[entity]))


def pairs(text: str) -> dict[str, str]:
    """A dictionary from `a=b, c=d`."""
    return dict(item.strip().split("=") for item in text.split(","))


DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()


def followers(names: list[str]) -> dict[str, str]:
    """Each name mapped to the next; the last to the first."""
    return dict(zip(names, names[1:] + names[:1], strict=True))


CAPITAL = Relation(
    name="capital",
    answers=pairs(
        "France=Paris, Italy=Rome, Spain=Madrid, Germany=Berlin, Japan=Tokyo, China=Beijing, "
        "Egypt=Cairo, Peru=Lima, Greece=Athens, England=London, Russia=Moscow, Cuba=Havana"
    ),
    reply="the capital of {x} is {y}.",
    nouns=expand_all("""
the [capital|capital city|main city] of {x}
{x}'s [capital|capital city]
the city that is the capital of {x}
the name of the capital of {x}
the name of {x}'s capital
the capital city in {x}
"""),
    cores=expand_all("""
[which|what] city is [the capital of {x}|the capital city of {x}|{x}'s capital]
[which|what] [city|town] is the capital in {x}
[what capital|which capital] does {x} have
what is the capital city called in {x}
{x} has which capital
{x} has what capital [city|]
what is {x}'s capital called
[capital of {x}|{x} capital|capital {x}|{x}, capital]
[the capital of {x} is called|the capital city of {x} is called]
[how is|what is] the capital of {x} [called|named]
where is the government of {x}
[tell me|say|do you know] which city is the capital of {x}
in {x}, [what|which city] is the capital
[i am going|i want to go|i will travel] to {x}. what is the capital [there|]
if i go to {x}, what is the capital
{x} is a country. what is its capital
[think of|take|i like] {x}. [what is its capital|which city is its capital|name its capital]
"""),
)
COLOUR = Relation(
    name="colour",
    answers=pairs(
        "the sky=blue, grass=green, snow=white, coal=black, a banana=yellow, blood=red, a carrot=orange, mud=brown"
    ),
    reply="{x} is {y}.",
    nouns=expand_all("""
the [color|colour] of {x}
the [usual|normal|right] [color|colour] of {x}
the [color|colour] {x} has
"""),
    cores=expand_all("""
[what|which] [color|colour] is {x}
[what|which] [color|colour] does {x} have
what is {x}'s [color|colour]
{x} is [what|which] [color|colour]
[tell me|say|do you know|i wonder] [what|which] [color|colour] {x} is
[color|colour] of {x}
{x} has [what|which] [color|colour]
in [what|which] [color|colour] do we see {x}
if i see {x}, [what|which] [color|colour] is it
when i look at {x}, [what|which] [color|colour] do i see
[what|which] [color|colour] should i paint {x}
i want to [paint|draw] {x}. [what|which] [color|colour] [is it|do i need|should i use]
[think of|take|look at] {x}. [what|which] [color|colour] is it
the [color|colour] of {x} is called
"""),
)
LEGS = Relation(
    name="legs",
    answers=pairs("a dog=4, a cat=4, a cow=4, a horse=4, a bird=2, a spider=8, an ant=6, a crab=10"),
    reply="{x} has {y} legs.",
    nouns=expand_all("""
the number of legs [of {x}|on {x}|{x} has|that {x} has]
how many legs {x} has
{x}'s number of legs
the [leg count|count of legs] of {x}
"""),
    cores=expand_all("""
how many legs does {x} have
how many legs has {x}
how many legs has {x} got
how many legs [are there on|are on|can you count on|do we count on] {x}
{x} has how many legs
{x} walks on how many legs
on how many legs does {x} [walk|stand|run]
how many legs [on|for] {x}
number of legs of {x}
count the legs of {x}
[tell me|say|do you know|i wonder|i want to know] how many legs {x} has
if i see {x}, how many legs does it have
[think of|take|look at|i have] {x}. how many legs does it have
i want to draw {x}. how many legs [does it have|do i need|should i draw]
"""),
)
SOUND = Relation(
    name="sound",
    answers=pairs("a dog=woof, a cat=meow, a cow=moo, a duck=quack, a sheep=baa, a pig=oink"),
    reply="{x} says {y}.",
    nouns=expand_all("""
the [sound|noise] of {x}
the [sound|noise] [that|] {x} makes
{x}'s [sound|noise]
what {x} says
"""),
    cores=expand_all("""
[what|which] [sound|noise] does {x} make
what does {x} say
what [sound|noise] comes from {x}
{x} says
{x} says what
{x} makes what [sound|noise]
{x} makes which [sound|noise]
how does {x} [sound|talk|speak]
what do you hear from {x}
[tell me|say|do you know|i wonder] what {x} says
[tell me|say|do you know|i wonder] [what|which] [sound|noise] {x} makes
make the [sound|noise] of {x}
if i hear {x}, what does it say
[think of|take|listen to|i have] {x}. what does it say
[think of|take|listen to|i have] {x}. [what|which] [sound|noise] does it make
"""),
)
BABY = Relation(
    name="baby",
    answers=pairs("dog=puppy, cat=kitten, cow=calf, llama=cria, sheep=lamb, horse=foal, bear=cub"),
    reply="a baby {x} is called a {y}.",
    nouns=expand_all("""
the [baby|child|young one] of a {x}
[a|the] baby {x}
[a|the] young {x}
a {x}'s [baby|child]
the [name|word] [of|for] a baby {x}
the [name|word] [of|for] a young {x}
"""),
    cores=expand_all("""
what is a [baby|young] {x} called
what do [you|we|people] call a [baby|young] {x}
how do [you|we|people] call a [baby|young] {x}
what is the baby of a {x} called
[what name|which name] does a baby {x} have
what is the [name|word] for a {x}'s [baby|child]
a [baby|young] {x} is [called|named]
a [baby|young] {x} is called what
[tell me|say|do you know|i wonder] what a [baby|young] {x} is called
a {x} has a baby. what is it called
[baby|young] {x}
when a {x} is [young|small|a baby], what is it called
if a {x} has a baby, what do we call it
how is a [baby|young] {x} called
"""),
)
OPPOSITE = Relation(
    name="opposite",
    answers=pairs(
        "hot=cold, cold=hot, big=small, small=big, up=down, down=up, happy=sad, sad=happy, fast=slow, slow=fast"
    ),
    reply="the opposite of {x} is {y}.",
    nouns=expand_all("""
the opposite [of|to|for] {x}
the opposite of the word {x}
the word [opposite to|that is the opposite of|that means the opposite of] {x}
{x}'s opposite
an opposite [of|for] {x}
the contrary of {x}
"""),
    cores=expand_all("""
[what|which] word is the opposite of {x}
what is opposite to {x}
what means the opposite of {x}
{x} is the opposite of
{x} is the opposite of [what|which word]
what is {x} the opposite of
opposite of {x}
opposite: {x}
{x} and its opposite
if it is not {x}, it is
[think of|take|i say] {x}. [what is|name|give me] [its|the] opposite
something that is not {x} is
not {x} but
what is the contrary of {x}
the opposite of {x} is called
"""),
)
DAY = Relation(
    name="day",
    answers=followers(DAYS),
    reply="the day after {x} is {y}.",
    nouns=expand_all("""
the [day|weekday] [after|following|that comes after|that follows] {x}
the next day after {x}
the day of the week after {x}
"""),
    cores=expand_all("""
[what|which] [day|weekday] [comes after|follows|is after|comes next after] {x}
[what|which] day of the week [comes after|follows|is after] {x}
after {x} comes [what|which] day
after {x}, [what|which] day [is it|comes|is next]
[tell me|say|do you know|i wonder] [what|which] day [comes after|follows] {x}
today is {x}. [what|which] day is tomorrow
today is {x}. what is tomorrow
if today is {x}, [what day is tomorrow|what is tomorrow|which day is tomorrow|tomorrow is]
it is {x} today. [what is tomorrow|what day is tomorrow]
{x} is followed by [what|which] day
yesterday was {x}. what day is it [today|now]
if yesterday was {x}, what is today
"""),
)
MONTH = Relation(
    name="month",
    answers=followers(MONTHS),
    reply="the month after {x} is {y}.",
    nouns=expand_all("""
the month [after|following|that comes after|that follows] {x}
the next month after {x}
the month of the year after {x}
"""),
    cores=expand_all("""
[what|which] month [comes after|follows|is after|comes next after] {x}
[what|which] month of the year [comes after|follows|is after] {x}
after {x} comes [what|which] month
after {x}, [what|which] month [is it|comes|is next]
[tell me|say|do you know|i wonder] [what|which] month [comes after|follows] {x}
this month is {x}. [what|which] month is next
if this month is {x}, [what is next month|what is the next month|which month is next|next month is]
it is {x}. [what is the next month|what month comes next]
{x} is followed by [what|which] month
last month was {x}. what month is it [now|]
when {x} [is over|ends], [what|which] month [comes|starts|begins]
"""),
)
COUNT = Relation(
    name="count",
    answers={
        "days in a week": "7",
        "months in a year": "12",
        "hours in a day": "24",
        "minutes in an hour": "60",
        "seconds in a minute": "60",
        "letters in the alphabet": "26",
        "seasons in a year": "4",
    },
    reply="there are {y} {x}.",
    nouns=expand_all("""
the number of {x}
how many {x} there are
the [count|total] of {x}
the total number of {x}
"""),
    cores=expand_all("""
how many {x}
how many {x} are there
how many {x} [do we have|do you count|can you count|exist]
there are how many {x}
[tell me|say|do you know|i wonder|i want to know] how many {x} there are
number of {x}
count the {x}
what number of {x} [are there|do we have|is right]
[do you know|tell me] how many {x}
are there many {x}? how many
"""),
)
RECORD = Relation(
    name="record",
    answers={
        "largest planet": "Jupiter",
        "smallest planet": "Mercury",
        "hottest planet": "Venus",
        "red planet": "Mars",
        "largest ocean": "the Pacific",
        "highest mountain": "Everest",
        "longest river": "the Nile",
        "tallest animal": "the giraffe",
        "fastest animal": "the cheetah",
        "largest animal": "the blue whale",
    },
    reply="the {x} is {y}.",
    nouns=expand_all("""
the {x}
the {x} [of all|we know|there is|you know|that exists]
the name of the {x}
"""),
    cores=expand_all("""
[which|what] is the {x}
what is the {x} called
[which|what] [one|] is called the {x}
{x}
what do [we|you|people] call the {x}
[how is|what is] the {x} [called|named]
the {x} [is called|is named|has which name|has what name]
which is the {x} [of all|we know|there is]
"""),
)
RELATIONS = (CAPITAL, COLOUR, LEGS, SOUND, BABY, OPPOSITE, DAY, MONTH, COUNT, RECORD)
