"""One low-rank term from several of a matrix: joined, summed, pruned or turned, and cut to a rank.

The product of a term, dW = scale * B A, is never made where the method does not need its elements.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from camelid.errors import RequestError
from camelid.loading.adapters.modules import Factors

F64: TypeAlias = npt.NDArray[np.float64]
GRAM_FROM = 1024  # least side of a product from which its singular vectors come from its Gram matrix
LEAST_SINE = 1e-6  # of the angle between two products below which their arc is a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to combine: the method, the rank of the result (0: the method's own), and for pruning methods the
    share of elements that are kept, and the seed of their choice."""

    method: str
    rank: int = 0
    density: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Weighted:
    """A term with its weight, and its number among the adapters."""

    factors: Factors
    weight: float
    number: int

    @property
    def scale(self) -> float:
        return self.weight * self.factors.scale

    def product(self) -> F64:  # [out, in]
        """dW without the weight."""
        return self.factors.scale * (self.factors.b.astype(np.float64) @ self.factors.a.astype(np.float64))


Terms: TypeAlias = Sequence[Weighted]


def combine(terms: Terms, recipe: Recipe, name: str) -> Factors:
    """The term of one matrix, named `name`. Raises RequestError for terms that the method cannot combine."""
    return METHODS[recipe.method](terms, recipe, name)


def _cat(terms: Terms, _recipe: Recipe, _name: str) -> Factors:
    """The sum, exactly: the ranks stand side by side, with the scales in A."""
    a = np.concatenate([term.factors.a * np.float32(term.scale) for term in terms])
    return Factors(a, np.concatenate([term.factors.b for term in terms], axis=1), 1.0)


def _linear(terms: Terms, _: Recipe, name: str) -> Factors:
    """A and B summed apart, each with the root of its scale, as PEFT's `linear`: not the sum of products."""
    ranks = sorted({term.factors.rank for term in terms})
    if len(ranks) > 1:
        raise RequestError(
            f"{name}: linear sums factors of one rank, but found ranks {ranks}; use svd or cat",
            field="method",
        )
    roots = [math.sqrt(abs(term.scale)) for term in terms]
    a = sum(
        math.copysign(r, t.scale) * t.factors.a.astype(np.float64) for r, t in zip(roots, terms, strict=True)
    )
    b = sum(r * t.factors.b.astype(np.float64) for r, t in zip(roots, terms, strict=True))
    return Factors(np.asarray(a, np.float32), np.asarray(b, np.float32), 1.0)


def _svd(terms: Terms, recipe: Recipe, _: str) -> Factors:
    """The best approximation of the sum by a rank, from thin QR of the joined factors."""
    return _cut(terms, [term.scale for term in terms], _rank(terms, recipe))


def _rank(terms: Terms, recipe: Recipe) -> int:
    return recipe.rank or max(term.factors.rank for term in terms)


def _cut(terms: Terms, scales: Sequence[float], rank: int) -> Factors:
    """The best approximation of the scaled sum of B A by a rank."""
    pairs = [(term.factors, scale) for term, scale in zip(terms, scales, strict=True)]
    a = np.concatenate([factors.a.astype(np.float64) * scale for factors, scale in pairs])  # [R, in]
    b = np.concatenate([factors.b.astype(np.float64) for factors, _ in pairs], axis=1)  # [out, R]
    q_b, r_b = np.linalg.qr(b)
    q_a, r_a = np.linalg.qr(a.T)
    u, s, v = np.linalg.svd(r_b @ r_a.T)
    n = min(rank, len(s))
    return _factors(q_b @ (u[:, :n] * s[:n]), v[:n] @ q_a.T)


def _factors(b: F64, a: F64) -> Factors:
    return Factors(a.astype(np.float32), b.astype(np.float32), 1.0)


def _ties(terms: Terms, recipe: Recipe, _: str) -> Factors:
    """TIES (arXiv 2306.01708): the largest elements of each product, and the mean of those of the sign that
    wins."""
    total = sum((_largest(term.product(), recipe.density) for term in terms), start=np.zeros(()))
    sign = np.where(total >= 0, 1.0, -1.0)
    merged, count = np.zeros_like(sign), np.zeros_like(sign)
    for term in terms:
        kept = _largest(term.product(), recipe.density)
        wins = np.sign(kept) == sign
        merged += np.where(wins, term.weight * kept, 0.0)
        count += wins
    return _low_rank(merged / np.maximum(count, 1.0), _rank(terms, recipe))


def _largest(product: F64, density: float) -> F64:
    """The product with all but its largest elements 0."""
    n = int(density * product.size)
    if n >= product.size:
        return product
    order = np.argpartition(np.abs(product).ravel(), product.size - n)[product.size - n :]
    kept = np.zeros(product.size)
    kept[order] = product.ravel()[order]
    return kept.reshape(product.shape)


