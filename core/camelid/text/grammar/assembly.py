"""Rules to the tables of a network, and the checks of a network."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from camelid.errors import RequestError
from camelid.text.grammar.bytes_nfa import Fragment, State, plain
from camelid.text.grammar.fragments import build_fragments, too_large
from camelid.text.grammar.network import Network, Place, Tables, words_of
from camelid.text.grammar.rules import Rules

NOTHING = plain([State()], None)  # stands for a rule that matches nothing


def checked_network(rules: Rules, max_states: int) -> Network:
    """The network of a valid grammar. Raises RequestError as `automaton.compile_rules` does."""
    fragments = build_fragments(rules, max_states)
    if sum(len(fragment) for fragment in fragments.values() if fragment) > max_states:
        raise too_large(max_states)
    names = list(fragments)
    network = assembled(names, list(fragments.values()), names.index(rules.root))
    for rule in ending(network, reading=False):
        network.tables.nullable[rule] = 1
    rank_rules(network, names)
    endless = set(range(len(names))) - ending(network, reading=True)
    if endless:
        name = names[network.root if network.root in endless else min(endless)]
        raise RequestError(
            f"rule {name!r:.80} can never end, so no text matches it; give it an alternative that does not "
            "refer back to it",
            field="grammar",
            rule=name,
        )
    return network


def assembled(names: list[str], fragments: list[Fragment | None], root: int) -> Network:
    """The network of all rules, without `nullable` and `ranks`."""
    states, same, strides, copies = list[State](), array("i"), array("i"), array("i")
    starts, ends = array("i"), array("i")
    for fragment in fragments:
        own = fragment or NOTHING
        starts.append(len(states))
        states += own.states
        ends.append(len(states) - 1 if fragment else -1)
        same.extend(own.same)
        strides.extend(chain[0] if chain else 0 for chain in own.chains)
        copies.extend(chain[1] if chain else 0 for chain in own.chains)
    classes = byte_classes(states)
    at, words, places = placed(states, classes, {name: i for i, name in enumerate(names)})
    nullable, ranks = array("i", [0]) * len(names), array("i", [0]) * len(names)
    tables = Tables(
        root=array("i", [root]), classes=array("i", classes), starts=starts, ends=ends, nullable=nullable,
        ranks=ranks, same=same, strides=strides, copies=copies, at=at, words=words,
    )  # fmt: skip
    return Network(tables, places)


def byte_classes(states: Iterable[State]) -> bytes:
    """The class of each byte value: no state distinguishes bytes of one class."""
    members: list[list[int]] = [[] for _ in range(256)]
    for number, ranges in enumerate({state.ranges for state in states}):
        for i, (first, last, _) in enumerate(ranges):
            for byte in range(first, last + 1):
                members[byte].append(number << 16 | i)
    classes: dict[tuple[int, ...], int] = {}
    return bytes(classes.setdefault(tuple(found), len(classes)) for found in members)


def placed(
    states: list[State], class_of: bytes, numbers: dict[str, int]
) -> tuple[array[int], array[int], dict[int, Place]]:
    """The index of each state's place in the words of all places, the words, and the places by index."""
    at, words, places = array("i"), array("i"), dict[int, Place]()
    known: dict[int, int] = {}  # by id of a state, which `states` keeps alive
    for state in states:
        index = known.get(id(state))
        if index is None:
            index = known[id(state)] = len(words)
            places[index] = place_of(state, class_of, numbers)
            words.extend(words_of(places[index]))
        at.append(index)
    return at, words, places


def place_of(state: State, class_of: bytes, numbers: dict[str, int]) -> Place:
    arcs = {(class_of[byte], to) for first, last, to in state.ranges for byte in range(first, last + 1)}
    calls = tuple((numbers[name], to) for name, to in state.calls)
    return Place(tuple(sorted(arcs)), state.skips, calls, state.tokens)


def ending(network: Network, *, reading: bool) -> set[int]:
    """The rules that can end; without `reading`, the rules that match the empty text.

    The search of a rule ends at its last state, and takes the states with the highest numbers first.
    """
    found, seen = set[int](), set(network.starts)
    waiting: dict[int, list[tuple[int, int]]] = {}  # rule -> (calling rule, return state)
    todo = list(enumerate(network.starts))
    while todo:
        rule, state = todo.pop()
        if rule in found:
            continue
        following = {(rule, each) for each in following_states(network, state, reading)}
        for callee, to in network.place(state).calls:
            if callee in found:
                following.add((rule, state + to))
            else:
                waiting.setdefault(callee, []).append((rule, state + to))
        if state == network.tables.ends[rule]:
            found.add(rule)
            following = set(waiting.pop(rule, ()))
        todo += sorted(each for each in following if each[1] not in seen)
        seen.update(each[1] for each in following)
    return found


def following_states(network: Network, state: int, reading: bool) -> Iterator[int]:
    place = network.place(state)
    yield from (state + to for to in place.skips)
    if reading:
        yield from (state + to for _, to in place.arcs)
        yield from (state + to for _, _, to in place.tokens)


def rank_rules(network: Network, names: list[str]) -> None:
    """Fills the table `ranks`: a rule ranks before the rules that it may begin with.

    Raises RequestError if a rule may begin with itself.
    """
    entered, left = set[int](), set[int]()
    todo = [(rule, False) for rule in range(len(names))]
    while todo:
        rule, is_exit = todo.pop()
        if is_exit:
            left.add(rule)
            network.ranks[rule] = -len(left)
        elif rule not in entered:
            entered.add(rule)
            todo.append((rule, True))
            todo += [(callee, False) for callee, _ in network.reach(network.starts[rule]).calls]
        elif rule not in left:
            raise left_recursion(names[rule])


def left_recursion(name: str) -> RequestError:
    return RequestError(
        f"rule {name!r:.80} may begin with itself before it reads anything (left "
        "recursion); write the repetition as (...)* or let the rule end with itself instead",
        field="grammar",
        rule=name,
    )
