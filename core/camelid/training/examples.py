"""Examples of training, and the runs that a step of training needs for them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from camelid.errors import RequestError
from camelid.plan.op_rows_training import ANSWER, LOSSES
from camelid.plan.plan import Plan
from camelid.plan.step import FROM_ID, Capacity, Step, StepRow, StepSequence, encode_step

LEARN, KEEP, AVOID = "learn", "keep", "avoid"
# Role of an example -> the column of `answers` with its weight.
LOSS_OF: Mapping[str, str] = {LEARN: "likelihood", KEEP: "kl", AVOID: "unlikelihood"}
SLOT = 1  # ring of token ids; slot 0 is scratch


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A prompt and an answer, as token ids.

    - `role` learn: the answer becomes likelier (cross entropy); avoid: less likely (unlikelihood, Welleck et
      al., arXiv 1908.04319); keep: in the answer's places the model keeps to the base (KL divergence).
    - `weight` multiplies its loss.
    """

    prompt: Sequence[int]
    answer: Sequence[int]
    role: str = LEARN
    weight: float = 1.0

    @property
    def rows(self) -> int:
        """Rows of its sequence: each token but the last, which is predicted only."""
        return len(self.prompt) + len(self.answer) - 1


def check_examples(examples: Sequence[Example], *, context: int, vocab_size: int) -> None:
    """Raises RequestError for the first example that cannot be trained on."""
    if not any(example.role != KEEP for example in examples):
        raise RequestError(
            "no example has the role learn or avoid, so there is nothing to train", field="examples"
        )
    for number, example in enumerate(examples):
        fault = _fault(example, context, vocab_size)
        if fault:
            raise RequestError(f"example {number}: {fault}", field="examples")


def check_kept(examples: Sequence[Example], *, ewc: float) -> None:
    """Raises RequestError for a penalty without examples to measure it on."""
    if ewc and not any(example.role == KEEP for example in examples):
        raise RequestError(
            f"ewc is {ewc:g}, but no example has the role keep, on which the penalty is measured; add past "
            "requests with the base's answers",
            field="ewc",
        )


def _fault(example: Example, context: int, vocab_size: int) -> str:
    if example.role not in LOSS_OF:
        return f"its role is {example.role!r:.40}, expected {', '.join(LOSS_OF)}"
    if not example.prompt or not example.answer:
        return "its prompt or its answer is empty; each needs a token"
    if example.rows > context:
        return f"it has {example.rows} rows, but the context is {context}; shorten the prompt"
    if not 0.0 <= example.weight < float("inf"):
        return f"its weight is {example.weight}, expected a number from 0 on"
    outside = next((i for i in (*example.prompt, *example.answer) if not 0 <= i < vocab_size), None)
    if outside is None:
        return ""
    return f"it has the token id {outside}, expected 0 to {vocab_size - 1}, the model's vocabulary"


def first_acting_row(prompt: Sequence[int], invocation: Sequence[int]) -> int:
    """The row from which an activated adapter acts: the first of the last invocation tokens; 0 without any.

    Raises RequestError for a prompt without the invocation tokens.
    """
    n, wanted = len(invocation), list(invocation)
    for start in range(len(prompt) - n, -1, -1):
        if list(prompt[start : start + n]) == wanted:
            return start if n else 0
    raise RequestError(
        f"a prompt of {len(prompt)} tokens has no invocation tokens {wanted}; render it with the chat "
        "template that the invocation tokens come from, or train a plain adapter",
        field="invocation",
    )


@dataclass(slots=True)
class Run:
    """One run of the training plan: whole sequences, the answers of their rows, the rows that adapt."""

    step: Step = field(default_factory=Step)
    acts: array[float] = field(default_factory=lambda: array("f"))
    answers: array[float] = field(default_factory=lambda: array("f"))

    def fits(self, example: Example, capacity: Capacity) -> bool:
        rows = len(self.step.rows) + example.rows
        outputs = len(self.step.outputs) + len(example.answer)
        n = len(self.step.sequences) + 1
        return rows <= capacity.rows and outputs <= capacity.outputs and n <= capacity.sequences

    def add(self, example: Example, weight: float, first_acting: int, n_groups: int) -> None:
        """Adds a sequence; each token of its answer has this weight."""
        first, number, first_answer = len(self.step.rows), len(self.step.sequences), len(example.prompt) - 1
        ids = [*example.prompt, *example.answer]
        column = ANSWER.index(LOSS_OF[example.role])
        for i, token in enumerate(ids[:-1]):
            row = StepRow(source=FROM_ID, value=token, sequence=number, state_row=i, positions=(i,))
            self.step.rows.append(row)
            answer = [float(ids[i + 1]), *(0.0 for _ in LOSSES)]
            if i >= first_answer:
                answer[column] = weight
                self.step.outputs.append((first + i, number, i + 1))
            self.answers.extend(answer)
            self.acts.append(float(i >= first_acting))
        groups = ((SLOT, SLOT, 0),) * n_groups
        self.step.sequences.append(StepSequence(first_row=first, rows=example.rows, groups=groups))

    def encoded(self, plan: Plan) -> tuple[bytes, dict[str, bytes]]:
        """The step, and the plan's inputs."""
        inputs = {"acts": self.acts.tobytes(), "answers": self.answers.tobytes()}
        return encode_step(self.step, plan.layout), inputs


def runs_of(
    examples: Sequence[Example],
    capacity: Capacity,
    *,
    scales: Mapping[str, float],
    invocation: Sequence[int],
    n_groups: int,
) -> Iterator[Run]:
    """Packs examples into runs, the longest first.

    A role's losses are means over its answers' tokens, times the role's scale.
    """
    n_tokens: dict[str, int] = {}
    for example in examples:
        n_tokens[example.role] = n_tokens.get(example.role, 0) + len(example.answer)
    runs: list[Run] = []
    for example in sorted(examples, key=lambda e: -e.rows):
        run = next((run for run in runs if run.fits(example, capacity)), None)
        if run is None:
            runs.append(run := Run())
        weight = example.weight * scales[example.role] / n_tokens[example.role]
        run.add(example, weight, first_acting_row(example.prompt, invocation), n_groups)
    yield from runs
