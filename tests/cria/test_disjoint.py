"""No graded prompt is in the training stream: by template, by number pair, and in a sample of the stream."""

from itertools import combinations, islice

import pytest

from cria import (
    arithmetic,
    chatter,
    conversations,
    facts,
    frames,
    graded_items,
    graded_json,
    graded_memory,
    graded_tasks,
    graded_tools,
    graded_words,
    letters,
    lexicon,
    memory,
    refusals,
    schemas,
    tools,
    words,
)
from cria import graded_phrasings as ours
from cria.phrasing import normalise
from cria.refusals import bare


def framed(nouns, cores=()):
    """Every undecorated training template of these nouns and cores."""
    return {normalise(core) for core in cores} | {
        normalise(frame.replace("{np}", noun)) for frame in frames.NOUN_FRAMES for noun in nouns
    }


def undecorated(template):
    """A template with and without each training prefix and suffix."""
    text = normalise(template)
    heads = [normalise(p) for p in frames.PREFIXES]
    tails = [normalise(s) for s in frames.SUFFIXES]
    cut = [text.removeprefix(head + " ") for head in heads if text.startswith(head + " ")] + [text]
    return {part.removesuffix(" " + tail) if tail else part for part in cut for tail in ["", *tails]}


def overlap(graded, training):
    return {template for template in graded if undecorated(template) & training}


SIDES = {
    "add": (ours.ADD, framed(arithmetic.ADD_NOUNS, arithmetic.ADD_CORES)),
    "sub": (ours.SUBTRACT, framed(arithmetic.SUB_NOUNS, arithmetic.SUB_CORES)),
    "other": (ours.OTHER, framed((), arithmetic.OTHER_CORES)),
    "foreign": (ours.FOREIGN, framed(refusals.FOREIGN_NOUNS, refusals.FOREIGN_CORES)),
    "alone": (ours.ALONE, framed((), refusals.ALONE)),
    "spell": (graded_words.SPELL, framed((), letters.SPELL)),
    "reverse": (graded_words.REVERSE, framed((), letters.REVERSE)),
    "letters": (graded_words.COUNT, framed((), letters.COUNT)),
    "tell": (graded_memory.TELL, framed((), memory.TELL_BOTH + memory.TELL_NAME + memory.TELL_NUMBER)),
    "name": (graded_memory.ASK_NAME, framed((), memory.ASK_NAME)),
    "number": (graded_memory.ASK_NUMBER, framed((), memory.ASK_NUMBER)),
    "JSON facts": (graded_json.FACTS, framed((), schemas.FACTS)),
    "JSON asks": (graded_json.ASKS + graded_json.SYSTEMS, framed((), schemas.ASKS + schemas.SYSTEMS)),
    "tool names": (graded_tools.NAMES + graded_tools.ABOUTS, framed((), tools.NAMES + tools.ABOUTS)),
    "tool questions": (graded_tools.QUESTIONS, framed((), tools.QUESTIONS)),
    **{f"greet {kind}": (ours.GREET[kind], framed((), chatter.CORES[kind])) for kind in ours.GREET},
    **{r.name: (ours.FACTS[r.name], framed(r.nouns, r.cores)) for r in facts.RELATIONS},
}


@pytest.mark.parametrize("side", SIDES)
def test_graded_templates_are_not_training_templates(side):
    assert overlap(*SIDES[side]) == set()


def unstirred(text):
    """The text without up to three of its filler words, in every combination."""
    words = text.split()
    places = [i for i, word in enumerate(words) if word in frames.FILLERS]
    for n in range(4):
        for cut in combinations(places, n):
            yield " ".join(word for i, word in enumerate(words) if i not in cut)


@pytest.mark.parametrize("side", ["add", "sub", "other"])
def test_filler_words_never_turn_a_training_template_into_a_graded_one(side):
    graded, training = SIDES[side]
    made = {t for t in graded if any(training & set(unstirred(part)) for part in undecorated(t))}
    assert made == set()


def test_graded_frames_are_not_training_frames():
    assert overlap(ours.FRAMES, {normalise(frame) for frame in frames.NOUN_FRAMES}) == set()


