"""Compile the kernels of one precision, before the workers of pytest-xdist would all do so at once.

python tests/warm.py float64
"""

import sys

import numpy as np

from meshnn import Mesh, Topology
from meshnn.training import train


def main(dtype):
    m = Mesh(Topology.mesh(2, 3, 2), ticks=3, activation="tanh", dtype=dtype, random_state=0)
    X, labels, values = np.ones((4, 2)), np.array([0, 1, 0, 1]), np.ones((4, 2))
    m.forward(X)
    m.states(X)
    for method in ("factored", "blocks", "adjoint", "tensor"):
        m.gradient(X, labels, method=method)
        m.gradient(X, values, "squared_error", method=method)
        m.jacobian(X, method=method)
        m.growth_scores(X, labels, src=[3], dst=[3], method=method)
        m.gradient(X, labels, method=method, loss_ticks="all", return_state=True)
    for options in ({"solver": "lm"}, {"solver": "adam", "batch_size": 2}, {"solver": "sgd"}):
        list(train(m, X, labels, max_epochs=2, **options))
        list(train(m, X, labels, max_epochs=2, loss_ticks="all", **options))
    # the largest kernel of all, and tests of streams in both precisions begin at once
    m.stream("cross_entropy").run(X, labels)


if __name__ == "__main__":
    main(sys.argv[1])
