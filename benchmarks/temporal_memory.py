"""Tasks on a stream that require memory: delayed XOR and trace patterning. Running error over seeds."""

import time

import numpy as np

from meshnn import Mesh, Topology, networks
from temporal_streams import delayed_xor, trace_patterning

#: Steps per average of errors; in trace patterning only steps with a due signal count.
WINDOW = {"delayed xor": 1000, "trace patterning": 4000}
#: These streams are stationary, so the filter does not forget.
SETTINGS = {"scale": True, "forgetting": 1e-6, "covariance": "full"}
#: Maximum error rate in the last window of every seed for a solved task.
SOLVED = 0.02


def _static(d, parameters, seed):
    """Return a layered net without memory and with at least as many parameters."""
    hidden = -(-(parameters - 1) // (d + 2))
    return Mesh(Topology.layered([d, hidden, 1]), 2, "tanh", dtype="float64", random_state=seed)


def _nets():
    """Return (builder by number of inputs and seed, whether the net has memory) by name."""
    count, memory = 16, (1, 16)

    def columns(d, seed):
        return networks.columns(d, 2 * count, 1, ticks=1, memory=memory, dtype="float64", random_state=seed)

    def cascade(d, seed):
        return networks.cascade_of_columns(
            d, count, 1, per_stage=1, ticks=1, memory=memory, dtype="float64", random_state=seed
        )

    def echo(d, seed):
        return networks.reservoir(d, 100, 1, ticks=1, dtype="float64", random_state=seed)

    def static(d, seed):
        return _static(d, cascade(d, seed).n_parameters, seed)

    return {
        f"cascade of {count} columns": (cascade, True),
        f"{2 * count} parallel columns": (columns, True),
        "reservoir of 100, trained readout": (echo, True),
        "layered net, no memory": (static, False),
    }


def _data(task, seed, quick):
    if task == "delayed xor":
        X, y = delayed_xor(8000 if quick else 20_000, random_state=seed)
        return X, y, np.ones(len(y), bool)
    return trace_patterning(40_000 if quick else 120_000, random_state=seed)


def _curve(wrong, due, window):
    """Return the error rate of each window."""
    ends = range(0, len(wrong), window)
    return [float(wrong[a : a + window][due[a : a + window]].mean()) for a in ends]


def measure(quick=False):
    """Return curves of every net and task, by seed."""
    found = {}
    for task, window in WINDOW.items():
        rows = []
        for name, (make, remembers) in _nets().items():
            curves, best = [], float("inf")
            for seed in range(1 if quick else 5):
                X, y, due = _data(task, seed, quick)
                net = make(X.shape[1], seed)
                memory = {"memory": "carry" if remembers else "none"}
                stream = net.stream("binary_cross_entropy", "ekf", **memory, **SETTINGS)
                start = time.perf_counter()
                out = stream.run(X, y)[:, 0]
                best = min(best, (time.perf_counter() - start) / len(X))
                curves.append(_curve((out > 0) != (y == 1), due, window))
            last = [curve[-1] for curve in curves]
            rows.append({
                "what": name, "memory": remembers, "parameters": net.n_parameters, "microseconds": 1e6 * best,
                "curves": curves, "last": float(np.mean(last)), "worst": float(np.max(last)),
                "solved": int(sum(e <= SOLVED for e in last)),
            })  # fmt: skip
        found[task] = {"window": window, "rows": rows, "steps": len(y)}
    return found
