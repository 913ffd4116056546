"""Streams that are drawn."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
streams = importlib.import_module("temporal_streams")
delayed_xor, narma, trace_patterning = streams.delayed_xor, streams.narma, streams.trace_patterning


@pytest.mark.parametrize("delays", [(0, 1), (3, 1), (2, 7)])
def test_delayed_xor(delays):
    X, y = delayed_xor(200, delays, random_state=1)
    assert X.shape == (200, 1)
    bits = [int(b) for b in X[:, 0]]
    assert set(bits) == {0, 1}

    def before(t, delay):
        return bits[t - delay] if t >= delay else 0

    assert y.tolist() == [before(t, delays[0]) ^ before(t, delays[1]) for t in range(200)]


@pytest.mark.parametrize("gap", [3, (2, 6)])
def test_trace_patterning(gap):
    low, high = (gap, gap) if isinstance(gap, int) else gap
    X, y, due = trace_patterning(4000, gap, n_cues=4, n_distractors=3, pause=(7, 9), random_state=2)
    shown = np.flatnonzero(X[:, :4].any(axis=1))
    ends = np.flatnonzero(due)
    assert (X[shown, :4].sum(axis=1) == 2).all()
    gaps = ends - shown[: len(ends)]
    assert set(gaps.tolist()) == set(range(low, high + 1))
    assert set((shown[1 : len(ends) + 1] - ends[: len(shown) - 1]).tolist()) == {7, 8, 9}
    assert not y[~due].any()
    announcing = {tuple(X[s, :4]) for s, e in zip(shown, ends, strict=False) if y[e]}
    quiet = {tuple(X[s, :4]) for s, e in zip(shown, ends, strict=False) if not y[e]}
    assert len(announcing) == len(quiet) == 3  # of 6 patterns
    assert not announcing & quiet
    assert 0.4 < y[due].mean() < 0.6
    assert 0.17 < X[:, 4:].mean() < 0.23


def test_narma_obeys_its_rule():
    X, y = narma(500, random_state=3)
    u = X[:, 0]
    assert 0 < u.min() < u.max() < 0.5
    assert y[0] == 0.1
    assert y[1] == pytest.approx(0.3 * 0.1 + 0.05 * 0.1 * 0.1 + 0.1, rel=1e-12)
    for t in range(10, 500):
        want = 0.3 * y[t - 1] + 0.05 * y[t - 1] * y[t - 10 : t].sum() + 1.5 * u[t - 9] * u[t] + 0.1
        assert y[t] == pytest.approx(want, rel=1e-12)
