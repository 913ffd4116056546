"""`Preprocessing` converts arrays, sparse matrices and DataFrames to inputs of a net."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from meshnn.arguments import switch, whole_number
from meshnn.arrays import Array
from meshnn.checks import all_finite
from meshnn.errors import DataError, FileError, warn
from meshnn.estimators.merging import Transform, merged
from meshnn.estimators.scaling import Rotation, Scaling, is_sparse, row_blocks
from meshnn.export.blueprint import Blueprint, SequenceTiming, input_columns
from meshnn.losses import Loss
from meshnn.mesh import Mesh
from meshnn.tables.encoder import Encoder, as_table
from meshnn.tables.names import shown
from meshnn.tables.sources import RowBlock
from meshnn.training.api import as_samples
from meshnn.training.samples import InMemorySamples


def is_frame(X: Any) -> bool:
    """Return whether X has named columns: a DataFrame of pandas or polars, or a pyarrow table."""
    return hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "__arrow_c_stream__"))


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask collection, without importing Dask."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "dask")


@dataclass(frozen=True)
class Preprocessing:
    """Immutable conversion from rows to inputs of a net.

    Columns of a DataFrame are selected by name. Other columns are ignored, missing values are filled, and text is
    one-hot encoded.
    """

    n_features: int  # number of columns before encoding
    names: tuple[str, ...] | None = None  # column names, if all columns have one
    encoder: Encoder | None = None  # for DataFrames and for tables of the command line
    scaling: Scaling = Scaling(*[np.zeros(0)] * 4)  # noqa: RUF009  # immutable; empty before fitting
    transform: Transform = None  # of the scaled features, only during training
    reading: SequenceTiming | None = None  # for sequences: when outputs are read

    kind: ClassVar[str] = ""  # prefix of the kind of model in a file

    @classmethod
    def learn(
        cls, X: Any, max_categories: int, model: str, stream: bool = False, rows: Array | None = None
    ) -> tuple[Self, Any]:
        """Return a preprocessing fitted to X, or to some rows of X, without a scaling, and the features of all rows.

        Constant columns are left out, unless X is the beginning of a stream.
        """
        if not is_frame(X):
            features = _numbers(X, model)
            return cls(features.shape[1]), features
        table = as_table(X)
        part = table if rows is None else table.take(rows)
        encoder = Encoder.learn(part, impute=True, max_categories=max_categories, keep_constant=stream)
        if rows is None:
            _warn(note for name, note in encoder.notes.items() if name not in encoder.left_out)
        names = list(getattr(X, "column_names", X.columns))
        texts = tuple(map(str, names)) if all(isinstance(name, str) for name in names) else None
        found = cls(len(table.column_names), texts, encoder)
        return found, found._encode(table)

    def scaled(self, samples: RowBlock, loss: Loss, standardize: bool, activation: str, rotate: bool = False) -> Self:
        """Return the preprocessing with a scaling fitted to training samples.

        With `rotate`, inputs are rotated if there are more columns than samples of positive weight.
        """
        found = replace(self, scaling=Scaling.learn(*samples, switch("standardize", standardize), loss, activation))
        X = samples.X if samples.weight is None else samples.X[samples.weight > 0]
        if not rotate or X.shape[1] <= max(X.shape[0], 100):
            return found
        return replace(found, transform=Rotation.of(found.scaling.inputs(X)))

    def features(self, X: Any, model: str) -> Any:
        """Return checked features of rows for prediction or for further training."""
        if self.accepts(X):
            return X
        if self.encoder is not None and is_frame(X):
            return self._encode(as_table(X))
        if self.encoder is not None and self.names is not None:
            if self.encoder.text_columns:
                columns = ", ".join(map(shown, self.names[:20]))
                raise DataError(f"the model was fitted to a DataFrame with text; pass one with the columns {columns}")
            _warn([f"X does not have valid feature names, but {model} was fitted with feature names"])
        features = _numbers(X, model)
        if features.shape[1] != self.width:
            what = f"X has {features.shape[1]} features"
            raise DataError(f"{what}, but {model} is expecting {self.width} features as input")
        return features

    def accepts(self, X: Any) -> bool:
        """Return whether X needs no conversion. scikit-learn's checks take ten times as long as predicting one row."""
        if type(X) is not np.ndarray or X.dtype not in (np.float64, np.float32) or X.ndim != 2 or len(X) == 0:
            return False
        return self.encoder is None and X.shape[1] == self.n_features and all_finite(X)

    @property
    def width(self) -> int:
        """Number of features after encoding."""
        return self.n_features if self.encoder is None else len(self.encoder.feature_names)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features after encoding; empty if the columns have no names."""
        return tuple(self.names or ()) if self.encoder is None else tuple(self.encoder.feature_names)

    def by_column(self, shares: Array) -> Array:
        """Sum values per feature to values per column, from which the features were encoded."""
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
        return found if self.transform is None else self.transform.inputs(found)

    def original(self, mesh: Mesh) -> Mesh:
        """Return the mesh, or during training on converted inputs the equivalent one that takes scaled features."""
        return merged([mesh], [self.transform], [1.0])

    def dataset(self, mesh: Mesh, samples: RowBlock, loss: Loss) -> InMemorySamples:
        """Return the samples in the form of the trainer."""
        targets = self.scaling.targets(samples.y)
        return as_samples(mesh, self.inputs(samples.X, mesh.dtype), targets, loss.name, samples.weight)

    def outputs(self, mesh: Mesh, features: Any, n_jobs: int | None) -> Array:
        """Return the raw outputs of the net (n_samples, n_outputs)."""
        if not is_sparse(features):
            return mesh.forward(self.inputs(features), n_jobs=n_jobs)
        blocks = (self.inputs(features[rows], mesh.dtype) for rows in row_blocks(*features.shape))
        return np.concatenate([mesh.forward(block, n_jobs=n_jobs) for block in blocks])

    def grouped(self, values: Any, features: Any, given: Any) -> Any:
        """Return predictions in the form of the input `given`."""
        return values

    def blueprint(self, mesh: Mesh) -> Blueprint:
        """Return the computation from features to outputs as plain values and arrays."""
        s = self.scaling
        plain = not s.x_mean.any() and (s.x_scale == 1.0).all()
        x_mean, x_scale = (None, None) if plain else (s.x_mean, s.x_scale)
        columns, names = () if self.encoder is None else input_columns(self.encoder), self.feature_names
        found = self.original(mesh).blueprint()
        return replace(found, x_mean=x_mean, x_scale=x_scale, features=names, columns=columns, timing=self.reading)

    def to_tree(self) -> dict[str, Any]:
        """Return plain values and arrays for a file."""
        tree: dict[str, Any] = {"n_features": self.n_features, "scaling": vars(self.scaling).copy()}
        if self.names is not None:
            tree["names"] = list(self.names)
        if self.encoder is not None:
            tree["encoder"] = self.encoder.to_tree()
        return tree

    @classmethod
    def from_tree(cls, tree: Any, sizes: dict[str, int]) -> Self:
        """Return the preprocessing stored in a file, for a net with these numbers of `inputs` and `targets`."""
        names = tuple(map(str, tree["names"])) if "names" in tree else None
        encoder = Encoder.from_tree(tree["encoder"]) if "encoder" in tree else None
        found = cls(whole_number("n_features", tree["n_features"]), names, encoder)
        if found.width != sizes["inputs"]:
            raise FileError(f"it has {found.width} features, but its net has {sizes['inputs']} inputs")
        if names is not None:
            columns = [] if encoder is None else [*(column.name for column in encoder.columns), *encoder.left_out]
            if sorted(columns) != sorted(names) or len(names) != found.n_features:
                raise FileError("the columns of its encoder do not match the columns of its training table")
        return replace(found, scaling=Scaling.from_tree(tree["scaling"], sizes))


def _numbers(X: Any, model: str) -> Any:
    """Return features after the checks of scikit-learn: finite float64, dense or csr."""
    from sklearn.utils.validation import check_array

    # C order makes sums bitwise independent of the memory layout of X
    return check_array(X, dtype=np.float64, order="C", accept_sparse="csr", estimator=model, input_name="X")


def _warn(notes: Iterable[str]) -> None:
    for note in notes:
        warn(note)
