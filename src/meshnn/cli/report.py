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

from meshnn.cli.output import counted

__all__ = [
    "Report",
    "headline",
    "score_classes",
    "score_model",
    "score_values",
    "show",
    "show_confusion",
    "wilson",
]

#: Classes of which a confusion matrix still fits a screen.
MOST_SHOWN = 12
#: Resamples behind the interval of R².
RESAMPLES = 2000


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


def score_model(model: Any, task: str, X: Any, y: Any, seed: int) -> Report:
    """Accuracy or R² of a model on some rows."""
    predicted = model.predict(X)
    if task == "classify":
        return score_classes(model.classes_, np.searchsorted(model.classes_, y), predicted)
    return score_values(y, predicted, seed)


def score_classes(classes: Any, truth: NDArray[np.int64], predicted: Any, P: Any = None) -> Report:
    """Accuracy, confusions and, with probabilities P, log loss, given the number of each true class; -1 if unknown.

    An unknown class is always missed. It has no place in the matrix, nor a probability.
    """
    count, seen = len(classes), truth >= 0
    pairs = truth[seen] * count + np.searchsorted(classes, predicted[seen])
    confusion = np.bincount(pairs, minlength=count * count).reshape(count, count)
    hits, others = int(np.trace(confusion)), dict[str, float]()
    if P is not None:
        right = P[seen, truth[seen]]
        others["log loss"] = (
            float(-np.log(np.maximum(right, np.finfo(np.float64).eps)).mean()) if seen.any() else np.nan
        )
    return Report("accuracy", hits / len(truth), *wilson(hits, len(truth)), len(truth), confusion, others)


def score_values(y: Any, predicted: Any, seed: int) -> Report:
    """R² and the sizes of errors."""
    rng = np.random.default_rng(seed)
    resamples = 0 if len(y) < 2 else RESAMPLES if len(y) <= 5000 else RESAMPLES // 10
    scores = [_r2(y[rows], predicted[rows]) for rows in (rng.integers(0, len(y), len(y)) for _ in range(resamples))]
    scores = [score for score in scores if np.isfinite(score)]
    low, high = np.quantile(scores, [0.025, 0.975]) if scores else (np.nan, np.nan)
    errors = np.abs(y - predicted)
    largest = max(float(errors.max()), np.finfo(np.float64).tiny)  # squares of very large and small numbers do not fit
    others = {"RMSE": largest * float(np.sqrt(((errors / largest) ** 2).mean())), "MAE": float(errors.mean())}
    return Report("R2", _r2(y, predicted), float(low), float(high), len(y), None, others)


def _r2(y: Any, predicted: Any) -> float:
    largest = float(np.abs(y).max())
    if largest > 0:  # squares of very large and very small numbers do not fit
        y, predicted = y / largest, predicted / largest
    spread = float(((y - y.mean()) ** 2).sum())
    return 1.0 - float(((y - predicted) ** 2).sum()) / spread if spread > 0 else float("nan")


def show(
    console: Console, model: Any, report: Report | None, trained: Report, seconds: float, out: Path | None
) -> None:
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
        if note.partition(": ")[2] not in model.solver_reason_:  # the search for l2 is in both
            line(note)
    line("model not saved; --out model.mesh saves it" if out is None else f"model written to {out}")


def headline(report: Report) -> str:
    """The score in one line."""
    interval = f" (95% interval {report.low:.3f} to {report.high:.3f})" if np.isfinite(report.low) else ""
    return f"{report.name.replace('R2', 'R²')} {report.score:.4f}{interval} on {counted(report.rows, 'row')}"


def show_confusion(console: Console, matrix: NDArray[np.int64], names: list[str], what: str) -> None:
    """Which classes were taken for which."""
    few = f"{what}, true class down and predicted across:"
    text = few if len(names) <= MOST_SHOWN else f"most frequent confusions of {what}:"
    console.print(Text(text), soft_wrap=True)
    console.print(_confusion(matrix, names))


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
