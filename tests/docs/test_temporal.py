"""Streams that are drawn."""

import gzip
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from meshnn import MeshError

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


def test_longer_delays_than_samples():
    X, y = delayed_xor(3, (0, 9), random_state=0)
    assert y.tolist() == X[:, 0].astype(int).tolist()


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


def test_narma_that_runs_away_is_drawn_again():
    n, seed = 20_000, 4
    u = np.random.default_rng(seed).uniform(0.0, 0.5, n)  # what is drawn at first
    y = [0.0] * 10
    for t in range(n):
        y.append(0.3 * y[-1] + 0.05 * y[-1] * sum(y[-10:]) + (1.5 * u[t - 9] * u[t] if t >= 9 else 0.0) + 0.1)
        if y[-1] > 100.0:
            break
    away = t
    assert away < n - 1
    X, got = narma(n, random_state=seed)
    np.testing.assert_allclose(got[: away - 150], y[10 : away - 140], rtol=1e-12)
    assert got.max() <= 1.5
    u = X[:, 0]
    assert u.max() < 0.5
    want = [0.3 * got[t - 1] + 0.05 * got[t - 1] * got[t - 10 : t].sum() + 1.5 * u[t - 9] * u[t] + 0.1
            for t in range(10, n)]  # fmt: skip
    np.testing.assert_allclose(got[10:], want, rtol=1e-12)


@pytest.mark.parametrize("make", [delayed_xor, trace_patterning, narma])
def test_they_are_seeded(make):
    a, b, c = (make(300, random_state=seed) for seed in (0, 0, 1))
    for first, same in zip(a, b, strict=True):
        np.testing.assert_array_equal(first, same)
    assert not np.array_equal(a[0], c[0])


@pytest.mark.parametrize(("make", "message"), [
    (lambda: delayed_xor(0), "n_samples must be a whole number of at least 1"),
    (lambda: delayed_xor(9, (1, 1)), "two different whole numbers"),
    (lambda: delayed_xor(9, (1, 2, 3)), "two different whole numbers"),
    (lambda: delayed_xor(9, (-1, 2)), r"delays\[0\] must be a whole number of at least 0, got -1"),
    (lambda: trace_patterning(9, gap=0), "gap must be a whole number of at least 1, got 0"),
    (lambda: trace_patterning(9, gap=(5, 2)), "gap must name the fewest steps first"),
    (lambda: trace_patterning(9, pause=(5,)), "pause must be two whole numbers"),
    (lambda: trace_patterning(9, n_cues=1), "n_cues must be a whole number of at least 2"),
    (lambda: trace_patterning(9, distraction=2), "distraction must be a number from 0 to 1"),
    (lambda: narma(9, order=30), "order must be at most 10"),
])  # fmt: skip
def test_what_is_refused(make, message):
    with pytest.raises(MeshError, match=message):
        make()


# -- the sets of the benchmarks ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sets():
    return importlib.import_module("stream_sets")


@pytest.mark.parametrize(("name", "shape", "classes"), [
    ("Bananas", (5300, 2), 2), ("Phishing", (1250, 9), 2), ("ImageSegments", (2310, 18), 7),
    ("TrumpApproval", (1001, 6), None), ("ChickWeights", (578, 3), None),
])  # fmt: skip
def test_streams_of_river(sets, name, shape, classes):
    river = pytest.importorskip("river.datasets", reason="river is not installed: pip install 'meshnn[river]'")
    found = sets.load(name)
    assert found.X.shape == shape
    assert classes is None or set(found.targets().tolist()) == set(range(classes))
    for (x, y), (want_x, want_y) in zip(found.rows(), getattr(river, name)(), strict=True):
        assert x == want_x
        assert y == want_y
        assert type(y) is type(want_y)


def test_other_streams(sets, tmp_path, capsys, monkeypatch):
    laser = sets.load("laser")
    if laser is not None:
        assert laser.X.shape == (10_092, 1)
        np.testing.assert_array_equal(laser.X[1:, 0], laser.y[:-1])
    for name in ("narma-10", "delayed-xor", "trace-patterning"):
        assert len(sets.load(name).X) == len(sets.load(name).y)
    with gzip.open(tmp_path / "elec.csv.gz", "wt") as file:
        file.write("a,b,target\n0.5,1,1\n0.25,0,0\n")
    X, y, names = sets.elec(tmp_path / "elec.csv.gz")
    assert (X.tolist(), y.tolist(), names) == ([[0.5, 1.0], [0.25, 0.0]], [1, 0], ["a", "b"])
    monkeypatch.setitem(sys.modules, "reservoirpy.datasets", None)  # as if it were not installed
    monkeypatch.setitem(sys.modules, "reservoirpy", None)
    sets.load.cache_clear()
    assert sets.load("laser") is None
    assert "STREAM laser LEFT OUT: reservoirpy is not installed" in capsys.readouterr().err
