"""One training step (forward, loss, gradient, Adam) on six small nets, ticks 2, full batch, one thread."""

import numpy as np

import peer_jax
import peer_torch
from meshnn import Mesh
from meshnn.codes import ADAM
from meshnn.program import Optimizer, Steps
from meshnn.training.api import as_samples
from nets import SIX, data, initial_weights, mesh_topology
from timing import best_of

TICKS = 2


def ours(topology, X, y, weights, steps):
    """A function that takes `steps` steps of Adam in compiled code and returns the loss after them."""
    mesh = Mesh(topology, TICKS)
    samples = as_samples(mesh, X, y, "cross_entropy")
    batch = Steps(mesh.program("epochs", batch=len(X)), samples.X, samples.targets, len(X), n_threads=1)
    order, rates = np.empty((steps, 0), np.int64), np.full(steps, 1e-3)
    zeros = np.zeros_like(mesh.weights)

    def run():
        mesh.weights = weights
        adam = Optimizer(ADAM, (0.9, 0.999), 1e-8, 0.0, 0.0, zeros, zeros.copy(), zeros.copy())
        return batch.epochs(mesh.values, adam, order, rates)[-1, 0]

    return run


def measure(quick=False):
    """A row a net: microseconds a step of each contestant and the ratios to the fastest way of each peer."""
    rows = []
    for name, features, hidden, outputs, density, batch in SIX:
        topology = mesh_topology(features, hidden, outputs, density)
        X, y = data(features, outputs, batch)
        weights = initial_weights(topology)
        budget = 0.1 if quick else 0.25
        lengths = {"meshnn": 3000 if hidden < 50 else 600, "jax": 1000 if hidden < 50 else 200, "torch": 100}
        if hidden == 500:
            lengths |= {"jax": 10, "torch": 10}
        contestants = {"meshnn": ours(topology, X, y, weights, lengths["meshnn"])}
        for way in peer_jax.WAYS:
            contestants[f"jax {way}"] = peer_jax.trainer(way, topology, TICKS, X, y, weights, lengths["jax"])
        for way in peer_torch.WAYS:
            contestants[f"torch {way}"] = peer_torch.trainer(way, topology, TICKS, X, y, weights, lengths["torch"])
        agreement = check(topology, X, y, weights)
        best = best_of(contestants, rounds=3 if quick else max(5, int(budget * 40)))
        micro = {key: value / lengths[key.split()[0]] * 1e6 for key, value in best.items()}
        jax = min((v, k) for k, v in micro.items() if k.startswith("jax"))
        torch = min((v, k) for k, v in micro.items() if k.startswith("torch"))
        rows.append(
            {
                "net": name,
                "edges": topology.n_edges,
                "live": int((~topology.dead_edges(TICKS)).sum()),
                "microseconds": micro,
                "fastest jax": jax[1],
                "fastest torch": torch[1],
                "times jax": jax[0] / micro["meshnn"],
                "times jax masked": micro["jax masked"] / micro["meshnn"],
                "times torch": torch[0] / micro["meshnn"],
                "largest loss difference": agreement,
            }
        )
    return rows


def check(topology, X, y, weights, steps=20):
    """Largest difference of the loss after `steps` steps between all contestants: they must train the same net."""
    finals = [ours(topology, X, y, weights, steps - 1)()]  # the others give the loss that the last step starts from
    finals += [peer_jax.trainer(way, topology, TICKS, X, y, weights, steps)()[-1] for way in peer_jax.WAYS]
    finals += [peer_torch.trainer(way, topology, TICKS, X, y, weights, steps)()[-1] for way in peer_torch.WAYS]
    spread = float(np.ptp(np.array(finals, dtype=np.float64)))
    assert spread < 1e-4 * max(1.0, abs(finals[0])), f"the contestants do not train the same net: {finals}"
    return spread
