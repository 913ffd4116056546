"""Which edges go, and which come."""

from __future__ import annotations

import numpy as np

from meshnn.arrays import BoolArray, FloatArray, IntArray
from meshnn.parameters import Ties
from meshnn.training.structure.criteria import sample_of
from meshnn.training.structure.view import View

__all__ = ["strongest", "weakest"]

#: Absent edges that are looked at, and scores of single samples among them, at most.
MOST_CANDIDATES, SCORED = 50_000, 2_000_000


def weakest(view: View, scores: FloatArray, count: int, bias: bool) -> BoolArray:
    """Mask of `count` edges that can go: dead ones first, then those with the smallest scores.

    An edge may be the last one that keeps others alive: those that die with it go as well, and better ones stay. No
    output loses its last way from an input. A fixed edge never goes, and tied ones go together: fewer go
    than asked for if no group is small enough.
    """
    ties = view.mesh.ties
    remove = np.zeros(view.mesh.topology.n_edges, np.bool_)
    dead = ties.whole(view.dead_without(remove))
    safe = view.protected(scores) | ties.fixed
    if not bias:
        safe |= view.from_bias
    if not ties.plain:
        return _weakest_groups(ties, np.where(dead, -np.inf, scores), count, ~dead & ties.together(safe))
    remove[_lowest(scores, np.flatnonzero(dead), count)] = True
    left = count - int(remove.sum())
    if left > 0:
        remove[_lowest(scores, np.flatnonzero(~remove & ~safe), left)] = True
    return _without_dead(view, scores, remove)


def _weakest_groups(ties: Ties, scores: FloatArray, count: int, safe: BoolArray) -> BoolArray:
    """Mask of at most `count` edges: parameter by parameter, those with the smallest scores first, if they fit."""
    size = np.bincount(ties.number, minlength=ties.n_numbers)
    mean = np.bincount(ties.number, scores, ties.n_numbers) / size
    mean[ties.number[safe]] = np.inf
    gone = np.zeros(ties.n_numbers, np.bool_)
    for p in np.argsort(mean, kind="stable")[: int((mean < np.inf).sum())].tolist():
        if size[p] <= count:
            gone[p] = True
            count -= int(size[p])
    return gone[ties.number]


def _lowest(scores: FloatArray, at: IntArray, count: int) -> IntArray:
    """Those of some edges with the smallest scores."""
    if count >= len(at):
        return at
    return at[np.argpartition(scores[at], count - 1)[:count]] if count > 0 else at[:0]


def _without_dead(view: View, scores: FloatArray, remove: BoolArray) -> BoolArray:
    """The same number of edges, but those that died with the last ones go, and better ones stay in their place."""
    for _ in range(8):
        dead = np.flatnonzero(view.dead_without(remove) & ~remove)
        gone = np.flatnonzero(remove)
        if dead.size == 0 or gone.size == 0:
            break
        back = _lowest(-scores, gone, dead.size)
        other = remove.copy()
        other[dead[: back.size]] = True
        other[back] = False
        if (view.dead_without(other) & ~other).sum() >= dead.size:
            break  # nothing is won
        remove = other
    return remove


def strongest(view: View, absent: IntArray, count: int, grow: str) -> IntArray:
    """Which of the absent edges to add."""
    if grow == "random":
        return np.sort(view.rng.choice(len(absent), count, replace=False))
    if len(absent) > MOST_CANDIDATES + 2 * count:  # any of very many will do
        some = np.sort(view.rng.choice(len(absent), MOST_CANDIDATES + 2 * count, replace=False))
        return some[strongest(view, absent[some], count, grow)]
    X, y, share = sample_of(view.samples, view.rng, int(np.clip(SCORED // max(len(absent), 1), 64, 1024)))
    scores = np.abs(  # a single gradient of many edges: the adjoint is the cheapest way to it
        view.mesh.growth_scores(
            X, y, view.samples.targets.loss.name, absent[:, 0], absent[:, 1], method="adjoint", sample_weight=share
        )
    )
    # of equal ones (dead edges, all 0) any; the order of neurons means nothing
    order = np.lexsort((view.rng.random(len(absent)), -scores))
    return np.sort(order[:count])
