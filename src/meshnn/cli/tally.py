"""Scores over more rows than memory holds: sums, block by block."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.cli.output import counted
from meshnn.cli.report import Report, wilson
from meshnn.cli.rows import Rows
from meshnn.errors import DataError, MeshError

__all__ = ["ClassTally", "ValueTally", "tally_of"]


def tally_of(estimator: Any) -> ClassTally | ValueTally:
    """What suits a model."""
    return ClassTally(estimator.classes_) if hasattr(estimator, "classes_") else ValueTally()


class _Tally:
    """Rows with an answer, and rows without."""

    def __init__(self) -> None:
        self.rows = self.missing = 0

    def _check(self, target: str | None) -> list[str]:
        if self.rows == 0:
            raise DataError(f"column {target} has no values: there is nothing to compare with; fill it")
        return [f"{counted(self.missing, 'row')} without a value of {target}: left out"] * bool(self.missing)


class ClassTally(_Tally):
    """Accuracy, log loss and confusions."""

    def __init__(self, classes: Array) -> None:
        super().__init__()
        self._classes, self._logs, self._strange, self._example = classes, 0.0, 0, ""
        self._confusion = np.zeros((len(classes), len(classes)), np.int64)

    def add(self, rows: Rows) -> None:
        """The rows of a block."""
        truth, count = rows.labels(), len(self._classes)
        assert truth is not None
        assert rows.target is not None
        known, seen = truth > -2, truth >= 0
        self.rows, self.missing = self.rows + int(known.sum()), self.missing + int((~known).sum())
        if (truth == -1).any() and not self._strange:
            self._example = str(rows.table[rows.target][int((truth == -1).argmax())].as_py())[:60]
        self._strange += int((truth == -1).sum())
        if not seen.any():
            return
        predicted, P = rows.estimator.predict(rows.X)[seen], rows.estimator.predict_proba(rows.X)[seen]
        truth = truth[seen]
        pairs = truth * count + np.searchsorted(self._classes, predicted)
        self._confusion += np.bincount(pairs, minlength=count * count).reshape(count, count)
        right = np.maximum(P[np.arange(len(truth)), truth], np.finfo(np.float64).eps)
        self._logs -= float(np.log(right).sum())

    def report(self, target: str | None, seed: int, notes: list[str]) -> Report:
        """Of all rows; what there is to say about them goes to the notes."""
        notes += self._check(target)
        if self._strange:
            notes.append(
                f"{counted(self._strange, 'row')} of classes that the model does not know, e.g. {self._example!r}: "
                "counted as wrong, not in log loss and matrix"
            )
        hits, seen = int(np.trace(self._confusion)), int(self._confusion.sum())
        others = {"log loss": self._logs / seen if seen else np.nan}
        return Report(
            "accuracy", hits / self.rows, *wilson(hits, self.rows), self.rows, self._confusion, others
        )  # fmt: skip


class ValueTally(_Tally):
    """R², RMSE and MAE; the interval of R² is that of the delta method, which needs moments up to the fourth."""

    def __init__(self) -> None:
        super().__init__()
        self._pivot, self._unit, self._absolute = 0.0, 1.0, 0.0
        self._sums = np.zeros(8)  # of d, d², d³, d⁴, e², e⁴, d e², d² e²

    def add(self, rows: Rows) -> None:
        """The rows of a block."""
        truth = rows.values()
        known = np.isfinite(truth)
        self.missing += int((~known).sum())
        if not known.any():
            return
        predicted = rows.estimator.predict(rows.X)
        if predicted.ndim == 2:
            raise MeshError(
                f"the model predicts {predicted.shape[1]} numbers a row; meshnn evaluate takes models of one"
            )
        y, predicted = truth[known], predicted[known]
        if self.rows == 0:  # numbers of a size that their fourth powers can be added up
            self._pivot = float(y.mean())
            self._unit = float(np.abs(y - self._pivot).max()) or abs(self._pivot) or 1.0
        self.rows += len(y)
        d, e = (y - self._pivot) / self._unit, (y - predicted) / self._unit
        self._absolute += float(np.abs(e).sum())
        powers = (d, d**2, d**3, d**4, e**2, e**4, d * e**2, d**2 * e**2)
        self._sums += [float(power.sum()) for power in powers]

    def report(self, target: str | None, seed: int, notes: list[str]) -> Report:
        """Of all rows."""
        notes += self._check(target)
        m1, m2, m3, m4, e2, e4, de2, d2e2 = (self._sums / self.rows).tolist()
        spread = m2 - m1**2
        others = {"RMSE": self._unit * float(np.sqrt(e2)), "MAE": self._unit * self._absolute / self.rows}
        if spread <= 0:
            return Report("R2", np.nan, np.nan, np.nan, self.rows, None, others)
        score = 1.0 - e2 / spread
        fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        mixed = d2e2 - 2 * m1 * de2 + m1**2 * e2
        variance = (e2 / spread**2) ** 2 * fourth - 2 * e2 / spread**3 * mixed + e4 / spread**2
        half = 1.959963984540054 * float(np.sqrt(max(variance, 0.0) / self.rows))
        return Report("R2", score, score - half, score + half, self.rows, None, others)
