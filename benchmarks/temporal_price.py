"""Truncation of influences after r hops (SnAp-r) on sparse recurrent nets: agreement, cost and error by r."""

import time

import numpy as np

from meshnn import Mesh, Topology
from temporal_streams import delayed_xor

METHODS = ("snap-1", "snap-2", "snap-3", "snap-4", "exact")
#: Numbers of neurons, and the number of other neurons that each reads.
NETS = ((32, 4), (128, 4))
DELAYS, RATE = (2, 5), 1e-3
#: Numbers of steps of the exact run before a comparison; gradients per comparison, with an equally long warm-up.
MOMENTS, COMPARED = (0, 2000, 10_000), 200


def sparse(h, fan, seed):
    """Return recurrent tanh neurons with random sources: one input and some neurons; the output reads all neurons."""
    rng = np.random.default_rng(seed)
    output = 2 + h
    pairs = [(i, j) for j in range(2, output) for i in (0, 1, *(2 + rng.choice(h, fan, replace=False)))]
    t = Topology(1, h, 1, pairs + [(i, output) for i in (1, *range(2, output))])
    mesh = Mesh(t, 1, "tanh", random_state=0)
    spread = np.where(t.dst == output, 0.1, np.where(t.src < 2, 0.7, 0.9 / np.sqrt(fan)))
    mesh.weights = rng.standard_normal(t.n_edges) * spread
    return mesh


def _task(steps, seed):
    X, y = delayed_xor(steps, DELAYS, random_state=seed)
    return (2 * X - 1).astype(np.float32), y.astype(np.float32)


def _stream(mesh, method):
    return mesh.stream("binary_cross_entropy", "adam", method=method, rate=RATE)


def cosines(h, fan, seed):
    """Return the mean cosine between approximate and exact gradient, by method and moment.

    The gradient is that of the recurrent neurons' parameters; truncation does not affect edges into the output.
    """
    X, y = _task(max(MOMENTS) + 1, seed)
    inside = np.flatnonzero(sparse(h, fan, seed).topology.dst < 2 + h)
    mesh, found, done = sparse(h, fan, seed), {method: [] for method in METHODS}, 0
    learner = _stream(mesh, "exact")
    for moment in MOMENTS:
        learner.run(X[done:moment], y[done:moment])
        done = moment
        probe, targets = _task(2 * COMPARED, 1000 + seed)
        gradients = {}
        for method in METHODS:
            stream = _stream(mesh, method)  # with the same weights, which are not trained
            stream.run(probe[:COMPARED])
            gradients[method] = []
            for x, target in zip(probe[COMPARED:], targets[COMPARED:], strict=True):
                stream.step(x)
                gradients[method].append(stream.gradient([target])[inside].astype(np.float64))
        for method in METHODS:
            pairs = zip(gradients[method], gradients["exact"], strict=True)
            found[method].append(float(np.mean([_cosine(a, b) for a, b in pairs if a.any() and b.any()])))
    return found


def _cosine(a, b):
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


def measure(quick=False):
    """Return rows of nets and methods."""
    seeds = range(1 if quick else 5)
    rows = []
    for h, fan in NETS:
        agree = [cosines(h, fan, seed) for seed in seeds]
        steps = 10_000 if quick else 50_000
        for method in METHODS:
            errors, best = [], float("inf")
            for seed in seeds:
                X, y = _task(steps, seed)
                stream = _stream(sparse(h, fan, seed), method)
                stream.peek(X[0])
                wrong = []
                for part in range(0, steps, 1000):
                    start = time.perf_counter()
                    out = stream.run(X[part : part + 1000], y[part : part + 1000])[:, 0]
                    best = min(best, (time.perf_counter() - start) / len(out))
                    wrong.append(float(((out > 0) != (y[part : part + 1000] == 1)).mean()))
                errors.append(wrong)
            plan = stream.plan
            rows.append({
                "net": f"{h} neurons, {fan} inputs each", "neurons": h, "method": method,
                "multiply-adds": int(plan.multiply_adds), "numbers": int(plan.columns), "microseconds": 1e6 * best,
                "cosine": [float(np.mean(a)) for a in zip(*(seed[method] for seed in agree), strict=True)],
                "errors": np.mean(errors, axis=0).tolist(), "overall": float(np.mean(errors)),
                "last": float(np.mean([e[-5:] for e in errors])),
            })  # fmt: skip
    return {"rows": rows, "moments": MOMENTS, "delays": DELAYS, "steps": steps, "window": 1000}
