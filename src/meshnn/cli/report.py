"""How good a model is, with an interval, and how that looks on a screen."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from meshnn.cli.output import counted, printable
from meshnn.errors import DataError, MeshError

__all__ = ["ClassMetrics", "Report", "ValueMetrics", "headline", "show", "show_confusion", "wilson"]

#: Classes of which a confusion matrix still fits a screen.
MOST_SHOWN = 12


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
        """For JSON."""
        matrix = None if self.confusion is None else self.confusion.tolist()
        found = {self.name: self.score, "low": self.low, "high": self.high, "rows": self.rows, "confusion": matrix}
        return found | {name.replace(" ", "_"): value for name, value in self.others.items()}


def wilson(hits: int, count: int) -> tuple[float, float]:
    """The 95% interval of Wilson (1927) for a share; it stays within 0 and 1 and does not vanish at the ends.

    >>> tuple(round(v, 4) for v in wilson(45, 45))
    (0.9213, 1.0)
    """
    z, p = 1.959963984540054, hits / count
    centre = (p + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * np.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    # at the ends one limit is the share itself, whatever is rounded
    return float(min(max(centre - half, 0.0), p)), float(max(min(centre + half, 1.0), p))


class _Scores:
    """Rows with an answer, and rows without."""

    def __init__(self) -> None:
        self.rows = self.missing = 0

    def _notes(self, target: str | None) -> list[str]:
        if self.rows == 0:
            raise DataError(f"column {target} has no values: there is nothing to compare with; fill it")
        return [f"{counted(self.missing, 'row')} without a value of {target}: left out"] * bool(self.missing)


class ClassMetrics(_Scores):
    """Accuracy, confusions and log loss, added up block by block.

    An unknown class is always missed. It has no place in the matrix, nor a probability.
    """

    def __init__(self, classes: Any) -> None:
        super().__init__()
        self._classes, self._logs, self._unknown, self._example = classes, 0.0, 0, ""
        self._confusion = np.zeros((len(classes), len(classes)), np.int64)
        self._others = dict[str, float]()

    def add(self, truth: NDArray[np.int64], predicted: Any, P: Any = None, example: Any = None) -> None:
        """Rows with the numbers of their true classes, -1 if unknown (as the example), -2 if missing."""
        known, seen, count = truth > -2, truth >= 0, len(self._classes)
        self.rows, self.missing = self.rows + int(known.sum()), self.missing + int((~known).sum())
        if example is not None and not self._example:
            self._example = str(example)[:60]
        self._unknown += int((truth == -1).sum())
        truth = truth[seen]
        pairs = truth * count + np.searchsorted(self._classes, predicted[seen])
        self._confusion += np.bincount(pairs, minlength=count * count).reshape(count, count)
        if P is not None:
            right = np.maximum(P[seen, truth], np.finfo(np.float64).eps)
            self._logs -= float(np.log(right).sum())
            total = int(self._confusion.sum())
            self._others["log loss"] = self._logs / total if total else np.nan

    def report(self, target: str | None) -> tuple[Report, list[str]]:
        """Of all rows, and what there is to say about them."""
        notes = self._notes(target)
        if self._unknown:
            notes.append(
                f"{counted(self._unknown, 'row')} of classes that the model does not know, e.g. {self._example!r}: "
                "counted as wrong, not in log loss and matrix"
            )
        hits = int(np.trace(self._confusion))
        limits = wilson(hits, self.rows)
        return Report("accuracy", hits / self.rows, *limits, self.rows, self._confusion, self._others), notes


class ValueMetrics(_Scores):
    """R², RMSE and MAE, added up block by block.

    The interval of R² is that of the delta method, which needs moments up to the fourth.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pivot, self._unit, self._absolute = 0.0, 1.0, 0.0
        self._sums = np.zeros(8)  # of d, d², d³, d⁴, e², e⁴, d e², d² e²

    def add(self, truth: NDArray[np.float64], predicted: Any) -> None:
        """Rows with their true values, NaN if missing."""
        if predicted.ndim == 2:
            raise MeshError(f"the model predicts {predicted.shape[1]} numbers a row, expected one")
        known = np.isfinite(truth)
        self.missing += int((~known).sum())
        y, predicted = truth[known], predicted[known]
        if len(y) == 0:
            return
        if self.rows == 0:  # numbers of a size that their fourth powers can be added up
            self._pivot = float(y[0] / 2 + y[-1] / 2)
            self._unit = float(np.abs(y - self._pivot).max()) or abs(self._pivot) or 1.0
        self.rows += len(y)
        d, e = (y - self._pivot) / self._unit, (y - predicted) / self._unit
        self._absolute += float(np.abs(e).sum())
        powers = (d, d**2, d**3, d**4, e**2, e**4, d * e**2, d**2 * e**2)
        self._sums += [float(power.sum()) for power in powers]

    def report(self, target: str | None) -> tuple[Report, list[str]]:
        """Of all rows, and what there is to say about them."""
        notes = self._notes(target)
        m1, m2, m3, m4, e2, e4, de2, d2e2 = (self._sums / self.rows).tolist()
        spread = m2 - m1**2
        others = {"RMSE": self._unit * float(np.sqrt(e2)), "MAE": self._unit * self._absolute / self.rows}
        if spread <= 0:
            return Report("R2", np.nan, np.nan, np.nan, self.rows, None, others), notes
        score = 1.0 - e2 / spread
        fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        mixed = d2e2 - 2 * m1 * de2 + m1**2 * e2
        variance = (e2 / spread**2) ** 2 * fourth - 2 * e2 / spread**3 * mixed + e4 / spread**2
        half = 1.959963984540054 * float(np.sqrt(max(variance, 0.0) / self.rows))
        return Report("R2", score, score - half, min(score + half, 1.0), self.rows, None, others), notes


