"""Fitted models without scikit-learn, which takes longer to import than the rest of a `meshnn predict` together.

What the outputs of a net mean is said here once, for these and for the estimators.
"""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np

from meshnn.arguments import known
from meshnn.arrays import Array
from meshnn.errors import MeshError
from meshnn.estimators._scaling import Scaling
from meshnn.export.blueprint import Blueprint, ExportError, input_columns
from meshnn.export.exports import Exports
from meshnn.export.ranges import Ranges
from meshnn.losses import LOSSES, Loss
from meshnn.mesh import Mesh
from meshnn.training.laplace import Laplace

__all__ = ["Classifies", "FittedClassifier", "FittedRegressor", "Regresses", "is_dask"]


def is_dask(X: Any) -> bool:
    """Whether it is a collection of Dask, which is not imported for it."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "dask")


def by_partition(method: Any) -> Any:
    """A collection of Dask is answered by one, partition by partition, when it is computed."""

    @wraps(method)
    def answered(self: Any, X: Any, *more: Any, **options: Any) -> Any:
        if is_dask(X):
            from meshnn.integrations.dask import predict

            if more or options:
                raise MeshError(f"{method.__name__} of a collection of Dask takes nothing else; compute a part of it")
            return predict(self, X, method.__name__)
        return method(self, X, *more, **options)

    return answered


class _Meaning(Exports):
    """What the outputs of a net mean, by its loss."""

    _kind: str
    _default_loss: str
    loss: str | None = None
    loss_: str  # that of the net, whatever `loss` has been set to since
    mesh_: Mesh
    _scaling: Scaling
    n_threads: int | None
    _ranges: Ranges | None = None  # of the training rows, for exports in integers

    def _learner(self) -> Any:
        """A stream that goes on from what training has found."""
        from meshnn.streaming.portable_convert import portable_of

        self.blueprint()  # says what is missing, if nothing was learned yet
        return portable_of(self)

    @property
    def _loss(self) -> Loss:
        """The loss to fit with, if it is one of this kind."""
        usual = LOSSES[self._default_loss]
        kind = (usual.classifies, usual.several)
        mine = [name for name, other in LOSSES.items() if (other.classifies, other.several) == kind]
        what = f"loss of a {self._kind}{' of several labels' * usual.several}"
        return usual if self.loss is None else LOSSES[known(what, self.loss, mine)]

    def _inputs(self, X: Any) -> Array:
        """Features as the net sees them."""
        raise NotImplementedError

    def _outputs(self, X: Any) -> Array:
        """Raw outputs (n_samples, n_outputs)."""
        inputs = self._inputs(X)  # refused before there is a net
        return self.mesh_.forward(inputs, n_threads=self.n_threads)

    def blueprint(self) -> Blueprint:
        """What it computes, as plain values and arrays: what exports are written from."""
        if not hasattr(self, "mesh_"):
            raise ExportError(f"this {type(self).__name__} has learned nothing yet; call fit first")
        scaling = self._scaling
        plain = not scaling.x_mean.any() and (scaling.x_scale == 1.0).all()
        return replace(
            self.mesh_.blueprint(),
            x_mean=None if plain else scaling.x_mean,
            x_scale=None if plain else scaling.x_scale,
            features=self._feature_names(),
            columns=() if (encoder := getattr(self, "encoder_", None)) is None else input_columns(encoder),
            ranges=self._ranges,
            title=f"{type(self).__name__.removeprefix('Fitted')}: {self.mesh_!r}",
        )

    def _tuned(self, quantiser: Any, net: Any, X: Array) -> Any:
        if quantiser.blueprint.timing is not None:
            return net
        from meshnn.estimators._tuning import tuned

        return tuned(self.mesh_, quantiser, net, X, self._scaling.inputs(X))

    def _encoded_samples(self, X: Any) -> Any:
        """A DataFrame as encoded features; arrays are taken to be encoded."""
        features = getattr(self, "_features", None)
        return features(X) if features is not None and hasattr(X, "columns") else X

    def _feature_names(self) -> tuple[str, ...]:
        """Of the inputs."""
        encoder = getattr(self, "encoder_", None)
        names = getattr(self, "feature_names_in_", ()) if encoder is None else encoder.feature_names
        return tuple(str(name) for name in names)


class Classifies(_Meaning):
    """Outputs are classes, or labels that a sample may have several of."""

    _kind = "classifier"
    _several = False  # whether y was an indicator matrix at the last fit
    classes_: Array

    @property
    def _default_loss(self) -> str:  # type: ignore[override]
        return "binary_cross_entropy" if self._several else "cross_entropy"

    def blueprint(self) -> Blueprint:
        """What it computes, as plain values and arrays: what exports are written from."""
        found, several = super().blueprint(), LOSSES[self.loss_].several
        classes = tuple(np.asarray(self.classes_).tolist())
        return replace(found, link="sigmoid" if several else "softmax", classes=classes, several=several)

    @by_partition
    def decision_function(self, X: Any) -> Array:
        """Outputs (n_samples, n_classes); of two classes, how much the second outweighs the first (n_samples,)."""
        outputs = self._outputs(X)
        one = outputs.shape[1] == 2 and not LOSSES[self.loss_].several
        return outputs[:, 1] - outputs[:, 0] if one else outputs

    @by_partition
    def predict_proba(self, X: Any) -> Array:
        """Probabilities (n_samples, n_classes): the softmax of the outputs; of several labels the sigmoid of each."""
        outputs = self._outputs(X).astype(np.float64)
        return LOSSES[self.loss_].predicted(outputs)

    @by_partition
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the probabilities, also of those that are too small for a float."""
        outputs = self._outputs(X).astype(np.float64)
        return LOSSES[self.loss_].log_predicted(outputs)

    @by_partition
    def predict(self, X: Any) -> Array:
        """The likeliest class of every sample; of several labels an indicator matrix (n_samples, n_labels)."""
        outputs = self._outputs(X)
        if LOSSES[self.loss_].several:
            return (outputs > 0).astype(np.int64)
        return np.asarray(self.classes_[outputs.argmax(axis=1)])


