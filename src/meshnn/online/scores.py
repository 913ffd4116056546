"""How good the predictions on a stream are, since its start and over a window, beside predictions that need no model.

Sums are added up row by row, and windows are of so many rows, so it does not matter in which pieces the rows come.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import known, whole_number
from meshnn.storage import Tree

__all__ = ["ClassScores", "ValueScores", "scores_from"]

F64 = NDArray[np.float64]
#: Rows between two points of the curve at first, and how many there may be: then every second one is left out.
STEP, MOST = 16, 1024
#: The smallest probability that a logarithm is taken of.
LEAST = 1e-15


class Scores:
    """What both kinds share."""

    kind: str
    #: What is noted of every row.
    notes: tuple[str, ...]
    #: What the curve shows at each of its points, after the number of the row.
    curve_names: tuple[str, ...]

    def __init__(self, window: int = 1000) -> None:
        self.window = whole_number("window", window)
        self.rows = 0  # that were scored
        self.sums = np.zeros(len(self.notes))
        self.counts = np.zeros(len(self.notes), np.int64)
        self.last = np.zeros((len(self.notes), 0))  # of the window
        self.step = STEP
        self._points: list[list[float]] = []

    def _take(self, noted: F64, where: NDArray[np.int64]) -> None:
        """Notes `(len(notes), n)` of rows with these numbers; NaN is left out."""
        start = 0
        while start < noted.shape[1]:  # up to the next point of the curve
            stop = min(noted.shape[1], start + self.step - self.rows % self.step)
            part = noted[:, start:stop]
            there = part == part
            # one by one, whatever the pieces are
            self.sums = np.cumsum(np.hstack([self.sums[:, None], np.where(there, part, 0.0)]), axis=1)[:, -1]
            self.counts += there.sum(axis=1)
            self.last = np.hstack([self.last, part])[:, -self.window :]
            self.rows += part.shape[1]
            if self.rows % self.step == 0:
                self._points.append([float(where[stop - 1]), *self._point()])
                if len(self._points) >= MOST:
                    self._points = self._points[1::2]
                    self.step *= 2
            start = stop

    def _means(self, recent: bool) -> dict[str, float]:
        """Of every note, over the window or since the start."""
        if recent:
            there = self.last == self.last
            sums, counts = np.where(there, self.last, 0.0).sum(axis=1), there.sum(axis=1)
        else:
            sums, counts = self.sums, self.counts
        return {
            name: float(total / count) if count else math.nan
            for name, total, count in zip(self.notes, sums, counts, strict=True)
        }

    def summary(self, recent: bool = False) -> dict[str, float]:
        """The scores by name, of the model and of predictions without one."""
        raise NotImplementedError

    def _point(self) -> list[float]:
        recent, whole = self.summary(recent=True), self.summary()
        return [(recent if name.endswith(" window") else whole)[name.removesuffix(" window")]
                for name in self.curve_names]  # fmt: skip

    def curve(self) -> dict[str, F64]:
        """What the curve shows, by name; `row` is the number of the row."""
        points = np.array(self._points, np.float64).reshape(-1, len(self.curve_names) + 1)
        return dict(zip(("row", *self.curve_names), points.T, strict=True))

    def to_tree(self) -> Tree:
        """As plain values and arrays."""
        names = ("row", *self.curve_names)
        points = np.array(self._points, np.float64).reshape(-1, len(names))
        return {"kind": self.kind, "window": self.window, "rows": self.rows, "sums": self.sums.copy(),
                "counts": self.counts.copy(), "last": self.last.copy(), "step": self.step, "points": points,
                "more": self._more()}  # fmt: skip

    def _more(self) -> Tree:
        raise NotImplementedError

    def _restore(self, tree: Tree) -> None:
        """The inverse of `to_tree`; shapes are checked."""
        self.rows, self.step = whole_number("rows", tree["rows"], least=0), whole_number("step", tree["step"])
        for name in ("sums", "counts"):
            found = np.asarray(tree[name])
            if found.shape != getattr(self, name).shape or found.dtype != getattr(self, name).dtype:
                raise ValueError(f"{name} of the scores have the wrong shape")
            setattr(self, name, found.copy())
        self.last, points = np.array(tree["last"], np.float64), np.array(tree["points"], np.float64)
        if self.last.shape[0] != len(self.notes) or points.shape[1] != len(self.curve_names) + 1:
            raise ValueError("the window of the scores has the wrong shape")
        self._points = points.tolist()
        self._take_more(tree["more"])

    def _take_more(self, more: Tree) -> None:
        raise NotImplementedError


class ClassScores(Scores):
    """Accuracy and log loss, beside those of the class of the row before and of the most frequent class so far."""

    kind = "classify"
    notes = ("hit", "loss", "no change", "majority", "prior loss")
    curve_names = ("accuracy window", "accuracy", "no change window", "majority window", "log loss window", "log loss",
                   "class frequencies window")  # fmt: skip

    def __init__(self, window: int = 1000) -> None:
        super().__init__(window)
        self._seen: list[int] = []  # rows of each class
        self._best = self._before = -1

    def add(self, truth: NDArray[np.int64], predicted: NDArray[np.int64], right: F64, where: NDArray[np.int64]) -> None:
        """Rows with their class, the class predicted (-1: none), the probability of the true class (NaN: none).

        A row without a prediction is not scored. Where the class had not been seen before, there is no log loss.
        """
        same, most, prior = self._baselines(truth)
        scored = predicted >= 0
        with np.errstate(invalid="ignore"):
            loss = -np.log(np.maximum(right, LEAST))
        loss[right != right] = np.nan
        noted = np.stack([(predicted == truth).astype(np.float64), loss, same, most, prior])
        self._take(noted[:, scored], where[scored])

    def _baselines(self, truth: NDArray[np.int64]) -> tuple[F64, F64, F64]:
        """Whether the class is that of the row before, whether it is the most frequent one; log loss by frequency."""
        n, counts, best = len(truth), self._seen, self._best
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
            if best < 0 or seen + 1 > counts[best]:
                best = label
        same = np.zeros(n)
        if n:
            same[0] = truth[0] == self._before
            same[1:] = truth[1:] == truth[:-1]
            self._before = int(truth[-1])
        self._best = best
        return same, most, prior

    def summary(self, recent: bool = False) -> dict[str, float]:
        """Shares and means."""
        found = self._means(recent)
        return {"accuracy": found["hit"], "no change": found["no change"], "majority": found["majority"],
                "log loss": found["loss"], "class frequencies": found["prior loss"]}  # fmt: skip

    def _more(self) -> Tree:
        return {"seen": list(self._seen), "best": self._best, "before": self._before}

    def _take_more(self, more: Tree) -> None:
        self._seen = [whole_number("seen", count, least=0) for count in more["seen"]]
        self._best, self._before = int(more["best"]), int(more["before"])


class ValueScores(Scores):
    """MAE, RMSE and R², beside those of the mean of the targets so far and of the target of the row before."""

    kind = "regress"
    notes = ("error", "square", "target", "mean error", "mean square", "last error", "last square", "spread")
    curve_names = ("MAE window", "MAE", "MAE of the mean window", "MAE of the last window", "R2 window", "R2")

    def __init__(self, window: int = 1000) -> None:
        super().__init__(window)
        self._total, self._count, self._before = 0.0, 0, math.nan
        self._mean = 0.0  # of the targets that were scored

    def add(self, truth: F64, predicted: F64, where: NDArray[np.int64]) -> None:
        """Rows with their target and the prediction; NaN is none, and is not scored."""
        if not len(truth):
            return
        totals = np.cumsum(np.concatenate([[self._total], truth]))
        before = totals[:-1] / np.maximum(self._count + np.arange(len(truth)), 1)
        last = np.concatenate([[self._before], truth[:-1]])
        self._total, self._count, self._before = float(totals[-1]), self._count + len(truth), float(truth[-1])
        scored = predicted == predicted
        y = truth[scored]
        spread = np.empty(len(y))  # what each adds to the sum of squared deviations, as Welford does it
        for k, value in enumerate(y.tolist()):
            delta = value - self._mean
            self._mean += delta / (self.rows + k + 1)
            spread[k] = delta * (value - self._mean)
        errors = [np.abs(truth - guess)[scored] for guess in (predicted, before, last)]
        with np.errstate(over="ignore"):
            squares = [error * error for error in errors]
        noted = np.stack([errors[0], squares[0], y, errors[1], squares[1], errors[2], squares[2], spread])
        self._take(noted, where[scored])

    def summary(self, recent: bool = False) -> dict[str, float]:
        """Means, and R²: 1 where all is explained, 0 where as much as by the mean of these rows."""
        found = self._means(recent)
        if recent:
            y = self.last[2]
            count = len(y)
            spread = float(((y - y.mean()) ** 2).sum()) if count else 0.0
        else:
            count, spread = self.rows, float(self.sums[-1])
        square = found["square"]
        return {
            "MAE": found["error"],
            "MAE of the mean": found["mean error"],
            "MAE of the last": found["last error"],
            "RMSE": math.sqrt(square),
            "RMSE of the mean": math.sqrt(found["mean square"]),
            "RMSE of the last": math.sqrt(found["last square"]),
            "R2": 1.0 - square * count / spread if spread > 0 else math.nan,
        }

    def _more(self) -> Tree:
        return {"total": self._total, "count": self._count, "before": self._before, "mean": self._mean}

    def _take_more(self, more: Tree) -> None:
        self._total, self._count, self._before = float(more["total"]), int(more["count"]), float(more["before"])
        self._mean = float(more["mean"])


def scores_from(tree: Tree) -> Any:
    """The inverse of `to_tree`."""
    kinds = {kind.kind: kind for kind in (ClassScores, ValueScores)}
    scores: Any = kinds[known("kind of scores", tree["kind"], kinds)](whole_number("window", tree["window"]))
    scores._restore(tree)
    return scores
