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
from meshnn.losses import Loss
from meshnn.mesh import Mesh
from meshnn.tables.encoder import Column, Encoder
from meshnn.tables.names import check_names, shown
from meshnn.training.api import as_samples
from meshnn.training.samples import InMemorySamples

__all__ = ["CheckedSamples", "Preprocessing", "is_dask", "is_frame"]


NO_SCALING = Scaling(*[np.zeros(0)] * 4)  # before one is learned


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

    Columns of a DataFrame are found by name: others are ignored, gaps are filled, text is one-hot encoded.
    """

    n_features: int  # columns, before encoding
    names: tuple[str, ...] | None = None  # of the columns, if all of them have one
    encoder: Encoder | None = None  # of DataFrames, and of tables of the command line
    scaling: Scaling = NO_SCALING
    rotation: Rotation | None = None  # while a net learns from a table that is wider than long

    kind: ClassVar[str] = ""  # in front of the kind of model in a file
    timing: ClassVar[Any] = None  # of sequences, see `Blueprint`

    # -- learning ------------------------------------------------------------------------------------------------

    @classmethod
    def learn(cls, X: Any, max_categories: int, model: str, stream: bool = False) -> tuple[Self, Any]:
        """Learn the columns of X; return the preprocessing, which does not scale yet, and the features.

        Constant columns are left out, unless X is the beginning of a stream.
        """
        if is_frame(X):
            return cls._learn_frame(X, max_categories, None, stream)
        features = _numbers(X, model)
        return cls(features.shape[1]), features

    @classmethod
    def _learn_frame(
        cls, frame: Any, max_categories: int, rows: Array | None, stream: bool = False
    ) -> tuple[Self, Any]:
        table = as_table(frame)
        part = table if rows is None else table.take(rows)
        if stream and not _needs_encoding(table):
            encoder = _of_numbers(part)
        else:
            encoder = Encoder.learn(part, None, impute=True, max_categories=max_categories)
        if rows is None:
            _warn(note for name, note in encoder.notes.items() if name not in encoder.left_out)
        found = cls(len(table.column_names), _names(frame), encoder)
        return found, found._encode(table)

    def relearned(self, X: Any, features: Any, rows: Array, max_categories: int) -> tuple[Self, Any]:
        """Learn again from some rows of X, so that nothing is learned from held-out rows; return all features."""
        return (self, features) if self.encoder is None else self._learn_frame(X, max_categories, rows)

    def scaled(self, samples: CheckedSamples, loss: Loss, standardize: bool, activation: str) -> Self:
        """Return the preprocessing with a scaling learned from training samples."""
        wanted = switch("standardize", standardize)
        return replace(self, scaling=Scaling.learn(*samples, wanted, loss, activation))

    def rotated(self, samples: CheckedSamples) -> Self:
        """Return the preprocessing with a rotation, if there are many more columns than samples that count."""
        X = samples.X if samples.weight is None else samples.X[samples.weight > 0]
        if X.shape[1] <= max(X.shape[0], 100):
            return self
        return replace(self, rotation=Rotation.of(self.scaling.inputs(X)))

    # -- from raw rows to features -------------------------------------------------------------------------------

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
        elif self.encoder is not None and self.names is not None and self.encoder.text_columns:
            columns = ", ".join(map(shown, self.names[:20]))
            raise DataError(f"the model was fitted to a DataFrame with text; pass one with the columns {columns}")
        elif self.names is not None:
            what = f"X does not have valid feature names, but {model} was fitted with feature names"
            warnings.warn(what, UserWarning, stacklevel=5)
        features, expected = _numbers(X, model), self.width
        if features.shape[1] != expected:
            raise DataError(
                f"X has {features.shape[1]} features, but {model} is expecting {expected} features as input"
            )
        return features

    def unchecked(self, X: Any) -> Any:
        """Return the features of rows that are known to be right."""
        return X

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

    def as_numbers(self, width: int) -> Self:
        """Return the preprocessing for rows that are encoded already."""
        return replace(self, n_features=width, names=None, encoder=None)

    def by_column(self, shares: Array) -> Array:
        """Sum numbers of features up to numbers of the columns that they were encoded from."""
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

    # -- from features to a net ----------------------------------------------------------------------------------

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

    # -- files ---------------------------------------------------------------------------------------------------

    def to_tree(self) -> dict[str, Any]:
        """Return plain values and arrays."""
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


def _names(frame: Any) -> tuple[str, ...] | None:
    names = list(getattr(frame, "column_names", frame.columns))
    return tuple(map(str, names)) if all(isinstance(name, str) for name in names) else None


def as_table(frame: Any) -> Any:
    """Return a DataFrame as a pyarrow table."""
    import pyarrow as pa

    from meshnn.tables.cells import without_views

    try:
        if isinstance(frame, pa.Table):
            return without_views(frame)
        table = pa.Table.from_pandas(frame, preserve_index=False) if hasattr(frame, "iloc") else pa.table(frame)
        return without_views(table)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"cannot read the columns of the {type(frame).__name__}: {error}") from None


def _needs_encoding(table: Any) -> bool:
    """Return whether a table holds anything but numbers and booleans, or has gaps."""
    from pyarrow import compute, types

    for column in table.columns:
        held = column.type
        if not (types.is_integer(held) or types.is_floating(held) or types.is_boolean(held)) or column.null_count:
            return True
        if types.is_floating(held) and compute.any(compute.is_nan(column)).as_py():
            return True
    return False


def _of_numbers(table: Any) -> Encoder:
    """Return an encoder that keeps all columns of numbers as they are, constant ones too, as in an array."""
    from pyarrow import types

    columns = []
    for name in table.column_names:
        values = table.column(name)
        halves = values.cast("float64", safe=False).to_numpy() / 2  # the sum of two large numbers may be infinite
        middle = float(2 * np.median(halves)) if len(values) else 0.0
        boolean = types.is_boolean(values.type)
        columns.append(Column(name, "boolean" if boolean else "numeric", fill=middle > 0.5 if boolean else middle))
    return Encoder(tuple(columns), True, {})


def _warn(notes: Iterable[str]) -> None:
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=6)
