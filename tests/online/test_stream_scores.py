"""Scores of predictions on a stream, of all rows and of a window, do not depend on the blocks of rows."""

import math

import numpy as np
import pytest

from meshnn.errors import MeshError
from meshnn.online.scores import ClassScores, ValueScores, scores_from


def test_scores_of_classes():
    rng = np.random.default_rng(0)
    n, window = 400, 30
    truth, predicted, right = rng.integers(0, 3, n), rng.integers(0, 3, n), rng.random(n)
    predicted[0], right[0] = -1, np.nan  # no prediction
    scores = ClassScores(window)
    for part in np.split(np.arange(n), [1, 20, 300]):
        scores.add(truth[part], predicted[part], right[part], part + 1)
    most, prior = [], []
    for k in range(1, n):
        counts = np.bincount(truth[:k], minlength=3)
        most.append(truth[k] == counts.argmax() if (counts == counts.max()).sum() == 1 else None)
        prior += [-math.log(counts[truth[k]] / k)] if counts[truth[k]] else []
    found, recent = scores.summary(), scores.summary(recent=True)
    assert found["accuracy"] == pytest.approx((truth == predicted)[1:].mean())
    assert found["log loss"] == pytest.approx(-np.log(right[1:]).mean())
    assert found["no change"] == pytest.approx((truth[1:] == truth[:-1]).mean())
    assert found["class frequencies"] == pytest.approx(np.mean(prior))
    clear = [m for m in most if m is not None]
    assert abs(found["majority"] * (n - 1) - sum(clear)) <= len(most) - len(clear)
    assert recent["accuracy"] == pytest.approx((truth == predicted)[-window:].mean())
    assert recent["log loss"] == pytest.approx(-np.log(right[-window:]).mean())
    assert scores_from(scores.to_tree()).summary() == found


def test_scores_of_values():
    rng = np.random.default_rng(1)
    n = 300
    y = rng.standard_normal(n) * 3 + 100
    p = y + rng.standard_normal(n)
    p[0] = np.nan
    scores = ValueScores(40)
    for part in np.split(np.arange(n), [7, 100]):
        scores.add(y[part], p[part], part + 1)
    found, recent = scores.summary(), scores.summary(recent=True)
    e = (y - p)[1:]
    means = np.array([y[:k].mean() for k in range(1, n)])
    assert found["MAE"] == pytest.approx(np.abs(e).mean())
    assert found["RMSE"] == pytest.approx(np.sqrt((e**2).mean()))
    assert found["R2"] == pytest.approx(1 - (e**2).sum() / ((y[1:] - y[1:].mean()) ** 2).sum())
    assert recent["R2"] == pytest.approx(1 - (e[-40:] ** 2).sum() / ((y[-40:] - y[-40:].mean()) ** 2).sum())
    assert found["MAE of the mean"] == pytest.approx(np.abs(y[1:] - means).mean())
    assert found["MAE of the last"] == pytest.approx(np.abs(np.diff(y)).mean())


def test_the_curve_has_few_points_whatever_the_pieces():
    y, p = np.random.default_rng(2).standard_normal((2, 40_000))
    curves = []
    for cuts in ([], [1, 3, 6, 506, 523]):
        scores = ValueScores(100)
        for part in np.split(np.arange(len(y)), cuts):
            scores.add(y[part], p[part], part + 1)
        curves.append(scores.curve())
    assert 512 <= len(curves[0]["row"]) < 1024
    for name, values in curves[0].items():
        np.testing.assert_array_equal(values, curves[1][name])
    row = int(curves[0]["row"][-1])
    assert curves[0]["MAE window"][-1] == pytest.approx(np.abs(y - p)[row - 100 : row].mean())
    assert curves[0]["MAE"][-1] == pytest.approx(np.abs(y - p)[:row].mean())
    with pytest.raises(MeshError, match="unknown kind of scores"):
        scores_from({"kind": "x", "window": 3})
