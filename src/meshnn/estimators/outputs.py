"""Interpretation of the outputs of a net as classes or values, and fitted models that predict without scikit-learn.

The import of scikit-learn would take longer than the rest of `meshnn predict`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from meshnn.arguments import real_number
from meshnn.arrays import Array
from meshnn.errors import MeshError
from meshnn.estimators.preprocessing import Preprocessing, is_dask, is_frame
from meshnn.export.blueprint import Blueprint, ExportError, Exports
from meshnn.export.ranges import Ranges
from meshnn.losses import loss_named
from meshnn.mesh import Mesh


class Outputs(Exports):
    """A net with its preprocessing and the interpretation of its outputs, which depends on the loss."""

    _kind: str
    loss_: str  # the loss of the last fit, also if `loss` was changed since
    mesh_: Mesh
    preprocessing_: Preprocessing
    n_jobs: int | None
    _features: Callable[[Any], Any]  # checked features of X, before scaling
    _ranges: Ranges | None = None  # of the training rows, for integer exports

    @property
    def n_features_in_(self) -> int:
        """Number of columns of X."""
        return self.preprocessing_.n_features

    def _required(self, name: str, missing: str) -> Any:
        """Return an attribute of the preprocessing; AttributeError with the message `missing` if it is None."""
        found = getattr(self.preprocessing_, name)
        if found is None:
            raise AttributeError(missing)
        return found

    @property
    def feature_names_in_(self) -> Array:
        """Names of the columns of X; only defined if all columns have names."""
        return np.array(self._required("names", "feature_names_in_: the columns of X had no names"), object)

    @property
    def encoder_(self) -> Any:
        """The encoder from tables to features; only defined if X was a table."""
        return self._required("encoder", "encoder_: X was not a table")

    @property
    def reading_(self) -> Any:
        """When the outputs are read; only defined if X was sequences."""
        return self._required("reading", "reading_: X was not sequences")

    def _learner(self) -> Any:
        """Return a stream that continues from the trained weights."""
        from meshnn.streaming.portable import portable_of

        self.blueprint()  # raises if the model is not fitted
        return portable_of(self)

    def _predicted(self, X: Any, meaning: Callable[[Array, Any, str], Any], method: str) -> Any:
        """Return `meaning` of the raw outputs, the features and the method name, in the form of X.

        X may also be the path of a table or a Dask collection.
        """
        if is_dask(X):
            from meshnn.integrations.dask import predict

            if method == "predict with std":
                raise MeshError("return_std is not available for a Dask collection; compute a part of it first")
            return predict(self, X, method)
        if isinstance(X, (str, PathLike)):
            from meshnn.tables.reader import row_blocks

            encoder = self.preprocessing_.encoder
            blocks = row_blocks(X, [] if encoder is None else encoder.text_columns)
            parts = [self._predicted(block, meaning, method) for block in blocks]
            if isinstance(parts[0], tuple):
                return tuple(np.concatenate(part) for part in zip(*parts, strict=True))
            return np.concatenate(parts)
        features = self._features(X)
        found = meaning(self.preprocessing_.outputs(self.mesh_, features, self.n_jobs), features, method)
        return self.preprocessing_.grouped(found, features, X)

    def blueprint(self) -> Blueprint:
        """Return the computation of the model as plain values and arrays, the source of all exports."""
        if not hasattr(self, "mesh_"):
            raise ExportError(f"this {type(self).__name__} is not fitted; call fit first")
        kind = (self.preprocessing_.kind + self._kind).title().replace(" ", "")
        title = f"{'Mesh' * type(self).__name__.startswith('Mesh')}{kind}: {self.mesh_!r}"
        return replace(self.preprocessing_.blueprint(self.mesh_), ranges=self._ranges, title=title)

    def _encoded_samples(self, X: Any) -> Any:
        """Return the features of a DataFrame; arrays are returned unchanged."""
        p = self.preprocessing_
        return p.features(X, type(self).__name__) if is_frame(X) and p.reading is None else X

    def _tuned(self, quantiser: Any, net: Any, X: Array) -> Any:
        from meshnn.estimators.tuning import tuned

        return tuned(self.mesh_, quantiser, net, X, self.preprocessing_.inputs(X))


class ClassOutputs(Outputs):
    """Mixin for classifiers, with one class per sample or several labels per sample."""

    _kind = "classifier"
    _several = False  # whether y was an indicator matrix at the last fit
    classes_: Array

    def blueprint(self) -> Blueprint:  # noqa: D102
        found, several = super().blueprint(), loss_named(self.loss_).several
        classes = tuple(np.asarray(self.classes_).tolist())
        return replace(found, link="sigmoid" if several else "softmax", classes=classes, several=several)

    def decision_function(self, X: Any) -> Array:
        """Return the outputs (n_samples, n_classes); for two classes the logit of the second class (n_samples,)."""
        return self._predicted(X, self._meaning, "decision_function")

    def predict_proba(self, X: Any) -> Array:
        """Return probabilities (n_samples, n_classes): softmax of the outputs, or sigmoid for several labels."""
        return self._predicted(X, self._meaning, "predict_proba")

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of the probabilities, finite even where a probability underflows."""
        return self._predicted(X, self._meaning, "predict_log_proba")

    def predict(self, X: Any) -> Array:
        """Return the most probable class per sample (n_samples,).

        For several labels per sample, return an indicator matrix (n_samples, n_labels). For sequences with
        readout="all", return the class of each step, grouped by sequence.
        """
        return self._predicted(X, self._meaning, "predict")

    def _meaning(self, outputs: Array, features: Any, method: str) -> Array:
        """Return the result of a prediction method, given the outputs of the net."""
        loss = loss_named(self.loss_)
        if method == "predict_proba":
            return loss.predicted(outputs.astype(np.float64))
        if method == "predict_log_proba":
            return loss.log_predicted(outputs.astype(np.float64))
        if method == "predict":
            return (outputs > 0).astype(np.int64) if loss.several else self.classes_[outputs.argmax(axis=1)]
        return outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 and not loss.several else outputs