def test_graded_strangers_are_not_in_the_training_lists():
    for name, strangers in ours.STRANGERS.items():
        taken = {bare(entity) for entity in (*refusals.STRANGERS[name], *refusals.KNOWN)}
        assert {entity for entity in strangers if bare(entity) in taken} == set(), name


# The grader's own words, and every training list that could contain them.
WORDS = {
    "words": (graded_words.WORDS, lexicon.LETTER_WORDS),
    "names": (graded_memory.NAMES, (*lexicon.FIRST_NAMES, *lexicon.PLACES, *chatter.NAMES)),
    "places": (graded_json.PLACES, (*lexicon.FIRST_NAMES, *lexicon.PLACES)),
    **{f"{kind} keys": (keys, schemas.TRAINING.keys[kind]) for kind, keys in graded_json.KEYS.items()},
    "topics": (graded_tools.TOPICS, lexicon.TOPICS),
    "arguments": (graded_tools.ARGUMENTS, lexicon.ARGUMENTS),
    "results": (graded_tools.RESULTS, lexicon.RESULT_WORDS),
}


@pytest.mark.parametrize("kind", WORDS)
def test_graded_words_are_not_training_words(kind):
    graded, training = WORDS[kind]
    assert len(graded) >= 10
    assert set(graded) & set(training) == set()


def test_no_training_generator_invents_a_graded_word():
    rng, draws = conversations.Random(4), (lexicon.letter_word, lexicon.person, lexicon.place)
    drawn = {draw(rng) for _ in range(8_000) for draw in draws}
    graded = {*graded_words.WORDS, *graded_memory.NAMES, *graded_json.PLACES}
    assert len(drawn) > 8_000
    assert drawn & graded == set()
    assert not any(words.held_out(word.lower()) for word in drawn)
    assert all(words.held_out(lexicon.assembled(rng, want_held_out=True)) for _ in range(1000))


def test_no_label_is_a_graded_key_topic_argument_or_result():
    rng = conversations.Random(5)
    drawn = {lexicon.label(rng) for _ in range(20_000)} | set(lexicon.LETTER_WORDS) - set(
        lexicon.GRADED_LABELS
    )
    keys = {key for keys in graded_json.KEYS.values() for key in keys}
    assert drawn & {*keys, *graded_tools.TOPICS, *graded_tools.ARGUMENTS, *graded_tools.RESULTS} == set()


def test_held_out_numbers_are_never_drawn():
    rng = conversations.Random(3)
    assert not any(words.held_out(f"number {memory.number(rng)}") for _ in range(5_000))
    assert not any(arithmetic.sum_held_out(*arithmetic.sum_numbers(rng)) for _ in range(20_000))
    assert not any(arithmetic.difference_held_out(*arithmetic.difference_numbers(rng)) for _ in range(20_000))
    assert not any(words.held_out(words.invented(rng)) for _ in range(5_000))


def first_words(task):
    """The first user message of a task: each kind of task has its own words there."""
    return next(m["content"] for m in task.talk.messages if m["role"] == "user")


def test_no_graded_prompt_in_eight_thousand_conversations():
    graded = {normalise(item.prompt) for seed in range(5) for item in graded_items.items(seed, 300)}
    graded |= {normalise(first_words(task)) for seed in range(3) for task in graded_tasks.tasks(seed, 100)}
    stream = islice(conversations.conversations("sample"), 8_000)
    seen = {normalise(m["content"]) for talk in stream for m in talk.messages if m["role"] == "user"}
    assert len(seen) > 20_000
    assert graded & seen == set()


def test_the_streams_are_the_same_for_a_seed():
    first, again, other = (list(islice(conversations.conversations(seed), 200)) for seed in (1, 1, 2))
    assert first == again != other
    for draw in (graded_items.items, graded_tasks.tasks):
        assert draw(4, 50) == draw(4, 50) != draw(5, 50)


def test_the_first_fifty_prompts_cover_every_skill():
    prompts = graded_items.first_prompts(9, 50)
    assert prompts == [item.prompt for item in graded_items.items(9, 300)[:50]]
    assert {item.skill for item in graded_items.items(9, 10)} == set(graded_items.SKILLS)
