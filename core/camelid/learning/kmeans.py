"""k-means with k-means++ seeding (Arthur and Vassilvitskii, 2007), on vectors of length 1.

Lloyd's iterations with the squared Euclidean distance; the seeds are drawn with probability proportional to
the squared distance from the nearest seed, from a seeded generator, so that equal inputs give equal clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from random import Random

Vector = Sequence[float]
MOST_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Clusters:
    """Centres [K, D], the number of the nearest centre of each vector, and the sum of squared distances."""

    centres: tuple[tuple[float, ...], ...]
    nearest: tuple[int, ...]
    cost: float


def kmeans(vectors: Sequence[Vector], k: int, seed: int = 0) -> Clusters:
    """At most k clusters; fewer if there are fewer different vectors."""
    centres = seeds(vectors, k, Random(seed))
    nearest: list[int] = []
    for _ in range(MOST_ROUNDS):
        found = [_nearest(vector, centres)[1] for vector in vectors]
        if found == nearest:
            break
        nearest = found
        centres = [_mean([v for v, n in zip(vectors, nearest, strict=True) if n == i], centre)
                   for i, centre in enumerate(centres)]  # fmt: skip
    cost = fsum(distance(vector, centres[n]) for vector, n in zip(vectors, nearest, strict=True))
    return Clusters(tuple(map(tuple, centres)), tuple(nearest), cost)


def seeds(vectors: Sequence[Vector], k: int, rng: Random) -> list[Vector]:
    """k-means++: far vectors are likelier; none twice."""
    if not vectors or k < 1:
        return []
    found = [vectors[rng.randrange(len(vectors))]]
    while len(found) < k:
        weights = [_nearest(vector, found)[0] for vector in vectors]
        if not any(weights):
            break
        found.append(vectors[rng.choices(range(len(vectors)), weights)[0]])
    return found


def distance(a: Vector, b: Vector) -> float:
    """The squared Euclidean distance."""
    return fsum((x - y) * (x - y) for x, y in zip(a, b, strict=True))


def _nearest(vector: Vector, centres: Sequence[Vector]) -> tuple[float, int]:
    return min((distance(vector, centre), i) for i, centre in enumerate(centres))


def _mean(vectors: Sequence[Vector], before: Vector) -> Vector:
    """The mean; an empty cluster keeps its centre."""
    n = len(vectors)
    return [fsum(column) / n for column in zip(*vectors, strict=True)] if n else before
