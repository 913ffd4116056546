"""Full-batch training with Adam, in compiled code; Python is entered once per history row."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from meshnn import checks, engine
from meshnn.arguments import as_list, real_number, whole_number
from meshnn.errors import MeshError
from meshnn.mesh import Mesh

__all__ = ["HistoryRow", "train_adam"]


@dataclass(frozen=True)
class HistoryRow:
    """Where training stands after `step` steps."""

    step: int
    loss: float  # before the last of these steps
    seconds: float  # spent in steps so far


def train_adam(
    mesh: Mesh,
    X: ArrayLike,
    y: ArrayLike,
    steps: int,
    *,
    learning_rate: float = 0.01,
    loss: str = "cross_entropy",
    every: int = 100,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
) -> Iterator[HistoryRow]:
    """Train the weights of a mesh in place on a whole batch, in one thread; a row every so many steps.

    The steps are taken as the rows are asked for: iterate over the result.

    Examples
    --------
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.training import train_adam
    >>> m = Mesh(Topology.mesh(2, 4, 2), activation="tanh", random_state=0)
    >>> X, y = [[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0]
    >>> rows = list(train_adam(m, X, y, steps=500, every=100))
    >>> len(rows), rows[-1].loss < 0.1
    (5, True)
    """
    steps, every = whole_number("steps", steps), whole_number("every", every)
    if not isinstance(mesh, Mesh):
        raise MeshError(f"train_adam takes a Mesh, got {type(mesh).__name__}")
    rate = real_number("learning_rate", learning_rate, "a positive number", lambda r: 0 < r < float("inf"))
    epsilon = real_number("epsilon", epsilon, "a number of at least 0", lambda e: 0 <= e < float("inf"))
    decays = [
        real_number(f"betas[{k}]", beta, "a number from 0 to below 1", lambda b: 0 <= b < 1)
        for k, beta in enumerate(as_list("betas", betas))
    ]
    if len(decays) != 2:
        raise MeshError(f"betas must be two numbers, got {len(decays)}")
    inputs = checks.as_inputs(X, mesh.topology, mesh.ticks)
    size = inputs.shape[1]
    targets = checks.as_targets(y, loss, None, size, mesh.topology.n_outputs, mesh.dtype)
    batch = engine.FullBatch(mesh.training_program(size), inputs, targets)
    return _rows(mesh, batch, steps, every, rate, (decays[0], decays[1]), epsilon)


def _rows(
    mesh: Mesh,
    batch: engine.FullBatch,
    steps: int,
    every: int,
    learning_rate: float,
    betas: tuple[float, float],
    epsilon: float,
) -> Iterator[HistoryRow]:
    state = engine.AdamState.fresh(mesh.weights)
    topology, ticks, seconds = mesh.topology, mesh.ticks, 0.0
    while state.done < steps:
        if mesh.topology is not topology or mesh.ticks != ticks:
            raise MeshError("the mesh got another graph or other ticks during training; start train_adam again")
        start = time.perf_counter()
        losses = batch.adam_steps(mesh.weights, state, min(every, steps - state.done), learning_rate, betas, epsilon)
        seconds += time.perf_counter() - start
        if not np.isfinite(losses).all():
            first = state.done - len(losses) + int(np.flatnonzero(~np.isfinite(losses))[0])
            raise MeshError(
                f"the loss became {losses[~np.isfinite(losses)][0]} after {first} steps; lower learning_rate"
            )
        yield HistoryRow(state.done, float(losses[-1]), seconds)