def show(console: Console, model: Any, report: Report | None, trained: Report, seconds: float, out: Path) -> None:
    """The report for people."""

    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), soft_wrap=True)

    name = trained.name.replace("R2", "R²")
    if report is not None:
        line(f"test {headline(report)}", "bold")
    line(f"train {name} {trained.score:.4f} on {counted(trained.rows, 'row')}")
    shown, where = (trained, "training") if report is None else (report, "test")
    if shown.confusion is not None:
        show_confusion(console, shown.confusion, [str(c) for c in model.classes_], f"{where} rows")
    mesh, t = model.mesh_, model.mesh_.topology
    live = t.n_edges - int(mesh.dead_edges().sum())
    sizes = f"{counted(t.n_edges, 'edge')} ({live:,} live), {counted(t.n_hidden, 'hidden neuron')}"
    line(f"{sizes}, {counted(mesh.ticks, 'tick')}")
    line(f"solver {model.solver_} ({model.solver_reason_}), {counted(model.n_iter_, 'epoch')}, {seconds:.2f} s")
    for note in model.history_.notes[-3:]:
        if note.partition(": ")[2] not in model.solver_reason_:  # what a search found is part of the reason
            line(note)
    line(f"model written to {out}")


def headline(report: Report) -> str:
    """The score in one line."""
    interval = f" (95% interval {report.low:.3f} to {report.high:.3f})" if np.isfinite(report.low) else ""
    return f"{report.name.replace('R2', 'R²')} {report.score:.4f}{interval} on {counted(report.rows, 'row')}"


def show_confusion(console: Console, matrix: NDArray[np.int64], names: list[str], what: str) -> None:
    """Which classes were taken for which."""
    few = f"{what}, true class down and predicted across:"
    text = few if len(names) <= MOST_SHOWN else f"most frequent confusions of {what}:"
    console.print(Text(text), soft_wrap=True)
    console.print(_confusion(matrix, [printable(name) for name in names]))


def _confusion(matrix: NDArray[np.int64], names: list[str]) -> Table:
    if len(names) <= MOST_SHOWN:
        table = Table(*(Column(Text(name[:14]), justify="right") for name in ("", *names)))
        for k, name in enumerate(names):
            looks = ("bold green" if k == j else "red" if n else "dim" for j, n in enumerate(matrix[k]))
            table.add_row(Text(name[:24]), *map(Text, map(str, matrix[k]), looks))
        return table
    table, wrong = Table("true", "predicted", "rows"), matrix.copy()
    np.fill_diagonal(wrong, 0)
    for flat in np.argsort(wrong, axis=None)[::-1][:10]:
        k, j = divmod(int(flat), len(names))
        if wrong[k, j]:
            table.add_row(Text(names[k]), Text(names[j]), str(wrong[k, j]))
    return table
