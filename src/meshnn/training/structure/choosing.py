"""Importance scores of edges, and the choice of the edges to remove and to add."""

from __future__ import annotations

import numpy as np

from meshnn.arrays import BoolArray, FloatArray, IntArray
from meshnn.mesh import Mesh
from meshnn.parameters import Ties
from meshnn.training.samples import InMemorySamples, Samples
from meshnn.training.structure.graph import View

CRITERIA = ("magnitude", "movement", "saliency")


def sample_of(samples: Samples, rng: np.random.Generator, most: int = 1024) -> InMemorySamples:
    """Return at most `most` samples, drawn at random."""
    count = samples.count
    return samples.subset(np.arange(count) if count <= most else np.sort(rng.choice(count, most, replace=False)))


def importance(by: str, mesh: Mesh, samples: Samples, rng: np.random.Generator) -> FloatArray:
    """Return one importance score per edge; the edges with the smallest scores can be removed.

    "magnitude" is |w|. "movement" is |w dE/dw|, the first-order change of the loss if the edge is removed. "saliency"
    is w² d²E/dw² / 2, the second-order change at a minimum, with the Gauss-Newton diagonal (optimal brain damage). The
    score of a group of tied edges is divided among them.
    """
    if by == "magnitude":
        return np.abs(mesh.weights.astype(np.float64))
    w = mesh.parameters.astype(np.float64)
    some = sample_of(samples, rng, 1024 if by == "movement" else 512)
    if by == "movement":
        _, grad = mesh.gradient(some.inputs, some.targets)
        return np.asarray(mesh.ties.spread(np.abs(w * grad)))
    if samples.timed:  # in chunks of parameters: only the diagonal blocks of the matrix are computed
        parts = np.split(np.arange(mesh.n_parameters), range(1024, mesh.n_parameters, 1024))
        found = np.concatenate([samples.curvature(mesh, "adjoint", part, None).matrix.diagonal() for part in parts])
    else:
        found = _curvatures(mesh, some)
    return np.asarray(mesh.ties.spread(0.5 * w**2 * found))


def _curvatures(mesh: Mesh, samples: InMemorySamples) -> FloatArray:
    """Return the diagonal of the Gauss-Newton matrix, from the forward Jacobian in chunks of samples."""
    total, targets, X = np.zeros(mesh.n_parameters), samples.targets, samples.inputs
    size = max(1, 4_000_000 // (mesh.topology.n_edges * mesh.topology.n_outputs))
    for k in range(0, samples.count, size):
        part = X[..., k : k + size, :]
        J = mesh.jacobian(part).astype(np.float64)  # (samples, outputs, edges)
        each = samples.loss.curvature(mesh.forward(part).astype(np.float64), targets.values[k : k + size], J)
        total += targets.share[k : k + size, 0] @ each
    return total


def weakest(view: View, scores: FloatArray, count: int, bias: bool, spare: int = 0) -> BoolArray:
    """Return the mask of `count` edges to remove: first dead edges and those of constant neurons, then by score.

    If the removal of an edge makes other edges dead, these are removed as well, and edges with a higher score are kept
    instead. The same holds for edges of neurons that become constant (see `graph.py`). Up to `spare` more edges are
    removed if they are dead. Every output keeps a path from an input. Fixed edges are kept, and tied edges are removed
    together: fewer than `count` edges are removed if no group is small enough.
    """
    ties = view.mesh.ties
    idle, constant = view.idle_without(np.zeros(view.mesh.topology.n_edges, np.bool_))
    dead = ties.whole(idle)
    safe = view.protected(scores) | ties.fixed
    if not bias:
        safe |= view.from_bias
    if not ties.plain:
        return _weakest_groups(ties, np.where(dead, -np.inf, scores), count, ~dead & ties.together(safe))
    lost, best, first, fewest = dead, dead, dead, len(dead) + 1
    for _ in range(50):
        # edges leaving a constant neuron before those entering it: the bias can replace it only while it is constant
        order = np.where(lost, np.where(constant, -np.inf, np.finfo(np.float64).min), scores)
        chosen = np.zeros_like(dead)
        chosen[_lowest(order, np.flatnonzero(lost | ~safe), count)] = True
        first = chosen if lost is dead else first
        idle, constant = view.idle_without(chosen)
        left = idle & ~chosen
        n_left = int(left.sum())
        if n_left == 0:
            return chosen
        if n_left < fewest:
            best, fewest = chosen, n_left
        if n_left <= spare:
            count, spare = count + n_left, spare - n_left
        if (lost | left).sum() <= count:
            lost = lost | left  # removed as well, and edges with a higher score are kept instead
        else:  # more than `count`: keep the edges on which they depend
            around = _around(view, left) & first & ~dead
            if not around.any():
                break
            safe, lost = safe | around, dead
    return best


def _weakest_groups(ties: Ties, scores: FloatArray, count: int, safe: BoolArray) -> BoolArray:
    """Return a mask of at most `count` edges: whole groups of tied edges, those with the smallest mean scores first."""
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
    """Return the `count` edges of `at` with the smallest scores."""
    if count >= len(at):
        return at
    return at[np.argpartition(scores[at], count - 1)[:count]] if count > 0 else at[:0]


def _around(view: View, edges: BoolArray) -> BoolArray:
    """Return the mask of all edges of the hidden neurons at the ends of the given edges."""
    t = view.mesh.topology
    touched = np.intersect1d(t.hidden, np.concatenate([t.src[edges], t.dst[edges]]))
    return np.isin(t.src, touched) | np.isin(t.dst, touched)


def strongest(view: View, absent: IntArray, count: int, grow: str) -> IntArray:
    """Return the indices of the absent edges to add; above a limit, a random subset of them is scored."""
    if grow == "random":
        return np.sort(view.rng.choice(len(absent), count, replace=False))
    most = 50_000 + 2 * count
    if len(absent) > most:
        some = np.sort(view.rng.choice(len(absent), most, replace=False))
        return some[strongest(view, absent[some], count, grow)]
    sample = sample_of(view.samples, view.rng, int(np.clip(2_000_000 // max(len(absent), 1), 64, 1024)))
    src, dst = absent.T
    # one gradient of many edges: the adjoint method is the cheapest
    scores = np.abs(view.mesh.growth_scores(sample.inputs, sample.targets, src=src, dst=dst, gradient="adjoint"))
    # ties (dead edges have score 0) are broken at random: the order of neurons has no meaning
    order = np.lexsort((view.rng.random(len(absent)), -scores))
    return np.sort(order[:count])
