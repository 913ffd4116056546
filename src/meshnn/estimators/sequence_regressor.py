"""`MeshSequenceRegressor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sklearn.metrics import r2_score

from meshnn.arrays import Array
from meshnn.estimators._timed import OnSequences
from meshnn.estimators.regressor import MeshRegressor

__all__ = ["MeshSequenceRegressor"]


@dataclass(eq=False, repr=False)
class MeshSequenceRegressor(OnSequences, MeshRegressor):
    """A regressor of sequences: a recurrent mesh that reads one step after the other.

    Sequences, graphs, ticks and readouts are those of `MeshSequenceClassifier`, losses those of `MeshRegressor`. With
    readout="all" each step has a value (or several): y is a list of arrays (length,) or (length, n_outputs), or an
    array (samples, length) or (samples, length, n_outputs), and so are predictions.

    Examples
    --------
    >>> import numpy as np
    >>> from meshnn import MeshSequenceRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, rng.integers(5, 9)) for _ in range(80)]
    >>> y = np.array([x[-1] - x[-2] for x in X])  # the last step and the one before it
    >>> reg = MeshSequenceRegressor(hidden=4, random_state=0).fit(X, y)
    >>> reg.score(X, y) > 0.9
    True
    """

    readout: str = "last"
    encode: ClassVar[str | None] = None  # type: ignore[misc]  # a table is not one of sequences

    _file_kind = "sequence regressor"

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Values (n_samples,), or (n_samples, n_outputs) if y had columns; with readout="all" one a step."""
        found = self._features(X)
        return self._answered(super().predict(found, return_std), found, X)

    def _score_of(self, y: Array, predicted: Array, weight: Array | None) -> float:
        return float(r2_score(y, predicted, sample_weight=weight))
