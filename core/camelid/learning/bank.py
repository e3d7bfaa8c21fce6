"""The bank of hints: trajectories of tasks, clustered and distilled to hints that later prompts receive.

As in ReasoningBank (arXiv 2509.25140), what worked is kept as short reusable text. Here each hint is on
trial: half of the requests near it receive it, by a coin of the request's own text, and it is kept only while
the requests with it do better than those without, by an interval of the difference of the two win rates.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from camelid.errors import RequestError, shown
from camelid.learning.features import DIM
from camelid.learning.items import Message
from camelid.learning.kmeans import kmeans
from camelid.learning.store.store import Store
from camelid.learning.vectors import Rows, fast_kernels
from camelid.learning.win_rate import Rate, gain

Status = Literal["trial", "kept", "dropped"]
MOST_TRIALS = 200  # outcomes after which a hint that has not helped is dropped
MOST_TRAJECTORIES = 2000
NONE = Rate()
NEAR = 0.35  # similarity of a request's question to a hint's cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """A task: question, steps (calls with their arguments, or words), and whether it went well."""

    question: str
    steps: tuple[str, ...]
    won: bool
    completion_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A hint with its trials. `origins` are the trajectories that it came from."""

    id: int
    text: str
    status: Status
    origins: tuple[int, ...]
    with_it: Rate = NONE
    without: Rate = NONE

    @property
    def gain(self) -> tuple[float, float]:
        """The interval of what the hint adds to the win rate."""
        return gain(self.with_it, self.without)


# From the trajectories of one cluster to the text of a hint; "" for none.
Distil = Callable[[Sequence[Trajectory]], str]


def common_steps(cluster: Sequence[Trajectory]) -> str:
    """The steps that most successes have and few failures have, in the order of the shortest success."""
    won = [each for each in cluster if each.won]
    lost = [each for each in cluster if not each.won]
    if not won:
        return ""
    in_won = Counter(step for each in won for step in set(each.steps))
    in_lost = Counter(step for each in lost for step in set(each.steps))
    shortest = min(won, key=lambda each: (len(each.steps), each.question))

    def marks(step: str) -> bool:
        return 2 * in_won[step] > len(won) and (not lost or 2 * in_lost[step] <= len(lost))

    steps = [step for step in dict.fromkeys(shortest.steps) if marks(step)]
    return f"For requests like {shortest.question!r}: {'; then '.join(steps)}." if steps else ""


