"""Scores of predictions on a stream, over all rows and over a window, compared with baselines.

Sums are accumulated row by row, so the scores do not depend on the blocks in which the rows arrive.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from meshnn.arguments import known, whole_number
from meshnn.arrays import Array, FloatArray, IntArray
from meshnn.online._tuning import TUNING
from meshnn.storage import Tree

__all__ = ["ClassScores", "ValueScores", "scores_from"]


class StreamScores:
    """Base class of the scores."""

    kind: str
    #: Names of the quantities recorded per row.
    notes: tuple[str, ...]
    #: Names of the scores at each point of the curve, after the row number.
    curve_names: tuple[str, ...]

    def __init__(self, window: int = 1000) -> None:
        self.window = whole_number("window", window)
        self.rows = 0  # scored so far
        self.sums = np.zeros(len(self.notes))
        self.counts = np.zeros(len(self.notes), np.int64)
        self.last = np.zeros((len(self.notes), 0))  # recorded quantities of the rows in the window
        self.step = 16  # rows between two points of the curve
        self.points = np.zeros((len(self.curve_names) + 1, 0))

    def _take(self, noted: FloatArray, where: IntArray) -> None:
        """Record quantities `(len(notes), n)` of rows with the numbers `where`; NaN is ignored."""
        start = 0
        while start < noted.shape[1]:  # up to the next point of the curve
            stop = min(noted.shape[1], start + self.step - self.rows % self.step)
            part = noted[:, start:stop]
            there = part == part
            # cumsum adds one row at a time, so that rounding does not depend on the blocks
            self.sums = np.cumsum(np.hstack([self.sums[:, None], np.where(there, part, 0.0)]), axis=1)[:, -1]
            self.counts += there.sum(axis=1)
            self.last = np.hstack([self.last, part])[:, -self.window :]
            self.rows += part.shape[1]
            if self.rows % self.step == 0:
                recent, whole = self.summary(recent=True), self.summary()
                scores = whole | {f"{name} window": value for name, value in recent.items()}
                found = [float(where[stop - 1]), *(scores[name] for name in self.curve_names)]
                self.points = np.column_stack([self.points, found])
                if self.points.shape[1] >= TUNING.curve_points:
                    self.points = self.points[:, 1::2]
                    self.step *= 2
            start = stop

    def summary(self, recent: bool = False) -> dict[str, float]:
        """Return the mean scores of the model and the baselines by name, over all rows or over the window."""
        sums, counts = self.sums, self.counts
        if recent:
            there = self.last == self.last
            sums, counts = np.where(there, self.last, 0.0).sum(axis=1), there.sum(axis=1)
        means = zip(self.notes, sums, counts, strict=True)
        return {name: float(total / count) if count else math.nan for name, total, count in means}

    def curve(self) -> dict[str, Array]:
        """Return the columns of the curve by name; `row` is the number of the row."""
        return dict(zip(("row", *self.curve_names), self.points, strict=True))

    def to_tree(self) -> Tree:
        """Return the scores as plain values and arrays."""
        return {"kind": self.kind, **copy.deepcopy(vars(self))}


class ClassScores(StreamScores):
    """Accuracy and log loss, compared with predicting the previous class and the most frequent class so far."""

    kind = "classify"
    notes = ("accuracy", "no change", "majority", "log loss", "class frequencies")
    curve_names = ("accuracy window", "accuracy", "no change window", "majority window", "log loss window", "log loss",
                   "class frequencies window")  # fmt: skip

    def __init__(self, window: int = 1000) -> None:
        super().__init__(window)
        self.seen: list[int] = []  # number of rows per class
        self.best = self.before = -1

    def add(self, truth: IntArray, predicted: IntArray, right: FloatArray, where: IntArray) -> None:
        """Add rows with their true class, predicted class (-1: none) and probability of the true class (NaN: none).

        Rows without a prediction are not scored. Rows with a class that is seen for the first time have no log loss.
        """
        same, most, prior = self._baselines(truth)
        scored = predicted >= 0
        loss = -np.log(np.maximum(right, 1e-15))  # NaN for new classes
        self._take(np.stack([predicted == truth, same, most, loss, prior])[:, scored], where[scored])

    def _baselines(self, truth: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return whether each class is the previous one, whether it is the majority, and minus its log frequency."""
        n, counts, best = len(truth), self.seen, self.best
        most, prior = np.zeros(n), np.full(n, np.nan)
        total = sum(counts)
        for k, label in enumerate(truth.tolist()):
            while label >= len(counts):
                counts.append(0)
            seen = counts[label]
            if seen:
                most[k] = label == best
                prior[k] = -math.log(seen / total)
            counts[label] = seen + 1
            total += 1
            if not 0 <= best < len(counts) or seen + 1 > counts[best]:
                best = label
        same = np.zeros(n)
        if n:
            same[0] = truth[0] == self.before
            same[1:] = truth[1:] == truth[:-1]
            self.before = int(truth[-1])
        self.best = best
        return same, most, prior