def _dare(terms: Terms, recipe: Recipe, name: str) -> Factors:
    """DARE (arXiv 2311.03099): the sum of products with elements dropped at random, and the rest scaled."""
    total = np.zeros((len(terms[0].factors.b), terms[0].factors.a.shape[1]))
    for term in terms:
        kept = dare_mask(total.shape, recipe, name, term.number)
        total += np.where(kept, (term.weight / recipe.density) * term.product(), 0.0)
    return _low_rank(total, _rank(terms, recipe))


def dare_mask(shape: tuple[int, ...], recipe: Recipe, name: str, number: int) -> npt.NDArray[np.bool_]:
    """The elements of a matrix that DARE keeps, by the seed, the matrix's name and the adapter's number."""
    key = hashlib.sha256(f"{recipe.seed}/{name}/{number}".encode()).digest()
    random = np.random.Generator(np.random.PCG64(int.from_bytes(key[:16], "little")))
    return random.random(shape) < recipe.density


def _low_rank(product: F64, rank: int) -> Factors:
    """The best approximation of a matrix by a rank."""
    n = min(rank, *product.shape)
    if min(product.shape) < GRAM_FROM:
        u, s, v = np.linalg.svd(product, full_matrices=False)
        return _factors(u[:, :n] * s[:n], v[:n])
    is_wide = product.shape[0] < product.shape[1]
    gram = product @ product.T if is_wide else product.T @ product
    vectors = np.linalg.eigh(gram)[1][:, : -n - 1 : -1]  # of the largest values
    return _factors(vectors, vectors.T @ product) if is_wide else _factors(product @ vectors, vectors.T)


def _slerp(terms: Terms, recipe: Recipe, name: str) -> Factors:
    """The point of the arc between two products, at the second weight, of weights whose sum is 1 (Shoemake,
    1985)."""
    if len(terms) == 1:  # the other product is 0, and has no direction
        return _cat(terms, recipe, name) if not recipe.rank else _svd(terms, recipe, name)
    first, second = terms
    share = second.weight
    norms = [math.sqrt(max(_inner(term, term), 0.0)) for term in terms]
    cosine = _inner(first, second) / (norms[0] * norms[1]) if norms[0] * norms[1] else 1.0
    angle = math.acos(min(max(cosine, -1.0), 1.0))
    parts = (1.0 - share, share)
    if math.sin(angle) > LEAST_SINE:
        parts = (math.sin(parts[0] * angle) / math.sin(angle), math.sin(share * angle) / math.sin(angle))
    scales = [part * term.factors.scale for part, term in zip(parts, terms, strict=True)]
    if recipe.rank:
        return _cut(terms, scales, recipe.rank)
    a = np.concatenate([t.factors.a * np.float32(scale) for t, scale in zip(terms, scales, strict=True)])
    return Factors(a, np.concatenate([t.factors.b for t in terms], axis=1), 1.0)


def _inner(first: Weighted, second: Weighted) -> float:
    """The sum over the elements of both products, from the factors."""
    b = first.factors.b.astype(np.float64).T @ second.factors.b.astype(np.float64)
    a = first.factors.a.astype(np.float64) @ second.factors.a.astype(np.float64).T
    return float(first.factors.scale * second.factors.scale * np.sum(a * b))


METHODS: Mapping[str, Callable[[Terms, Recipe, str], Factors]] = {
    "linear": _linear,
    "cat": _cat,
    "svd": _svd,
    "ties": _ties,
    "dare": _dare,
    "slerp": _slerp,
}
PRUNING = ("ties", "dare")
RANKED = ("svd", "ties", "dare", "slerp")


def check_recipe(recipe: Recipe, weights: Sequence[float]) -> None:
    """Raises RequestError for a method, rank, density or weights that do not fit each other."""
    if recipe.method not in METHODS:
        raise RequestError(f"method {recipe.method!r}; known: {', '.join(METHODS)}", field="method")
    if recipe.rank and recipe.method not in RANKED:
        raise RequestError(f"{recipe.method} has no rank of its own; use svd", field="rank")
    if recipe.method in PRUNING and not 0 < recipe.density <= 1:
        raise RequestError(f"density is {recipe.density:g}, expected above 0 and up to 1", field="density")
    if recipe.method not in PRUNING and recipe.density != 1:
        raise RequestError(
            f"{recipe.method} drops no elements; a density is for ties and dare", field="density"
        )
    if not all(map(math.isfinite, weights)):
        raise RequestError("a weight is infinite or NaN", field="adapter")
    is_arc = len(weights) == 2 and min(weights) >= 0 and sum(weights) > 0
    if recipe.method == "slerp" and not is_arc:
        raise RequestError(
            f"slerp takes two adapters with weights from 0, found {list(weights)}", field="adapter"
        )
