"""Samples in: checked, encoded, split."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight, check_X_y, validate_data

from meshnn.arguments import known, real_number
from meshnn.arrays import Array
from meshnn.errors import DataError, MeshError
from meshnn.estimators._frames import as_table, is_frame, needs_encoding
from meshnn.estimators._parameters import Parameters
from meshnn.estimators._scaling import check_written_out
from meshnn.estimators._splitting import hold_out
from meshnn.losses import Loss
from meshnn.tables.encoder import Encoder
from meshnn.tables.names import shown

__all__ = ["Part", "TakesSamples"]

#: Features, targets and weights of some samples.
Part = tuple[Any, Array, Array | None]


class TakesSamples(Parameters):
    """What becomes of X and y before a net sees them."""

    _loss: Loss
    encoder_: Encoder  # of a model that learned from a table
    n_features_in_: int
    feature_names_in_: Any

    # -- what the two kinds fill in ------------------------------------------------------------------------------

    def _validated(self, X: Any, y: Any, reset: bool) -> tuple[Array, Array]:
        """Samples as scikit-learn checks them."""
        raise NotImplementedError

    def _targets(self, y: Array, sample_weight: Array | None, first: bool) -> tuple[Array, Array | None, int]:
        """What the outputs should be, the weights of the samples, and the number of outputs."""
        raise NotImplementedError

    def _answers(self, targets: Array) -> Array:
        """The inverse of `_targets`: y as `predict` gives it."""
        raise NotImplementedError

    # -- what they share -----------------------------------------------------------------------------------------

    def _checked(
        self, X: Any, y: Any, sample_weight: Any, reset: bool, first: bool
    ) -> tuple[Array, Array, Array | None, int]:
        """Features, targets, weights and the number of outputs."""
        X, y = self._validated(X, y, reset)
        check_written_out(X)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        targets, weight, n_outputs = self._targets(y, weight, first)
        if weight is not None and (weight < 0).any():
            k = int(np.flatnonzero(weight < 0)[0])
            what = "weights of samples and classes are never negative"
            raise DataError(f"the weight of sample {k} is {weight[k]:g}; {what}")
        if weight is not None and not weight.any():
            raise DataError("all samples have the weight 0; give some of them a weight")
        return X, targets, weight, n_outputs

    def _held_out(self, X: Any, y: Any, learned: Array) -> Part:
        """Samples that the user holds out, as those to learn from have been checked."""
        before = dict(self.__dict__)
        found, targets, weight, _ = self._checked(X, y, None, reset=False, first=False)
        self.__dict__.update(before)  # what y looks like is for those to learn from to say
        if targets.shape[1:] != learned.shape[1:]:
            raise DataError("y_val and y do not have the same columns; pass answers of one kind")
        return found, targets, weight

    def _scorer(self, X: Any, targets: Array) -> Callable[[], float]:
        """What scores the net there is, at any time, on held-out samples."""
        from sklearn.metrics import check_scoring

        if not (isinstance(self.scoring, str) or callable(self.scoring)):
            raise MeshError(f"scoring must be the name of a scorer or a callable, got {type(self.scoring).__name__}")
        model, y = copy(self), self._answers(targets)
        for name in ("encoder_", "feature_names_in_"):  # features come as numbers
            model.__dict__.pop(name, None)
        model.n_features_in_ = X.shape[1]
        scorer = check_scoring(model, self.scoring)

        def score() -> float:
            return real_number(
                "the result of scoring", scorer(model, X, y), "a finite number", lambda v: abs(v) < math.inf
            )

        return score

    def _split(self, targets: Array, seed: int) -> tuple[Array, Array]:
        """Samples to learn from and samples to hold out: a share, but at least one, and one must be left."""
        allowed = ("a number between 0 and 1", lambda v: 0 < v < 1)
        share, n = real_number("validation_fraction", self.validation_fraction, *allowed), len(targets)
        if n < 2:
            raise DataError("early_stopping holds samples out, but there is only one; set early_stopping=False")
        size = min(math.ceil(share * n), n - 1)
        kept, held_out = hold_out(n, size, seed, targets if targets.ndim == 1 else None)
        if len(held_out) == 0:
            raise DataError("early_stopping holds samples out, but each class has one only; set early_stopping=False")
        return kept, held_out

    # -- tables --------------------------------------------------------------------------------------------------

    def _validate(self, X: Any, y: Any, reset: bool, **options: Any) -> tuple[Any, Any]:
        """X and y as scikit-learn checks them; a table that is to be encoded is, before."""
        options = {"dtype": np.float64, "accept_sparse": "csr"} | options
        if reset:
            for name in ("encoder_", "target_"):  # of an earlier fit
                self.__dict__.pop(name, None)
            if self.encode is not None:
                known("encode", self.encode, ["auto"])
                if is_frame(X) and needs_encoding(X):
                    return check_X_y(self._learn_encoder(X), y, **options)
        encoded = self._encoded(X)
        if encoded is None:
            return validate_data(self, X, y, reset=reset, **options)
        return check_X_y(encoded, y, **options)

    def _learn_encoder(self, frame: Any, rows: Any = None) -> Array:
        """Learn from some rows of a table (or all) how to encode its columns; the features of all."""
        table = as_table(frame)
        self.encoder_ = Encoder.learn(table if rows is None else table.take(rows), None, impute=True)
        self.n_features_in_, self.feature_names_in_ = len(table.column_names), np.array(table.column_names, object)
        if rows is None:
            _warn(self.encoder_.notes.values())
        return self._encode(table)

    def _by_column(self, shares: Array) -> Array:
        """Of each column of a DataFrame the sum over the features it became; of features as they are."""
        if not (hasattr(self, "encoder_") and hasattr(self, "feature_names_in_")):
            return shares
        names = self.feature_names_in_.tolist()
        of = [names.index(column.name) for column in self.encoder_.columns for _ in column.features]
        return np.bincount(of, shares, minlength=len(names))

    def _encode(self, table: Any) -> Array:
        encoded = self.encoder_.encode(table)
        _warn(encoded.notes)
        return encoded.X

    def _encoded(self, X: Any) -> Array | None:
        """Features of a DataFrame for a model that learned from a table: columns are found by name. None of others."""
        if not hasattr(self, "encoder_"):
            return None
        if is_frame(X):
            return self._encode(as_table(X))
        if hasattr(self, "feature_names_in_"):  # else `meshnn fit` has encoded the table, and hands in features
            names = ", ".join(map(shown, self.feature_names_in_[:20]))
            raise DataError(f"the model learned from a DataFrame; pass one with the columns {names}")
        return None


def _warn(notes: Iterable[str]) -> None:
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=6)