class ValueOutputs(Outputs):
    """Mixin for regressors."""

    _kind = "regressor"
    _flat: bool  # whether y had one dimension
    _laplace: Any  # the uncertainty of the weights, or the reason why it is not available

    def blueprint(self) -> Blueprint:  # noqa: D102
        found, s = super().blueprint(), self.preprocessing_.scaling
        plain = not s.y_mean.any() and (s.y_scale == 1.0).all()
        link = "exp" if loss_named(self.loss_).logarithmic else "identity"
        y_mean, y_scale = (None, None) if plain else (s.y_mean, s.y_scale)
        return replace(found, link=link, y_mean=y_mean, y_scale=y_scale, values=True)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return predictions (n_samples,), or (n_samples, n_outputs) if y was two-dimensional.

        For sequences with readout="all", return the predictions of each step, grouped by sequence.

        Parameters
        ----------
        X : array_like, DataFrame or scipy.sparse matrix (n_samples, n_features)
            Samples, or the path of a table.
        return_std : bool, default=False
            Also return the standard deviation of a target around its prediction, of the same shape. It combines the
            noise and the uncertainty of the weights (Laplace approximation; nets with more than 1,000 live
            parameters use the last layer only). Requires loss="squared_error".

        Returns
        -------
        predictions : array
        std : array, if `return_std` is True
        """
        return self._predicted(X, self._values, "predict with std" if return_std else "predict")

    def _values(self, outputs: Array, features: Any, method: str) -> Any:
        p = self.preprocessing_
        found = p.scaling.values(loss_named(self.loss_).predicted(outputs))
        found = found[:, 0] if self._flat else found
        if method == "predict":
            return found
        if isinstance(self._laplace, str):
            raise MeshError(f"the standard deviation of predictions is not available: {self._laplace}")
        std = np.sqrt(self._laplace.variance(self.mesh_, p.inputs(features, self.mesh_.dtype))) * p.scaling.y_scale
        return found, std[:, 0] if self._flat else std

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Array, Array]:
        """Return lower and upper bounds that are expected to contain a fraction `coverage` of the targets.

        The bounds follow from the standard deviation of `predict(X, return_std=True)` and a normal distribution.

        Parameters
        ----------
        X : array_like, DataFrame or scipy.sparse matrix (n_samples, n_features)
            Samples.
        coverage : float, default=0.9
            Fraction of targets inside the bounds, between 0 and 1.

        Returns
        -------
        lower, upper : array
            The bounds, in the shape of the predictions.
        """
        from statistics import NormalDist

        share = real_number("coverage", coverage, "a number between 0 and 1", lambda v: 0 < v < 1)
        value, std = self.predict(X, return_std=True)
        half = NormalDist().inv_cdf((1 + share) / 2) * std
        return value - half, value + half


class FittedModel:
    """A fitted estimator from a file that does not need scikit-learn; it accepts arrays and tables."""

    mesh_: Mesh
    preprocessing_: Preprocessing
    n_jobs: int | None = None

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return the parameters that affect prediction."""
        return {"n_jobs": self.n_jobs}

    def set_params(self, **given: Any) -> None:
        """Set parameters."""
        self.__dict__.update(given)

    def _features(self, X: Any) -> Any:
        p = self.preprocessing_
        return p.features(X, type(self).__name__) if is_frame(X) or p.reading is not None else X


class FittedClassifier(FittedModel, ClassOutputs):
    """A classifier that only predicts."""


class FittedRegressor(FittedModel, ValueOutputs):
    """A regressor that only predicts."""
