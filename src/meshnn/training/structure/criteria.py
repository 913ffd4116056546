"""How much an edge matters: what pruning goes by."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.arrays import FloatArray
from meshnn.losses import Loss
from meshnn.mesh import Mesh
from meshnn.storage import Tree
from meshnn.training.samples import Samples

__all__ = ["CRITERIA", "importance", "sample_of"]

CRITERIA = ("magnitude", "movement", "saliency")
#: Samples that gradients and Jacobians of a criterion are taken of, and numbers in a block of a Jacobian.
SAMPLES, BLOCK = 1024, 4_000_000
#: Parameters whose part of a Gauss-Newton matrix is made at a time.
MOST_AT_ONCE = 1024


def sample_of(samples: Samples, rng: np.random.Generator, most: int = SAMPLES) -> tuple[Any, Any, Tree]:
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
    X, y, options = sample_of(samples, rng, SAMPLES if by == "movement" else SAMPLES // 2)
    if by == "movement":
        _, grad = mesh.gradient(X, y, samples.loss.name, **options)
        return np.asarray(mesh.ties.spread(np.abs(w * grad)))
    if samples.timed:
        found = _curvatures_in_time(mesh, samples)
    else:
        found = _curvatures(mesh, X, y, options["sample_weight"], samples.loss)
    return np.asarray(mesh.ties.spread(0.5 * w**2 * found))


def _curvatures_in_time(mesh: Mesh, samples: Samples) -> FloatArray:
    """The diagonal of the Gauss-Newton matrix, some parameters at a time: only blocks at the diagonal are made."""
    n = mesh.n_parameters
    parts = [np.arange(k, min(k + MOST_AT_ONCE, n)) for k in range(0, n, MOST_AT_ONCE)]
    found = [samples.curvature(mesh, "adjoint", part, None).matrix.diagonal() for part in parts]
    return np.concatenate(found)


def _curvatures(mesh: Mesh, X: Any, y: Any, share: Any, loss: Loss) -> FloatArray:
    """The diagonal of the Gauss-Newton matrix, from the forward Jacobian, some samples at a time."""
    total = np.zeros(mesh.n_parameters)
    n = X.shape[-2]
    size = max(1, BLOCK // (mesh.topology.n_edges * mesh.topology.n_outputs))
    for k in range(0, n, size):
        part = X[..., k : k + size, :]
        J = mesh.jacobian(part).astype(np.float64)  # (samples, outputs, edges)
        each = loss.curvature(mesh.forward(part).astype(np.float64), y[k : k + size], J)
        total += share[k : k + size] @ each
    return total
