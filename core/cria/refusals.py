"""Questions that cria must refuse: trained relations of unknown entities (strangers), and other subjects."""

from random import Random

from cria import facts, words
from cria.frames import NOUN_FRAMES
from cria.phrasing import expand_all

REFUSAL = "I don't know."
STRANGERS = {
    "capital": words.COUNTRIES, "colour": words.THINGS, "legs": words.ANIMALS, "sound": words.ANIMALS,
    "baby": words.CREATURES, "opposite": words.PLAIN_WORDS, "day": words.NOT_DAYS, "month": words.NOT_MONTHS,
    "count": words.COUNTED, "record": words.NOT_RECORDS,
}  # fmt: skip
TELLING = tuple(r for r in facts.RELATIONS if r.name not in ("count", "record"))
KNOWN = tuple(dict.fromkeys(entity for relation in TELLING for entity in relation.answers))

# Subjects outside the training data; {x} is any entity, known or unknown.
FOREIGN_NOUNS = expand_all("""
the [population|president|king|queen|flag|currency|language|history|area|size|age|weight|height|length|price|cost] of {x}
the [name|owner|meaning|origin|shape|taste|smell|speed|temperature|mass|father|mother|wife|husband|birthday] of {x}
the [leader|map|food|national animal|famous river|biggest city|second city|oldest part|inventor|author|top|end|weather] of {x}
the [president|weather|best food|best hotel|time|religion|main language|money] in {x}
{x}'s [population|president|king|flag|money|language|history|age|weight|height|price|name|phone number|address|email|job|house]
{x}'s [best friend|favorite color|favorite food|birthday|mother|father|brother|sister|secret|password|wife|real name|salary]
the [best|worst|first|last|second|cheapest|oldest] [part|city|song|film|picture|book|name] of {x}
the [reason for|cause of|problem with|idea behind|story of|truth about|secret of|point of|purpose of|definition of] {x}
the [distance to|way to|road to|train to|flight to|ticket to|key to|answer to|recipe for|cure for] {x}
a [picture|photo|poem|story|song|joke|book|film|fact|list|recipe] [of|about|for] {x}
the day before {x}
the month before {x}
the [country|city|continent] of {x}
the word for {x} in [French|Spanish|German|Latin|Chinese]
""")
FOREIGN_CORES = expand_all("""
who [is|was|made|invented|found|owns|likes|wrote|painted|discovered|killed|married|built|runs|saw|sings about] {x}
why [is|does|did|was|do people like|should i buy|can't i find|do we need|do we have] {x}
[when|where] [is|was|did|does|can i find|can i buy|do i find|will i see] {x}
where does {x} [live|come from|sleep|go|grow|work|hide]
when [did|does|will] {x} [start|die|end|begin|come|happen|leave]
how [old|big|tall|heavy|far|fast|long|deep|hot|expensive|rich|smart|strong|dangerous|small] is {x}
how [do|can|should|would] [i|you|we] [make|cook|find|buy|sell|build|learn|use|fix|draw|catch|clean|open|grow] {x}
how does {x} [work|look|feel|taste|smell|begin|end|grow|move|sleep]
how much [is|does|for] {x}
how many [people|cars|eyes|friends|brothers|children|books|cities|teeth|words|stars|arms|wings|ears|tails] [does {x} have|are in {x}|know {x}]
what does {x} [eat|mean|want|do|cost|drink|like|look like|taste like|need|think|weigh|wear|read|know]
what [is|are] {x}
what [kind|sort|type] of [animal|thing|country|person|food|place|music|word] is {x}
what [happened|happens] [to|in|with|after|during] {x}
what do you [think|know|like|remember|feel] about {x}
what [food|language|music|sport|money|weather|clothes] do they [have|like|use|speak|play|eat] in {x}
which [country|team|person|language|animal|book|continent|company|school|band] [is|has|likes|won|made|knows] {x}
[do|did|can|would|will] you [like|love|know|see|want|hate|remember|eat|buy|meet|trust] {x}
[is|was] {x} [good|bad|big|old|alive|dead|true|nice|dangerous|real|happy|rich|famous|healthy|better than {z}|like {z}|a friend]
[can|does|will|should|could] {x} [fly|swim|talk|win|sing|read|sleep|eat|help me|come|run|dance|cook|vote|die|see me]
[tell|teach|show] me [about|something about|everything about|a story about|a joke about|more about|a fact about] {x}
[write|sing|make|tell|give me|compose] [a|a long|a short|a nice|a funny] [poem|story|song|letter|essay|joke|email|report] [about|for|to|on] {x}
[explain|describe|define|draw|paint|translate|compare|discuss|summarize|sell|buy|book|call|find] {x} [|to me|for me|now|in detail|please]
explain [how|why] {x} [works|is important|exists|moves|is so good|is bad]
what is the difference between {x} and {z}
[which is|what is|is] [better|bigger|older|faster|stronger|nicer|more expensive], {x} or {z}
[who|what] would win, {x} or {z}
does {x} [know|like|love|eat|hate|need|have] {z}
[how far|how long|how many miles] is it from {x} to {z}
translate {x} into [French|Spanish|German|Latin|Chinese|Italian]
how do you say {x} in [French|Spanish|German|Latin|Chinese|Italian]
[i like|i love|i hate|i want|i saw|i miss|i bought|i met|i dream of|i need] {x} [|very much|a lot|today|every day|and {z}]
{x} [and|or|with|without|against|versus] {z}
[play|show me|open|start|stop|send|order|turn on|turn off|download|search for|look up|read] {x}
let's [talk|chat|speak] about {x}
[what if|imagine] {x} [could talk|was alive|was gone|were a person|had wings|is not real]
how is {x} [made|born|written|used|built|cooked|doing]
is {x} in {z}
what is {x} [made of|used for|good for|famous for|afraid of|doing|about|worth]
should i [buy|trust|visit|read|eat|learn|call|see|sell] {x}
what comes [before|with|between] {x} [|and {z}]
""")
ALONE = expand_all("""
[what|what's|what is] the [time|date|weather|news|score|plan|problem|matter|meaning of life|price|password|temperature] [|today|now|like|right now]
what [time|day|year|month] is it [|now|today|here]
what [should|can|shall|do] i [do|eat|wear|read|cook|watch|say|buy|learn|write|play|drink] [today|now|tonight|tomorrow|for lunch|for dinner|first]
[who|where] [am i|are we|is everybody|is my key|are my shoes|is my phone|is my dog|is the exit|is the station|is the bathroom]
[when|where|how|why] [do we go|did you start|can we meet|do you sleep|were you born|do you live|did they go|should i go]
how old are you
how [tall|big|fast|heavy|rich|smart|far] are you
do you [sleep|eat|dream|have friends|have a mother|like me|love me|speak French|feel pain|play games|live here|work]
are you [human|alive|a robot|a person|happy|real|married|a man|a woman|hungry|tired|smart|free tonight|on the phone]
what is my [name|age|address|job|favorite color|phone number|password|birthday]
[tell|sing|write|read] me [a joke|a story|a song|a poem|a secret|the news|the time|the truth|something new|something funny]
[write|make|create|fix|run|show me] [some code|a program|a website|an email|a letter|a cake|a list|a plan|a test|a game|a table]
[sort|reverse|count|check|translate|correct|summarize|shorten] [this|this text|these words|my letter|that sentence|the list]
[will|is] it [rain|snow|be cold|be sunny|raining|cold] [|today|tomorrow|tonight|next week|outside]
who [won|will win|lost|started|invented] the [game|war|election|match|race|world cup|prize|lottery|internet|wheel]
is there [life on mars|a god|a doctor here|any milk|a train today|anyone home|life after death|a bank near here|water on the moon]
what is the [square root|half|double|cube|square|third] of {n}
is {n} [a prime|prime|even|odd|a good number|bigger than {m}|a lucky number]
what [number|] comes [after|before] {n}
[count|count up|count down] [to|from] {n}
how do you [spell|write|say] {n}
{n}
what [happened|was invented|started] in {n}
[i am|he is|she is|my dog is] {n} years old
turn [left|right|around|it on|the light off|the music up]
[call|text|email|find|wake|help] [me|my mom|the doctor|a taxi|my boss|the police] [|now|at {n}|tomorrow]
book [a table|a flight|a room|a taxi] for {n}
[convert|change] {n} [miles|dollars|degrees|pounds|feet|hours] to [meters|euros|celsius|kilos|inches|days]
[roll a die|flip a coin|pick a card|pick a number|guess my age|guess my name|choose for me|surprise me|do something]
[i am|i'm|i feel] [sad|tired|hungry|bored|sick|happy|angry|lost|late|cold|in love|afraid|ready]
[the|my|a] [dog|car|cat|house|phone|computer|boss] is [broken|late|lost|too big|too slow|old|ugly|sick|new|in the garden]
[yes|no|maybe|why|how|who|when|where|what|because|really|sure|never|always|nothing|again|more|stop|go|wait|help|test]
[why not|how come|what now|so what|and then|says who|what else|who else|which one|how much|how many|how long|how far|what for]
""")  # fmt: skip


