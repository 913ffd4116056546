"""How much an edge matters, which edges go, and which come."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.arrays import BoolArray, FloatArray, IntArray
from meshnn.losses import Loss
from meshnn.mesh import Mesh
from meshnn.parameters import Ties
from meshnn.storage import Tree
from meshnn.training.samples import Samples
from meshnn.training.structure.graph import View

CRITERIA = ("magnitude", "movement", "saliency")


def sample_of(samples: Samples, rng: np.random.Generator, most: int = 1024) -> tuple[Any, Any, Tree]:
    """Inputs, targets and options of some of the samples, as `Mesh.gradient` takes them: weights, and looks if any."""
    count = samples.count
    rows = np.arange(count) if count <= most else np.sort(rng.choice(count, most, replace=False))
    found = samples.take(rows)
    X, y, options = (found.X[0] if len(found.X) == 1 else found.X), *found.targets.given()
    return X, y, options | {"sample_weight": options["sample_weight"] / options["sample_weight"].sum()}


def importance(by: str, mesh: Mesh, samples: Samples, rng: np.random.Generator) -> FloatArray:
    """One number an edge; the edges with the smallest ones can go.

    magnitude is |w|; movement is |w dE/dw|, what the loss changes by to first order if the edge goes; saliency is
    w² d²E/dw² / 2, to second order at a minimum, with the Gauss-Newton diagonal (optimal brain damage). What tied edges
    matter together is shared out among them.
    """
    if by == "magnitude":
        return np.abs(mesh.weights.astype(np.float64))
    w = mesh.parameters.astype(np.float64)
    X, y, options = sample_of(samples, rng, 1024 if by == "movement" else 512)
    if by == "movement":
        _, grad = mesh.gradient(X, y, samples.loss.name, **options)
        return np.asarray(mesh.ties.spread(np.abs(w * grad)))
    if samples.timed:  # some parameters at a time: only blocks at the diagonal are made
        parts = np.split(np.arange(mesh.n_parameters), range(1024, mesh.n_parameters, 1024))
        found = np.concatenate([samples.curvature(mesh, "adjoint", part, None).matrix.diagonal() for part in parts])
    else:
        found = _curvatures(mesh, X, y, options["sample_weight"], samples.loss)
    return np.asarray(mesh.ties.spread(0.5 * w**2 * found))


def _curvatures(mesh: Mesh, X: Any, y: Any, share: Any, loss: Loss) -> FloatArray:
    """The diagonal of the Gauss-Newton matrix, from the forward Jacobian, some samples at a time."""
    total = np.zeros(mesh.n_parameters)
    n = X.shape[-2]
    size = max(1, 4_000_000 // (mesh.topology.n_edges * mesh.topology.n_outputs))
    for k in range(0, n, size):
        part = X[..., k : k + size, :]
        J = mesh.jacobian(part).astype(np.float64)  # (samples, outputs, edges)
        each = loss.curvature(mesh.forward(part).astype(np.float64), y[k : k + size], J)
        total += share[k : k + size] @ each
    return total


def weakest(view: View, scores: FloatArray, count: int, bias: bool, spare: int = 0) -> BoolArray:
    """Mask of `count` edges that can go: dead ones and those of constants first, then those with the smallest scores.

    An edge may be the last one that keeps others alive: those that die with it go as well, and better ones stay. So do
    those of neurons that only the bias feeds without it (see `view`). Up to `spare` more go rather than stay for
    nothing. No output loses its last way from an input. A fixed edge never goes, and tied ones go together: fewer go
    than asked for if no group is small enough.
    """
    ties = view.mesh.ties
    remove = np.zeros(view.mesh.topology.n_edges, np.bool_)
    idle, constant = view.idle_without(remove)
    dead = ties.whole(idle)
    safe = view.protected(scores) | ties.fixed
    if not bias:
        safe |= view.from_bias
    if not ties.plain:
        return _weakest_groups(ties, np.where(dead, -np.inf, scores), count, ~dead & ties.together(safe))
    # what a constant gives before what feeds it: the bias can take its part only as long as it is one
    remove[_lowest(np.where(constant, -np.inf, scores), np.flatnonzero(dead), count)] = True
    best, fewest = remove, len(remove) + 1
    for _ in range(1 if view.growing else 12):
        chosen = remove.copy()
        chosen[_lowest(scores, np.flatnonzero(~remove & ~safe), count - int(remove.sum()))] = True
        found, left = _without_dead(view, scores, chosen)
        if found.sum() < best.sum():
            break  # too many are safe by now
        if left.sum() <= spare:
            return found | left
        if left.sum() < fewest:
            best, fewest = found, int(left.sum())
        around = _around(view, left) & chosen & ~remove  # those that leave edges behind for which there is no room
        if not around.any():
            break
        safe |= around
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


def _without_dead(view: View, scores: FloatArray, remove: BoolArray) -> tuple[BoolArray, BoolArray]:
    """The same number of edges, but those that died with the last ones go, and better ones stay in their place.

    And what is dead, or a constant's, and still there.
    """
    idle, constant = view.idle_without(remove)
    best, fewest = remove, idle & ~remove
    lost = view.idle_without(np.zeros_like(remove))[0]  # none of them comes back
    for _ in range(8):
        left = idle & ~remove
        if left.sum() < fewest.sum():
            best, fewest = remove, left
        gone = np.flatnonzero(remove & ~lost)
        if not left.any() or gone.size == 0:
            break
        dead = np.flatnonzero(left)
        back = _lowest(-scores, gone, dead.size)
        dead = dead[np.argsort(~constant[dead], kind="stable")][: back.size]
        remove = remove.copy()
        remove[dead] = lost[dead] = True
        remove[back] = False
        idle, constant = view.idle_without(remove)
    return best, fewest


def _around(view: View, edges: BoolArray) -> BoolArray:
    """Edges of the hidden neurons that some edges belong to."""
    t = view.mesh.topology
    touched = np.zeros(t.n_neurons, np.bool_)
    touched[t.src[edges]] = touched[t.dst[edges]] = True
    touched[: t.n_clamped] = touched[t.n_neurons - t.n_outputs :] = False
    found: BoolArray = touched[t.src] | touched[t.dst]
    return found


def strongest(view: View, absent: IntArray, count: int, grow: str) -> IntArray:
    """Which of the absent edges to add; of very many, some are looked at."""
    if grow == "random":
        return np.sort(view.rng.choice(len(absent), count, replace=False))
    most = 50_000 + 2 * count
    if len(absent) > most:
        some = np.sort(view.rng.choice(len(absent), most, replace=False))
        return some[strongest(view, absent[some], count, grow)]
    X, y, options = sample_of(view.samples, view.rng, int(np.clip(2_000_000 // max(len(absent), 1), 64, 1024)))
    scores = np.abs(  # a single gradient of many edges: the adjoint is the cheapest way to it
        view.mesh.growth_scores(X, y, view.samples.loss.name, absent[:, 0], absent[:, 1], gradient="adjoint", **options)
    )
    # of equal ones (dead edges, all 0) any; the order of neurons means nothing
    order = np.lexsort((view.rng.random(len(absent)), -scores))
    return np.sort(order[:count])
