"""More ticks: every method, JAX, and whether `forward` chooses the best forward-only method."""

from functools import partial

import numpy as np

from meshnn import Mesh, Topology
from nets import data, initial_weights, mesh_topology
from timing import best_of


def _graphs():
    yield "3-15-2, 700", mesh_topology(2, 15, 2, 1.0), 700
    yield "33-50-10 at 20%, 64", mesh_topology(32, 50, 10, 0.2), 64
    # two random in-edges per neuron and many ticks: suited to blocks
    rng = np.random.default_rng(0)
    loose = [(int(i), j) for j in range(2, 22) for i in 2 + rng.choice(20, 2, replace=False)]
    yield (
        "fan-in 2, 20 hidden, 256",
        Topology(1, 20, 2, [*loose, *((0, k) for k in range(2, 7)), (2, 22), (3, 23)]),
        256,
    )


def measure(quick=False):
    """Return one row per net and number of ticks: microseconds per gradient."""
    import peer_jax

    rows = []
    for name, topology, batch in _graphs():
        for ticks in (3, 4, 8) if not name.startswith("fan-in") else (8, 24, 48):
            X, y = data(topology.n_inputs, topology.n_outputs, batch)
            weights = initial_weights(topology)
            mesh = Mesh(topology, ticks, "tanh", weights=weights)
            repeats = 20
            contestants = {
                method: partial(mesh.gradient, X, y, gradient=method, n_jobs=1)
                for method in ("factored", "influence", "adjoint", "auto", "forward")
            }
            costs = mesh.explain(batch).decision
            slow = {"influence"} if costs.cost("influence").multiply_adds * batch > 3e8 else set()
            contestants = {k: v for k, v in contestants.items() if k not in slow}
            for way in ("masked", "split"):
                contestants[f"jax {way}"] = peer_jax.gradient(way, topology, ticks, X, y, weights, repeats)
            best = best_of(contestants, rounds=5 if quick else 15, calls=5)
            micro = {k: v * 1e6 / (repeats if k.startswith("jax") else 1) for k, v in best.items()}
            forward_only = min(micro[k] for k in ("factored", "influence") if k in micro)
            rows.append(
                {
                    "net": name,
                    "ticks": ticks,
                    "microseconds": micro,
                    "left out": sorted(slow),
                    "auto takes": mesh.explain(batch).chosen,
                    "forward takes": mesh.engine("gradient", "forward", batch, n_jobs=1).plan.method.name,
                    "forward over best forward-only": micro["forward"] / forward_only,
                    "forward-only over adjoint": forward_only / micro["adjoint"],
                }
            )
    return rows