class Regresses(_Meaning):
    """Outputs are values."""

    _default_loss = "squared_error"
    _kind = "regressor"
    _flat: bool
    _laplace: Laplace | str  # or why there is none

    def blueprint(self) -> Blueprint:
        """What it computes, as plain values and arrays: what exports are written from."""
        found, s = super().blueprint(), self._scaling
        plain = not s.y_mean.any() and (s.y_scale == 1.0).all()
        link = "exp" if LOSSES[self.loss_].logarithmic else "identity"
        y_mean, y_scale = (None, None) if plain else (s.y_mean, s.y_scale)
        return replace(found, link=link, y_mean=y_mean, y_scale=y_scale, values=True)

    @by_partition
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Values (n_samples,), or (n_samples, n_outputs) if y had columns.

        With `return_std` also the standard deviation of a target around its prediction, of the same shape: noise, and
        what the samples leave open about the weights (Laplace's approximation, see docs/solvers.md). For the squared
        error, and nets of at most 1000 live parameters.
        """
        outputs = self._outputs(X)
        values = self._scaling.values(LOSSES[self.loss_].predicted(outputs))
        values = values[:, 0] if self._flat else values
        if not return_std:
            return values
        if isinstance(self._laplace, str):
            raise MeshError(f"there is no standard deviation of predictions: {self._laplace}")
        std = np.sqrt(self._laplace.variance(self.mesh_, self._inputs(X))) * self._scaling.y_scale
        return values, std[:, 0] if self._flat else std


class _Fitted:
    """What a file holds of an estimator; features come as an array (n_samples, n_features)."""

    mesh_: Mesh
    _scaling: Scaling
    n_threads: int | None = None

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """The parameters that matter for predicting."""
        return {"n_threads": self.n_threads}

    def set_params(self, **given: Any) -> None:
        """Set them."""
        self.__dict__.update(given)

    def _net(self) -> dict[str, Any]:
        return {}

    def _inputs(self, X: Any) -> Array:
        return self._scaling.inputs(X)


class FittedClassifier(_Fitted, Classifies):
    """A classifier that only predicts."""


class FittedRegressor(_Fitted, Regresses):
    """A regressor that only predicts."""
