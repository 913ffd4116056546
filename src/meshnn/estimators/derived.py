"""Fitted attributes that need the training samples: feature importances and the uncertainty of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshnn.errors import MeshError
from meshnn.estimators.scaling import Rotation
from meshnn.training.ensemble import Ensemble
from meshnn.training.laplace import Laplace, affordable
from meshnn.training.samples import InMemorySamples
from meshnn.training.sensitivity import importances

if TYPE_CHECKING:
    from meshnn.estimators.base import BaseMesh


def set_derived_attributes(model: BaseMesh, trainer: Ensemble) -> None:
    """Set them at the end of training; `_laplace` is the reason if the uncertainty is not available."""
    mesh, samples, penalties = model.mesh_, trainer.samples, trainer.best.penalties
    transform = model.preprocessing_.transform
    if model.preprocessing_.reading is not None:
        model._laplace = "it is not available for sequences"
        return
    axes = transform.axes if isinstance(transform, Rotation) else None
    if axes is None and model._transforms != [None]:
        mesh = model._merged(trainer)
        assert isinstance(samples, InMemorySamples)
        samples = samples.first_inputs(mesh.topology.n_inputs, mesh.dtype)
        # weights into outputs are those of the members divided by their number
        penalties = np.full(len(mesh.live_parameters()), penalties.mean() * len(trainer.used) ** 2)
    try:
        shares = importances(mesh, samples, axes)
        if shares is not None:
            model.feature_importances_ = model.preprocessing_.by_column(shares)
        if model._loss.classifies:
            return
        refused = affordable(mesh, samples) if axes is None else "there are more columns than rows"
        if refused or not isinstance(samples, InMemorySamples):
            model._laplace = refused
            return
        second_order = trainer.choice.solver.needs_float64 and mesh is model.mesh_
        found = Laplace.of(mesh, samples, penalties, second_order)
        model._laplace = found if mesh is model.mesh_ else found.towards(2.0 * trainer.held_out_loss())
    except MeshError as error:  # the net itself is fitted
        model._laplace = str(error)
