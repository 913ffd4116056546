"""Two threads compared with one, and a check of equal bits."""

from functools import partial

import numpy as np

from meshnn import Mesh
from nets import data, initial_weights, mesh_topology
from timing import best_of


def measure(quick=False):
    """Return one row per net and batch: milliseconds with one and two threads."""
    rows = []
    for name, shape, activation in (
        ("33-50-10 at 20%", (32, 50, 10, 0.2), "relu"),
        ("33-50-10", (32, 50, 10, 1.0), "tanh"),
        ("3-15-2", (2, 15, 2, 1.0), "tanh"),
    ):
        for batch in (4096, 65536):
            topology = mesh_topology(*shape)
            X, y = data(topology.n_inputs, topology.n_outputs, batch)
            mesh = Mesh(topology, 3, activation, weights=initial_weights(topology))
            one, two = (mesh.gradient(X, y, n_jobs=k) for k in (1, 2))
            same = one[0] == two[0] and np.array_equal(one[1], two[1])
            best = best_of(
                {k: partial(mesh.gradient, X, y, n_jobs=k) for k in (1, 2)}, rounds=5 if quick else 15, calls=10
            )
            rows.append(
                {
                    "net": name,
                    "batch": batch,
                    "milliseconds": {str(k): v * 1e3 for k, v in best.items()},
                    "speed-up": best[1] / best[2],
                    "same bits": bool(same),
                }
            )
    return rows