class ValueScores(StreamScores):
    """MAE, RMSE and R², compared with predicting the mean of the targets so far and the previous target."""

    kind = "regress"
    notes = ("MAE", "MAE of the mean", "MAE of the last", "square", "square of the mean", "square of the last",
             "target", "spread")  # fmt: skip
    curve_names = ("MAE window", "MAE", "MAE of the mean window", "MAE of the last window", "R2 window", "R2")

    def __init__(self, window: int = 1000) -> None:
        super().__init__(window)
        self.total, self.count, self.before = 0.0, 0, math.nan
        self.mean = 0.0  # of the scored targets

    def add(self, truth: FloatArray, predicted: FloatArray, where: IntArray) -> None:
        """Add rows with their targets and predictions; rows without a prediction (NaN) are not scored."""
        if not len(truth):
            return
        totals = np.cumsum(np.concatenate([[self.total], truth]))
        before = totals[:-1] / np.maximum(self.count + np.arange(len(truth)), 1)
        last = np.concatenate([[self.before], truth[:-1]])
        self.total, self.count, self.before = float(totals[-1]), self.count + len(truth), float(truth[-1])
        scored = predicted == predicted
        y = truth[scored]
        spread = np.empty(len(y))  # increments of the sum of squared deviations (Welford's algorithm)
        for k, value in enumerate(y.tolist()):
            delta = value - self.mean
            self.mean += delta / (self.rows + k + 1)
            spread[k] = delta * (value - self.mean)
        errors = np.stack([np.abs(truth - guess)[scored] for guess in (predicted, before, last)])
        with np.errstate(over="ignore"):
            squares = errors * errors
        self._take(np.concatenate([errors, squares, y[None], spread[None]]), where[scored])

    def summary(self, recent: bool = False) -> dict[str, float]:
        """Return MAE, RMSE and R² by name; R² is relative to the mean of the same rows."""
        found = super().summary(recent)
        spread = float(self.sums[-1])
        if recent:
            y = self.last[-2]
            spread = float(((y - y.mean()) ** 2).sum()) if len(y) else 0.0
        squares = {name: found[f"square{name}"] for name in ("", " of the mean", " of the last")}
        count = self.last.shape[1] if recent else self.rows
        errors = {f"MAE{name}": found[f"MAE{name}"] for name in squares}
        roots = {f"RMSE{name}": math.sqrt(square) for name, square in squares.items()}
        return errors | roots | {"R2": 1.0 - squares[""] * count / spread if spread > 0 else math.nan}


def scores_from(tree: Tree) -> Any:
    """Return the scores stored in a tree, which is not trusted."""
    kinds: dict[str, Any] = {kind.kind: kind for kind in (ClassScores, ValueScores)}
    scores = kinds[known("kind of scores", tree["kind"], kinds)](tree["window"])
    for name, value in vars(scores).items():
        stored = tree[name]
        right = type(stored) is type(value)
        if right and isinstance(value, np.ndarray):
            right = (stored.dtype, stored.ndim, len(stored)) == (value.dtype, value.ndim, len(value))
        elif right and isinstance(value, int):
            right = stored >= {"step": 1, "best": -1, "before": -1}.get(name, 0)
        elif right and isinstance(value, list):
            right = all(type(count) is int and count >= 0 for count in stored)
        if not right:
            raise ValueError(f"the stored scores have no valid {name}")
        setattr(scores, name, copy.deepcopy(stored))
    return scores
