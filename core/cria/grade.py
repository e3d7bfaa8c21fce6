"""Grade a model file: `python -m cria.grade MODEL.gguf --seed N [--items 300] [--backend reference]`."""

import argparse
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from cria import graded_tasks
from cria.graded_items import SKILLS, Item, items
from cria.graded_task import Task
from cria.talk import Talk, user

GRADES = Path(__file__).with_name("grades.jsonl")
Answers = Callable[[list[Talk]], list[str]]
Graded = Item | Task


def score(graded: list[Graded], answers: list[str]) -> dict[str, float]:
    """The share of right answers of each skill; for `refuse`, the mean of the shares of its two sides."""
    plain = [skill for skill in (*SKILLS, *graded_tasks.SKILLS) if skill != "refuse"]
    shares = {skill: share(graded, answers, skill, {True}) for skill in plain}
    sides = [share(graded, answers, "refuse", {known}) for known in (True, False)]
    return {**shares, "refuse": round(sum(sides) / 2, 4), "refuse_known": sides[0], "refuse_unknown": sides[1]}


def share(graded: list[Graded], answers: list[str], skill: str, known: set[bool]) -> float:
    """Share of a skill's items that passed, 0 to 1."""
    rows = zip(graded, answers, strict=True)
    passed = [item.passed(answer) for item, answer in rows if item.skill == skill and item.known in known]
    return round(sum(passed) / len(passed), 4)


def ask(graded: list[Graded], answers: Answers) -> list[str]:
    """A task's own conversation; an item is one of a single turn."""
    return answers([item.talk if isinstance(item, Task) else Talk(messages=[user(item.prompt)]) for item in graded])


def driver(args: argparse.Namespace) -> Answers:
    """Camelid with a backend, or torch without."""
    from cria.drivers import camelid_answers, gguf_answers

    if args.backend:
        return camelid_answers(args.model, args.backend)
    return gguf_answers(args.model, args.seed if args.shuffle else None)


def main() -> None:
    """Grade, state the grade, and add it to grades.jsonl."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--items", type=int, default=300, help="items a skill (refuse has twice as many)")
    parser.add_argument("--backend", help="grade through camelid with this backend; without it, through torch")
    parser.add_argument("--shuffle", action="store_true", help="control: shuffle every matrix first; torch only")
    parser.add_argument("--misses", action="store_true", help="list what was answered wrongly")
    args = parser.parse_args()
    digest = hashlib.sha256(args.model.read_bytes()).hexdigest()  # first: the file may be replaced meanwhile
    graded = [*items(args.seed, args.items), *graded_tasks.tasks(args.seed, args.items)]
    answers = ask(graded, driver(args))
    line = {
        "seed": args.seed, "items": args.items, "driver": f"camelid:{args.backend}" if args.backend else "torch",
        "shuffled": args.shuffle, "sha256": digest, **score(graded, answers),
    }  # fmt: skip
    with GRADES.open("a") as grades:
        grades.write(json.dumps(line) + "\n")
    print(json.dumps(line))
    if args.misses:
        print_misses(graded, answers)


def print_misses(graded: list[Graded], answers: list[str]) -> None:
    """Every item answered wrongly, one a line."""
    for item, answer in zip(graded, answers, strict=True):
        if not item.passed(answer):
            print(f"{item.skill:12}{item.prompt!r} -> {answer!r}, wanted {item.want!r}")


if __name__ == "__main__":
    main()
