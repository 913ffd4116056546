"""Running standardisation: plain moments while nothing happens, and those of today soon after something did."""

import numpy as np
import pytest

from meshnn.kernels._jit import jit
from meshnn.kernels.standardise import MEMORY, observe, standardise, unstandardise
from meshnn.kernels.tuples import MOMENT_ROWS


@jit
def run(X, moments, cut, missing, Z):
    """Each row by the moments of those before it."""
    for t in range(X.shape[0]):
        standardise(X[t], moments, cut, missing, Z[t])
        observe(X[t], moments)


@jit
def back(z, moments, out):
    unstandardise(z, moments, out)


def standardised(X, moments=None, cut=4.0, missing=0.0):
    X = np.atleast_2d(np.asarray(X, dtype=float).T).T
    moments = np.zeros((MOMENT_ROWS, X.shape[1])) if moments is None else moments
    Z = np.zeros_like(X)
    run(X, moments, cut, missing, Z)
    return Z, moments


def test_moments_of_all_so_far():
    X = np.random.default_rng(0).normal(3.0, [1.0, 20.0], size=(500, 2))
    Z, moments = standardised(X, cut=1e9)
    np.testing.assert_allclose(moments[1:3], [X.mean(0), X.var(0)], rtol=1e-10)
    for t in (2, 50, 499):
        np.testing.assert_allclose(Z[t], (X[t] - X[:t].mean(0)) / X[:t].std(0), rtol=1e-9)
    out = np.zeros(2)
    back(Z[-1].copy(), standardised(X[:-1])[1], out)
    np.testing.assert_allclose(out, X[-1], rtol=1e-9)


def test_first_rows_and_missing_numbers_say_nothing():
    Z, moments = standardised([5.0, 5.0, 5.0, 6.0, np.nan, np.inf], missing=np.nan)
    np.testing.assert_array_equal(Z, np.full((6, 1), np.nan))
    assert moments[0, 0] == 4
    np.testing.assert_allclose(moments[1:3, 0], [5.25, 0.1875])
    out = np.zeros(1)
    back(np.ones(1), np.zeros((MOMENT_ROWS, 1)), out)
    assert out[0] == 0


def test_a_wild_value_counts_little():
    rng = np.random.default_rng(1)
    X = rng.normal(size=1000)
    X[500:1000:100] = 1e6
    Z, moments = standardised(X)
    assert np.abs(Z).max() == 4.0
    assert moments[2, 0] < 2.5


@pytest.mark.parametrize("factor", [1e6, 1e-6, 1e60])
@pytest.mark.parametrize("shift", [0.0, 1e7])
def test_another_size_is_found_within_two_blocks(factor, shift):
    rng = np.random.default_rng(2)
    _, moments = standardised(rng.normal(size=3000))
    later = factor * rng.normal(size=2000) + (shift if factor > 1 else 0.0)
    standardised(later[:256], moments)
    assert 0.1 < np.sqrt(moments[2, 0]) / factor < 10.0  # the first block may have begun before
    standardised(later[256:], moments)
    assert 0.5 < np.sqrt(moments[2, 0]) / factor < 2.0
    standardised(rng.normal(size=256), moments)
    assert abs(moments[1, 0]) < 1.0
    assert 0.1 < np.sqrt(moments[2, 0]) < 10.0


def test_a_constant_and_a_ramp_are_no_surprise():
    ramp = np.arange(20_000.0)
    want = np.zeros(2)
    for t, x in enumerate(ramp):  # plain forgetting, no more
        rate = max(1 / (t + 1), 1 / MEMORY)
        want = want[0] + rate * (x - want[0]), (1 - rate) * (want[1] + rate * (x - want[0]) ** 2)
    np.testing.assert_allclose(standardised(ramp)[1][1:3, 0], want, rtol=1e-9)
    rng = np.random.default_rng(3)
    _, moments = standardised(rng.normal(size=3000))
    Z, moments = standardised(np.full(100_000, 2.0), moments)
    assert np.isfinite(Z).all()
    standardised(rng.normal(size=256), moments)
    assert 0.5 < np.sqrt(moments[2, 0]) < 2.0