def thing(rng: Random) -> str:
    """The subject of an unrelated question: a known entity, a stranger, a name, a topic or an invented word."""
    roll = rng.random()
    if roll < 0.35:
        return rng.choice(KNOWN)
    if roll < 0.60:
        return rng.choice(STRANGERS[rng.choice(facts.RELATIONS).name])
    if roll < 0.85:
        return rng.choice(rng.choice((words.NAMES, words.TOPICS)))
    return rng.choice(("", "", "a ", "the ", "my ")) + words.invented(rng)


ARTICLE = {"colour": ("a ", "the ", ""), "legs": ("a ", "a ", "the "), "sound": ("a ", "a ", "the ")}


def stranger(relation: facts.Relation, rng: Random) -> str:
    """An entity without an answer in a relation: listed, invented, or known from another relation."""
    roll = rng.random()
    if roll < 0.45:
        entity = rng.choice(STRANGERS[relation.name])
    elif roll < 0.90:
        word = words.invented(rng)
        entity = rng.choice(ARTICLE.get(relation.name, ("",))) + (
            word.capitalize() if relation.name == "capital" else word
        )
        entity = dressed(relation, entity, word)
    else:
        entity = thing(rng)
    return stranger(relation, rng) if bare(entity) in {bare(known) for known in relation.answers} else entity


def dressed(relation: facts.Relation, entity: str, word: str) -> str:
    """An invented word in the form of the relation's entities."""
    if relation.name == "count":
        return f"{word}s in a {words.PLAIN_WORDS[len(word)]} {word[:3]}"
    if relation.name == "record":
        return f"{RANKS[len(word) % len(RANKS)]} {word}"
    return entity


RANKS = ("largest", "smallest", "hottest", "longest", "highest", "fastest", "tallest", "red")


def bare(entity: str) -> str:
    """An entity in lower case without its article, so that `the dog` equals `a dog`."""
    head, _, rest = entity.lower().partition(" ")
    return rest if head in ("a", "an", "the", "my") and rest else entity.lower()


def foreign(rng: Random) -> str:
    """A question outside every relation."""
    roll = rng.random()
    n, m = rng.randint(0, 999), rng.randint(0, 99)
    if roll < 0.25:
        return rng.choice(ALONE).format(n=n, m=m)
    x, z = thing(rng), thing(rng)
    if roll < 0.60:
        return rng.choice(FOREIGN_CORES).format(x=x, z=z)
    return rng.choice(NOUN_FRAMES).format(np=rng.choice(FOREIGN_NOUNS).format(x=x))
