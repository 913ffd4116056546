"""Samples in: checked, encoded, split."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight

from meshnn.arguments import real_number
from meshnn.arrays import Array
from meshnn.errors import DataError
from meshnn.estimators._parameters import Parameters
from meshnn.estimators._scaling import check_written_out
from meshnn.losses import Loss

__all__ = ["TakesSamples"]


class TakesSamples(Parameters):
    """What becomes of X and y before a net sees them."""

    _loss: Loss
    encoder_: Any  # of a model that `meshnn fit` made of a table

    # -- what the two kinds fill in ------------------------------------------------------------------------------

    def _validated(self, X: Any, y: Any, reset: bool) -> tuple[Array, Array]:
        """Samples as scikit-learn checks them."""
        raise NotImplementedError

    def _targets(self, y: Array, sample_weight: Array | None, first: bool) -> tuple[Array, Array | None, int]:
        """What the outputs should be, the weights of the samples, and the number of outputs."""
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

    def _split(self, targets: Array, seed: int) -> tuple[Array, Array]:
        """Samples to learn from and samples to hold out: a share, but at least one, and one must be left."""
        from sklearn.model_selection import train_test_split

        allowed = ("a number between 0 and 1", lambda v: 0 < v < 1)
        share, n = real_number("validation_fraction", self.validation_fraction, *allowed), len(targets)
        if n < 2:
            raise DataError("early_stopping holds samples out, but there is only one; set early_stopping=False")
        size, stratify = min(math.ceil(share * n), n - 1), None
        if self._loss.classifies and targets.ndim == 1:
            counts = np.unique(targets, return_counts=True)[1]
            if counts.min() >= 2 and min(size, n - size) >= len(counts):  # some of each class on both sides
                stratify = targets
        kept, held_out = train_test_split(np.arange(n), test_size=size, random_state=seed, stratify=stratify)
        return np.sort(kept), np.sort(held_out)

    def _encoded(self, frame: Any) -> Array:
        """Features of a DataFrame, for a model that `meshnn fit` made of a table: its columns are found by name."""
        import pyarrow as pa

        try:
            table = pa.Table.from_pandas(frame, preserve_index=False) if hasattr(frame, "iloc") else pa.table(frame)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DataError(f"cannot read the columns of the {type(frame).__name__}: {error}") from None
        encoded = self.encoder_.encode(table)
        for note in encoded.notes:
            warnings.warn(note, UserWarning, stacklevel=4)
        return encoded.X
