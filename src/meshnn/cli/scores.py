"""Scores of a model with 95% confidence intervals, and their display."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Column, Table
from rich.text import Text

from meshnn.cli.output import counted, print_lines, printable, screen
from meshnn.errors import DataError, MeshError
from meshnn.tables.cells import Cells, class_numbers

#: Half width of a 95% interval in standard deviations.
NORMAL = 1.959963984540054


@dataclass(frozen=True)
class Report:
    """A score with its 95% confidence interval."""

    name: str  # "accuracy" or "R2"
    score: float
    low: float
    high: float
    rows: int
    confusion: NDArray[np.int64] | None = None  # [true, predicted]
    others: dict[str, float] = field(default_factory=dict)  # further scores

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        matrix = None if self.confusion is None else self.confusion.tolist()
        found = {self.name: self.score, "low": self.low, "high": self.high, "rows": self.rows, "confusion": matrix}
        return found | {name.replace(" ", "_"): value for name, value in self.others.items()}

    def __str__(self) -> str:
        interval = f" (95% interval {self.low:.3f} to {self.high:.3f})" if np.isfinite(self.low) else ""
        return f"{self.name.replace('R2', 'R²')} {self.score:.4f}{interval} on {counted(self.rows, 'row')}"


def true_answers(cells: Cells, classes: Any) -> NDArray[Any]:
    """Return the values of a target (NaN if missing), or class numbers (-1 if unknown, -2 if missing)."""
    if classes is not None:
        return np.where(cells.gaps, -2, class_numbers(cells, classes))
    return cells.as_numbers("numbers, as the model is a regressor")


class ModelScores:
    """True and predicted values, added block by block: class numbers for a classifier, else real values."""

    def __init__(self, classes: Any = None) -> None:
        self._classes, self._example = classes, ""
        self._truth, self._predicted, self._logs = list[Any](), list[Any](), list[Any]()

    def add(self, cells: Cells, predicted: Any, P: Any = None) -> None:
        """Add rows: the cells of the target, the predictions and, for a classifier, optionally the probabilities P."""
        if predicted.ndim == 2:
            raise MeshError(f"scores need a model with one output, got {predicted.shape[1]} outputs")
        truth = true_answers(cells, self._classes)
        if self._classes is not None and not self._example and (truth == -1).any():
            self._example = str(cells.values[int((truth == -1).argmax())].as_py())[:60]
        self._truth.append(truth)
        self._predicted.append(predicted if self._classes is None else np.searchsorted(self._classes, predicted))
        if P is not None:
            known = truth >= 0
            self._logs.append(np.log(np.maximum(P[known, truth[known]], np.finfo(np.float64).eps)))

    def report(self, target: str | None) -> tuple[Report, list[str]]:
        """Return the scores of all rows, and notes for the user."""
        truth, predicted = np.concatenate(self._truth), np.concatenate(self._predicted)
        there = np.isfinite(truth) if self._classes is None else truth > -2
        if not there.any():
            raise DataError(f"column {target} has no values, so there are no true values to score against; fill it in")
        missing, truth, predicted = int((~there).sum()), truth[there], predicted[there]
        notes = [f"{counted(missing, 'row')} without a value of {target}: left out"] * bool(missing)
        if self._classes is None:
            return _value_report(truth, predicted), notes
        known, n_classes = truth >= 0, len(self._classes)
        if unknown := int((~known).sum()):
            rows = f"{counted(unknown, 'row')} with a class that is not in the training data, e.g. {self._example!r}"
            notes.append(f"{rows}: counted as wrong, and not part of the log loss and the confusion matrix")
        pairs = n_classes * truth[known].astype(np.int64) + predicted[known]
        confusion = np.bincount(pairs, minlength=n_classes**2).reshape(n_classes, n_classes)
        logs = np.concatenate(self._logs) if self._logs else np.zeros(0)
        others = {"log loss": float(-logs.mean()) if len(logs) else np.nan} if self._logs else {}
        n, correct = len(truth), int((truth == predicted).sum())
        return Report("accuracy", correct / n, *_wilson(correct, n), n, confusion, others), notes


def _wilson(correct: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of a proportion (written out: importing scipy.stats takes half a second)."""
    z, p = NORMAL, correct / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    return 0.0 if correct == 0 else low, 1.0 if correct == n else high


def _value_report(y: Any, predicted: Any) -> Report:
    """Return R² with the interval of the delta method, RMSE and MAE."""
    n, unit = len(y), float(np.abs(y).max()) or 1.0  # in this unit, fourth powers do not overflow
    errors = y / unit - predicted / unit
    squared, deviations = errors**2, (y / unit - (y / unit).mean()) ** 2
    mse, spread = float(squared.mean()), float(deviations.mean())
    others = {"RMSE": unit * float(np.sqrt(mse)), "MAE": unit * float(np.abs(errors).mean())}
    if np.ptp(y) == 0:
        return Report("R2", np.nan, np.nan, np.nan, n, None, others)
    score, influence = 1.0 - mse / spread, (mse / spread * deviations - squared) / spread
    half = NORMAL * float(influence.std() / np.sqrt(n))
    return Report("R2", score, score - half, min(score + half, 1.0), n, None, others)


def show_confusion(matrix: NDArray[np.int64], classes: list[str], what: str) -> None:
    """Print the confusion matrix, or the most frequent confusions of more than 12 classes."""
    names = [printable(name) for name in classes]
    if len(names) <= 12:
        print_lines(f"confusion matrix of the {what} (true class down, predicted class across):")
        table = Table(*(Column(Text(name[:14]), justify="right") for name in ("", *names)))
        for k, name in enumerate(names):
            styles = ("bold green" if k == j else "red" if n else "dim" for j, n in enumerate(matrix[k]))
            table.add_row(Text(name[:24]), *map(Text, map(str, matrix[k]), styles))
    else:
        print_lines(f"most frequent confusions of the {what}:")
        table, wrong = Table("true", "predicted", "rows"), matrix - np.diag(np.diag(matrix))
        for flat in np.argsort(wrong, axis=None)[::-1][:10]:
            k, j = divmod(int(flat), len(names))
            if wrong[k, j]:
                table.add_row(Text(names[k]), Text(names[j]), str(wrong[k, j]))
    screen().print(table)
