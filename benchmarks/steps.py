"""One training step (forward, loss, gradient, Adam), full batch, one thread: nets x ticks, against JAX and PyTorch.

python benchmarks/run.py --nets dense --ticks 2,3     # a part of the table; nets by a part of their names
python benchmarks/run.py --quick --nets "3-5-2;5-10"  # some seconds per row: no PyTorch, no check of equal losses
"""

from functools import partial

import numpy as np

import peer_jax
import peer_torch
import roofline
from meshnn import Mesh
from meshnn.codes import StepRule
from meshnn.engine import Optimizer, Steps
from meshnn.training.api import as_samples
from nets import NETS, data, initial_weights
from timing import best_of

TICKS = (2, 3, 4, 8)


def ours(topology, ticks, X, y, weights, steps, method="auto"):
    """Return a function that takes `steps` compiled steps of Adam and returns the final loss; and the program."""
    mesh = Mesh(topology, ticks)
    samples = as_samples(mesh, X, y, "cross_entropy")
    program = mesh.engine("epochs", method, batch=len(X), n_jobs=1)
    batch = Steps(program, samples.X, samples.targets, len(X), n_jobs=1)
    order, rates = np.empty((steps, 0), np.int64), np.full(steps, 1e-3)
    zeros = np.zeros_like(mesh.weights)

    def run():
        mesh.weights = weights
        adam = Optimizer(StepRule.ADAM, (0.9, 0.999), 1e-8, 0.0, 0.0, zeros, zeros.copy(), zeros.copy())
        return batch.epochs(mesh.values, adam, order, rates)[-1, 0]

    return run, program


def lengths(topology, ticks, batch):
    """Return numbers of steps that take some 20 ms, estimated per peer; one call of them is a round.

    A call of meshnn ends with the loss after the last step, a third of a step, so it needs many steps.
    """
    t = topology
    dense = 6.0 * batch * t.n_neurons * (t.n_neurons - t.n_clamped) * ticks  # operations of a dense step

    def steps(seconds, most):
        return int(np.clip(0.02 / seconds, 2, most))

    return {
        "meshnn": max(steps(3e-6 + dense / 1e11, 3000), 30),
        "jax": steps(20e-6 + dense / 3e10, 1000),
        "torch": steps(600e-6 + dense / 3e10, 40),
    }


def contestants(net, ticks, X, y, weights, length, quick):
    """Return all contestants that could be the fastest: the edge list of JAX is slow on dense graphs, so it is
    omitted there; eager PyTorch only runs at 2 ticks, compiled PyTorch on dense nets."""  # fmt: skip
    topology = net.topology
    ways = [way for way in peer_jax.WAYS if way != "edges" or not net.dense]
    arguments = (topology, ticks, X, y, weights)
    found = {f"jax {way}": partial(peer_jax.trainer, way, *arguments, length["jax"]) for way in ways}
    if ticks == 2 and not quick:
        for way in peer_torch.WAYS:
            found[f"torch {way}"] = partial(peer_torch.trainer, way, *arguments, length["torch"])
    if net.dense and net.hidden >= 200 and not quick:  # compiles for half a minute
        found["torch compiled"] = partial(peer_torch.trainer, "split", *arguments, length["torch"], compiled=True)
    return found


def measure(quick=False, nets="", ticks=TICKS):
    """Return one row per net and number of ticks: microseconds per step, ratios, and fractions of the peak rates."""
    peak = roofline.measure(quick)
    rows = []
    for net in NETS:
        if nets and not any(part in net.name for part in nets.split(";")):
            continue
        for k in ticks:
            if net.more is not None or k == 2:
                rows.append(row(net, k, quick, peak))
    return {"peak": peak, "rows": rows}


def row(net, ticks, quick, peak):
    """Measure one net at a number of ticks."""
    topology = net.topology
    X, y = data(net.features, net.outputs, net.batch)
    weights = initial_weights(topology)
    length = lengths(topology, ticks, net.batch)
    agreement = None if quick else check(net, ticks, X, y, weights)
    mine, program = ours(topology, ticks, X, y, weights, length["meshnn"])
    running = {name: make() for name, make in contestants(net, ticks, X, y, weights, length, quick).items()}
    best = best_of({"meshnn": mine} | running, rounds=7 if quick else 20)
    micro = {key: value / length[key.split()[0]] * 1e6 for key, value in best.items()}
    fastest = min((v, k) for k, v in micro.items() if k.startswith("jax") or k == "torch compiled")
    eager = [v for k, v in micro.items() if k in ("torch masked", "torch split")]
    least = net.few if ticks <= 3 else net.more
    return {
        "net": net.name,
        "ticks": ticks,
        "edges": topology.n_edges,
        "live": int((~topology.dead_edges(ticks)).sum()),
        "method": program.plan.method.name,
        "microseconds": micro,
        "fastest peer": fastest[1],
        "times": fastest[0] / micro["meshnn"],
        "bar": least,
        "times torch": min(eager) / micro["meshnn"] if eager else None,
        "roofline": roofline.shares(program, topology, net.batch, micro["meshnn"] / 1e6, peak),
        "of sgemm bar": 0.4 if net.dense and net.hidden >= 200 else None,
        "largest loss difference": agreement,
    }


def check(net, ticks, X, y, weights):
    """Return the largest difference between the losses of all contestants after some steps, which must be small."""
    topology = net.topology
    steps = (
        20 if ticks < 8 else 3
    )  # rounding errors grow with ticks and steps: after 20, two JAX variants differ by 1e-3
    # the others return the loss before the last step
    finals = [ours(topology, ticks, X, y, weights, steps - 1)[0]()]
    plain = ticks > 2 or net.hidden >= 200  # without torch.compile
    peers = contestants(net, ticks, X, y, weights, {"jax": steps, "torch": steps}, quick=plain)
    finals += [make()()[-1] for make in peers.values()]
    spread = float(np.ptp(np.array(finals, dtype=np.float64)))
    assert spread < 1e-3 * max(1.0, abs(finals[0])), f"the contestants do not train the same net: {finals}"
    return spread
