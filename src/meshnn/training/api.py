"""`train`: train the weights of a mesh in place, one history row at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshnn import checks
from meshnn.arguments import as_generator
from meshnn.errors import MeshError
from meshnn.losses import Targets, loss_named
from meshnn.mesh import Mesh
from meshnn.topology.builders import Seed
from meshnn.training.history import HistoryRow
from meshnn.training.samples import InMemorySamples
from meshnn.training.settings import Settings
from meshnn.training.structure.runtime import as_policies, first_topology
from meshnn.training.trainer import Trainer


def as_samples(
    mesh: Mesh, X: Any, y: Any, loss: str, sample_weight: Any = None, *, loss_ticks: Any = "last", readout: Any = None
) -> InMemorySamples:
    """Return validated samples for a mesh; `loss_ticks` and `readout` are those of `Mesh.gradient`."""
    inputs = checks.as_inputs(X, mesh.topology, mesh.ticks)
    size, n_outputs = inputs.shape[1], mesh.topology.n_outputs
    targets = Targets.make(
        loss_named(loss), y, sample_weight, size, n_outputs, mesh.dtype, mesh.ticks, loss_ticks, readout
    )
    rows = targets.counting
    if rows is not None:  # drop samples of weight 0
        inputs, targets = inputs[:, rows], targets.of(rows)
    return InMemorySamples(inputs, targets, float(size if sample_weight is None else np.sum(sample_weight)))


def train(
    mesh: Mesh,
    X: ArrayLike,
    y: ArrayLike,
    loss: str = "cross_entropy",
    *,
    sample_weight: ArrayLike | None = None,
    loss_ticks: Any = "last",
    readout: ArrayLike | None = None,
    validation: tuple[Any, ...] | None = None,
    random_state: Seed = None,
    structure: Any = None,
    **settings: Any,
) -> Iterator[HistoryRow]:
    """Train the weights of a mesh in place; iterate over the result to run the epochs.

    Parameters
    ----------
    mesh : Mesh
        The mesh to train. Its weights are the starting point and are overwritten.
    X : array_like (batch, n_inputs) or (ticks, batch, n_inputs)
        Inputs, constant over the ticks or one array per tick.
    y : array_like
        Targets, in the form that `Mesh.gradient` expects for the loss.
    loss : "cross_entropy", "binary_cross_entropy", "squared_error", "huber", "poisson" or "quantile:0.9"
        The loss to minimise, averaged over the samples. Default "cross_entropy".
    sample_weight : array_like (batch,), optional
        Weight per sample; by default all weights are 1.
    loss_ticks, readout
        The ticks at which the loss is computed, or how the outputs of several ticks are combined; see `Mesh.gradient`.
        By default the loss is computed at the last tick.
    validation : (X, y) or (X, y, loss_mask), optional
        Hold-out samples; the weights with the lowest loss on them are kept. `loss_mask` replaces `loss_ticks` (or
        `readout`, if given) for these samples; pass it only if that array has a sample axis.
    random_state : int, Generator or None
        Seed of the sample order and of the restarts. None draws a new seed.
    structure : policy or list of policies, optional
        Policies that change the graph during training, see `meshnn.training.structure`. A policy with a dense start
        replaces the graph and the weights of the mesh.
    **settings
        The fields of `Settings`: solver, batch_size, max_epochs, l1, l2, ...

    Yields
    ------
    HistoryRow

    Examples
    --------
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.training import train
    >>> m = Mesh(Topology.mesh(2, 4, 2), activation="tanh", dtype="float64", random_state=0)
    >>> X, y = [[0, 0], [0, 1], [1, 0], [1, 1]], [0, 0, 0, 1]
    >>> *_, last = train(m, X, y, solver="lm", max_epochs=30, l2=1e-6)
    >>> last.loss < 0.1, last.accuracy
    (True, 1.0)
    """
    if not isinstance(mesh, Mesh):
        raise MeshError(f"train takes a Mesh, got {type(mesh).__name__}")
    try:
        chosen = Settings(**settings)
    except TypeError as error:
        raise MeshError(f"{str(error).replace('Settings.__init__()', 'train')}; see meshnn.training.Settings") from None
    dense = first_topology(as_policies(structure), mesh.topology)
    if dense != mesh.topology:
        mesh.rewire(dense)
        mesh.weights = mesh.draw_weights(random_state)
    samples = as_samples(mesh, X, y, loss, sample_weight, loss_ticks=loss_ticks, readout=readout)
    held_out = None
    if validation is not None:
        X_held, y_held, loss_mask = (*validation, loss_ticks if readout is None else readout)[:3]
        name = "loss_ticks" if readout is None else "readout"
        held_out = as_samples(mesh, X_held, y_held, loss, **{name: loss_mask})
    seed = int(as_generator(random_state).integers(2**63))
    return Trainer(mesh, samples, chosen, held_out, seed, structure).rows()
