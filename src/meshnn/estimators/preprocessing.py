"""`Preprocessing`: from what users pass (arrays, sparse matrices, DataFrames) to what a net takes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from meshnn.arguments import switch
from meshnn.arrays import Array
from meshnn.checks import all_finite
from meshnn.errors import DataError
from meshnn.estimators.scaling import Rotation, Scaling, check_dense_fits, is_sparse, row_blocks
from meshnn.export.blueprint import Blueprint, input_columns
from meshnn.losses import Loss
from meshnn.mesh import Mesh
from meshnn.tables.encoder import Column, Encoder, as_table
from meshnn.tables.names import check_names, shown
from meshnn.training.api import as_samples
from meshnn.training.samples import InMemorySamples


class CheckedSamples(NamedTuple):
    """Checked samples: features before scaling, targets, and weights, if they differ."""

    X: Any
    targets: Any
    weight: Array | None

    def take(self, rows: Array) -> CheckedSamples:
        """Return some of the samples."""
        return CheckedSamples(self.X[rows], self.targets[rows], None if self.weight is None else self.weight[rows])


def is_frame(X: Any) -> bool:
    """Return whether X has named columns: a DataFrame of pandas or polars, or a pyarrow table."""
    return hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "__arrow_c_stream__"))


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask collection, without importing Dask."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "dask")


@dataclass(frozen=True)
class Preprocessing:
    """How rows become inputs of a net; immutable.

    Columns of a DataFrame are selected by name: others are ignored, gaps are filled, text is one-hot encoded.
    """

    n_features: int  # columns, before encoding
    names: tuple[str, ...] | None = None  # of the columns, if all of them have one
    encoder: Encoder | None = None  # of DataFrames, and of tables of the command line
    scaling: Scaling = Scaling(*[np.zeros(0)] * 4)  # noqa: RUF009  # immutable; before one is learned
    rotation: Rotation | None = None  # while a net learns from a table that is wider than long

    kind: ClassVar[str] = ""  # in front of the kind of model in a file
    timing: ClassVar[Any] = None  # of sequences, see `Blueprint`

    @classmethod
    def learn(
        cls, X: Any, max_categories: int, model: str, stream: bool = False, rows: Array | None = None
    ) -> tuple[Self, Any]:
        """Learn the columns of X, or of some rows of it; return the preprocessing, without a scaling, and all features.

        Constant columns are left out, unless X is the beginning of a stream.
        """
        if not is_frame(X):
            features = _numbers(X, model)
            return cls(features.shape[1]), features
        table = as_table(X)
        part = table if rows is None else table.take(rows)
        encoder = _keeping_all_columns(part) if stream else None
        if encoder is None:
            encoder = Encoder.learn(part, None, impute=True, max_categories=max_categories)
        if rows is None:
            _warn(note for name, note in encoder.notes.items() if name not in encoder.left_out)
        names = list(getattr(X, "column_names", X.columns))
        texts = tuple(map(str, names)) if all(isinstance(name, str) for name in names) else None
        found = cls(len(table.column_names), texts, encoder)
        return found, found._encode(table)

    def scaled(
        self, samples: CheckedSamples, loss: Loss, standardize: bool, activation: str, rotate: bool = False
    ) -> Self:
        """Return the preprocessing with a scaling learned from training samples.

        It may `rotate` the inputs if there are many more columns than samples that count.
        """
        found = replace(self, scaling=Scaling.learn(*samples, switch("standardize", standardize), loss, activation))
        X = samples.X if samples.weight is None else samples.X[samples.weight > 0]
        if not rotate or X.shape[1] <= max(X.shape[0], 100):
            return found
        return replace(found, rotation=Rotation.of(found.scaling.inputs(X)))

    def features(self, X: Any, model: str) -> Any:
        """Return checked features of rows to predict or to continue learning from."""
        if self.accepts(X):
            return X
        if is_frame(X):
            if self.encoder is not None:
                return self._encode(as_table(X))
            if self.names is not None:
                check_names([str(name) for name in X.columns], self.names, why=", which the model was trained with")
                X = X[list(self.names)] if hasattr(X, "iloc") else X.select(list(self.names))
        elif self.names is not None:
            if self.encoder is not None and self.encoder.text_columns:
                columns = ", ".join(map(shown, self.names[:20]))
                raise DataError(f"the model was fitted to a DataFrame with text; pass one with the columns {columns}")
            _warn([f"X does not have valid feature names, but {model} was fitted with feature names"])
        features = _numbers(X, model)
        if features.shape[1] != self.width:
            what = f"X has {features.shape[1]} features"
            raise DataError(f"{what}, but {model} is expecting {self.width} features as input")
        return features

    def accepts(self, X: Any) -> bool:
        """Return whether X can be used as it is: scikit-learn's checks take ten times as long as predicting a row."""
        if type(X) is not np.ndarray or X.dtype not in (np.float64, np.float32) or X.ndim != 2 or len(X) == 0:
            return False
        return self.names is None and self.encoder is None and X.shape[1] == self.n_features and all_finite(X)

    @property
    def width(self) -> int:
        """Number of features, after encoding."""
        return self.n_features if self.encoder is None else len(self.encoder.feature_names)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, after encoding; none if the columns have none."""
        return tuple(self.names or ()) if self.encoder is None else tuple(self.encoder.feature_names)

    def by_column(self, shares: Array) -> Array:
        """Sum numbers per feature up to numbers per column from which the features were encoded."""
        if self.encoder is None or self.names is None:
            return shares
        number = {name: k for k, name in enumerate(self.names)}
        of = [number[column.name] for column in self.encoder.columns for _ in column.features]
        return np.bincount(of, shares, minlength=len(self.names))

    def _encode(self, table: Any) -> Array:
        assert self.encoder is not None
        encoded = self.encoder.encode(table)
        _warn(encoded.notes)
        return encoded.X

    def inputs(self, features: Any, dtype: Any = np.float64) -> Array:
        """Return the inputs of the net."""
        found = self.scaling.inputs(features, dtype)
        return found if self.rotation is None else self.rotation.inputs(found)

    def dataset(self, mesh: Mesh, samples: CheckedSamples, loss: Loss) -> InMemorySamples:
        """Return the samples as the trainer takes them."""
        targets = self.scaling.targets(samples.targets)
        return as_samples(mesh, self.inputs(samples.X, mesh.dtype), targets, loss.name, samples.weight)

    def outputs(self, mesh: Mesh, features: Any, n_jobs: int | None) -> Array:
        """Return the raw outputs of the net (n_samples, n_outputs)."""
        if not is_sparse(features):
            return mesh.forward(self.scaling.inputs(features), n_jobs=n_jobs)
        blocks = (self.scaling.inputs(features[rows], mesh.dtype) for rows in row_blocks(*features.shape))
        return np.concatenate([mesh.forward(block, n_jobs=n_jobs) for block in blocks])

    def grouped(self, values: Any, features: Any, given: Any) -> Any:
        """Return predictions in the form that belongs to what was given."""
        return values

    def blueprint(self, mesh: Mesh) -> Blueprint:
        """Return what the net computes from features, as plain values and arrays."""
        s = self.scaling
        plain = not s.x_mean.any() and (s.x_scale == 1.0).all()
        x_mean, x_scale = (None, None) if plain else (s.x_mean, s.x_scale)
        columns, names = () if self.encoder is None else input_columns(self.encoder), self.feature_names
        found = mesh.blueprint()
        return replace(found, x_mean=x_mean, x_scale=x_scale, features=names, columns=columns, timing=self.timing)

    def to_tree(self) -> dict[str, Any]:
        """Return plain values and arrays for a file."""
        tree: dict[str, Any] = {"n_features": self.n_features, "scaling": vars(self.scaling).copy()}
        if self.names is not None:
            tree["names"] = list(self.names)
        if self.encoder is not None:
            tree["encoder"] = self.encoder.to_tree()
        return tree


def _numbers(X: Any, model: str) -> Any:
    """Return features as scikit-learn checks them: finite float64, dense or csr."""
    from sklearn.utils.validation import check_array

    # in C order, so that sums have the same bits whatever the order was
    found = check_array(X, dtype=np.float64, order="C", accept_sparse="csr", estimator=model, input_name="X")
    check_dense_fits(found)
    return found


def _keeping_all_columns(table: Any) -> Encoder | None:
    """Return an encoder that keeps constant columns too, as in an array; None if there is text or a gap."""
    from pyarrow import types

    columns = []
    for name, values in zip(table.column_names, table.columns, strict=True):
        boolean = types.is_boolean(values.type)
        if not (boolean or types.is_integer(values.type) or types.is_floating(values.type)):
            return None
        cells = values.cast("float64", safe=False).to_numpy()
        if np.isnan(cells).any():
            return None
        middle = float(2 * np.median(cells / 2)) if len(cells) else 0.0  # the sum of two large numbers may be infinite
        columns.append(Column(name, "boolean" if boolean else "numeric", fill=middle > 0.5 if boolean else middle))
    return Encoder(tuple(columns), True, {})


def _warn(notes: Iterable[str]) -> None:
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=6)