class Bank:
    """Trajectories and hints of one store. `vector` makes the vector of a question."""

    def __init__(
        self, store: Store, vector: Callable[[str], array[float]], distil: Distil = common_steps
    ) -> None:
        self._sql, self._vector, self._distil = store.connection, vector, distil
        self._kernels = fast_kernels()

    def add(self, trajectory: Trajectory) -> int:
        """Stores a trajectory; the oldest beyond MOST_TRAJECTORIES go."""
        body = json.dumps([trajectory.question, trajectory.steps, trajectory.won], ensure_ascii=False)
        row = (trajectory.completion_id, body, self._vector(trajectory.question).tobytes())
        with self._sql.transaction() as sql:
            added = sql.execute("INSERT INTO trajectories(completion, body, vector) VALUES(?, ?, ?)", row)
            id = int(added.lastrowid or 0)
            sql.execute("DELETE FROM trajectories WHERE id <= ?", (id - MOST_TRAJECTORIES,))
        return id

    def trajectories(self) -> list[tuple[int, Trajectory, bytes]]:
        """(number, trajectory, vector) in order."""
        rows = self._sql.rows("SELECT id, completion, body, vector FROM trajectories ORDER BY id")
        return [(id, _trajectory(completion, body), vector) for id, completion, body, vector in rows]

    def distil(self, k: int, seed: int = 0) -> list[Hint]:
        """Clusters the trajectories and puts new hints on trial; returns the new ones."""
        rows = self.trajectories()
        found = kmeans([array("f", vector) for _, _, vector in rows], k, seed)
        for number, centre in enumerate(found.centres):
            members = [row for row, n in zip(rows, found.nearest, strict=True) if n == number]
            text = self._distil([trajectory for _, trajectory, _ in members])
            if text:
                self._put(text, array("f", centre).tobytes(), [id for id, _, _ in members])
        known = {id for id, _, _ in rows}
        return [hint for hint in self.hints() if hint.status == "trial" and set(hint.origins) <= known]

    def _put(self, text: str, vector: bytes, origins: Sequence[int]) -> None:
        """A hint on trial, unless one of this text was there: a dropped one stays dropped."""
        with self._sql.transaction() as sql:
            if not sql.execute("SELECT 1 FROM hints WHERE text=?", (text,)).fetchone():
                row = (text, "trial", vector, json.dumps(list(origins)))
                sql.execute("INSERT INTO hints(text, status, vector, origins) VALUES(?, ?, ?, ?)", row)

    def hints(self) -> list[Hint]:
        """All hints in order."""
        rows = self._sql.rows(
            "SELECT id, text, status, origins, with_won, with_n, without_won, without_n "
            "FROM hints ORDER BY id"
        )
        return [
            Hint(
                id=id, text=text, status=status, origins=tuple(json.loads(origins)), with_it=Rate(a, n),
                without=Rate(b, m),
            )
            for id, text, status, origins, a, n, b, m in rows
        ]  # fmt: skip

    def hint(self, question: str) -> tuple[Hint, bool] | None:
        """The nearest hint to a question and whether the request receives it; None if none is near.

        A kept hint goes to nine of ten requests, so that its win rate stays known; one on trial to half.
        """
        by_id = {hint.id: hint for hint in self.hints() if hint.status != "dropped"}
        rows = Rows(DIM, self._kernels)
        for id, vector in self._sql.rows("SELECT id, vector FROM hints WHERE status != 'dropped'"):
            rows.add(id, vector)
        nearest = rows.nearest(self._vector(question), 1)
        if not nearest or nearest[0][0] < NEAR:
            return None
        hint = by_id[nearest[0][1]]
        coin = zlib.crc32(f"{hint.id} {question}".encode()) % 10
        return hint, coin < (9 if hint.status == "kept" else 5)

    def outcome(self, hint: int, *, received: bool, won: bool) -> Hint:
        """Counts an outcome and decides on the hint; returns it. Raises RequestError for a forgotten one."""
        column = "with" if received else "without"
        with self._sql.transaction() as sql:
            sql.execute(
                f"UPDATE hints SET {column}_n = {column}_n + 1, {column}_won = {column}_won + ? WHERE id=?",
                (int(won), hint),
            )
        found = next((each for each in self.hints() if each.id == hint), None)
        if found is None:
            raise RequestError(f"there is no hint {shown(hint)}; it may have been forgotten", field="hint")
        status = decide(found)
        if status != found.status:
            with self._sql.transaction() as sql:
                sql.execute("UPDATE hints SET status=? WHERE id=?", (status, hint))
        return next(each for each in self.hints() if each.id == hint)


def decide(hint: Hint) -> Status:
    """Kept while it surely helps, dropped once it surely does not or nobody can tell, else on trial.

    A kept hint whose gain is no longer sure goes back on trial.
    """
    low, high = hint.gain
    if hint.status == "dropped" or high <= 0.0:
        return "dropped"
    if low > 0.0:
        return "kept"
    return "dropped" if hint.with_it.n + hint.without.n >= MOST_TRIALS else "trial"


def with_hint(messages: Sequence[Message], hint: Hint) -> list[Message]:
    """The conversation with a hint at the end of its system message."""
    first = messages[0] if messages and messages[0].get("role") == "system" else None
    text = "\n\n".join(filter(None, [str((first or {}).get("content") or ""), hint.text]))
    return [{"role": "system", "content": text}, *messages[1 if first else 0 :]]


def _trajectory(completion: str, body: str) -> Trajectory:
    question, steps, won = json.loads(body)
    return Trajectory(question=question, steps=tuple(steps), won=won, completion_id=completion)
