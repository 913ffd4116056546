"""How much an edge matters, which edges go, and which come."""

from __future__ import annotations

import numpy as np

from meshnn.arrays import BoolArray, FloatArray, IntArray
from meshnn.mesh import Mesh
from meshnn.parameters import Ties
from meshnn.training.samples import InMemorySamples, Samples
from meshnn.training.structure.graph import View

CRITERIA = ("magnitude", "movement", "saliency")


def sample_of(samples: Samples, rng: np.random.Generator, most: int = 1024) -> InMemorySamples:
    """Draw some of the samples."""
    count = samples.count
    return samples.subset(np.arange(count) if count <= most else np.sort(rng.choice(count, most, replace=False)))


def importance(by: str, mesh: Mesh, samples: Samples, rng: np.random.Generator) -> FloatArray:
    """Return one number per edge; the edges with the smallest ones can go.

    magnitude is |w|; movement is |w dE/dw|, what the loss changes by to first order if the edge goes; saliency is
    w² d²E/dw² / 2, to second order at a minimum, with the Gauss-Newton diagonal (optimal brain damage). What tied edges
    matter together is shared out among them.
    """
    if by == "magnitude":
        return np.abs(mesh.weights.astype(np.float64))
    w = mesh.parameters.astype(np.float64)
    some = sample_of(samples, rng, 1024 if by == "movement" else 512)
    if by == "movement":
        _, grad = mesh.gradient(some.inputs, some.targets)
        return np.asarray(mesh.ties.spread(np.abs(w * grad)))
    if samples.timed:  # some parameters at a time: only blocks at the diagonal are made
        parts = np.split(np.arange(mesh.n_parameters), range(1024, mesh.n_parameters, 1024))
        found = np.concatenate([samples.curvature(mesh, "adjoint", part, None).matrix.diagonal() for part in parts])
    else:
        found = _curvatures(mesh, some)
    return np.asarray(mesh.ties.spread(0.5 * w**2 * found))


def _curvatures(mesh: Mesh, samples: InMemorySamples) -> FloatArray:
    """The diagonal of the Gauss-Newton matrix, from the forward Jacobian, some samples at a time."""
    total, targets, X = np.zeros(mesh.n_parameters), samples.targets, samples.inputs
    size = max(1, 4_000_000 // (mesh.topology.n_edges * mesh.topology.n_outputs))
    for k in range(0, samples.count, size):
        part = X[..., k : k + size, :]
        J = mesh.jacobian(part).astype(np.float64)  # (samples, outputs, edges)
        each = samples.loss.curvature(mesh.forward(part).astype(np.float64), targets.values[k : k + size], J)
        total += targets.share[k : k + size, 0] @ each
    return total


def weakest(view: View, scores: FloatArray, count: int, bias: bool, spare: int = 0) -> BoolArray:
    """Mask of `count` edges that can go: dead ones and those of constants first, then those with the smallest scores.

    An edge may be the last one that keeps others alive: those that die with it go as well, and better ones stay. So do
    those of neurons that only the bias feeds without it (see `view`). Up to `spare` more go rather than stay for
    nothing. No output loses its last way from an input. A fixed edge never goes, and tied ones go together: fewer go
    than asked for if no group is small enough.
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
            lost = lost | left  # they go as well, and better ones stay in their place
        else:  # there is no room for them: keep what they depend on
            around = _around(view, left) & first & ~dead
            if not around.any():
                break
            safe, lost = safe | around, dead
    return best


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


def _around(view: View, edges: BoolArray) -> BoolArray:
    """Edges of the hidden neurons that some edges belong to."""
    t = view.mesh.topology
    touched = np.intersect1d(t.hidden, np.concatenate([t.src[edges], t.dst[edges]]))
    return np.isin(t.src, touched) | np.isin(t.dst, touched)


def strongest(view: View, absent: IntArray, count: int, grow: str) -> IntArray:
    """Which of the absent edges to add; of very many, some are looked at."""
    if grow == "random":
        return np.sort(view.rng.choice(len(absent), count, replace=False))
    most = 50_000 + 2 * count
    if len(absent) > most:
        some = np.sort(view.rng.choice(len(absent), most, replace=False))
        return some[strongest(view, absent[some], count, grow)]
    sample = sample_of(view.samples, view.rng, int(np.clip(2_000_000 // max(len(absent), 1), 64, 1024)))
    src, dst = absent.T
    # a single gradient of many edges: the adjoint is the cheapest way to it
    scores = np.abs(view.mesh.growth_scores(sample.inputs, sample.targets, src=src, dst=dst, gradient="adjoint"))
    # of equal ones (dead edges, all 0) any; the order of neurons means nothing
    order = np.lexsort((view.rng.random(len(absent)), -scores))
    return np.sort(order[:count])
