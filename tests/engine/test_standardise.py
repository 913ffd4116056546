"""Running standardisation: plain moments on a steady stream, recent moments soon after a change."""

import numpy as np
import pytest

from meshnn import Mesh, Topology

MEMORY = 2000  # effective number of samples on a long stream


def new_stream(n, moments=None):
    """Return a stream that copies its inputs to its outputs and standardises both; a NaN target changes nothing."""
    topology = Topology(n, 0, n, np.array([(i, n + i) for i in range(n)]), bias=False)
    mesh = Mesh(topology, 1, dtype="float64", weights=np.ones(n))
    stream = mesh.stream(memory="none", ticks_per_sample=1, scale=True)
    if moments is not None:
        stream.room.x_moments[:] = moments
    return stream


def standardised(X, moments=None):
    """Standardise each row with the moments of the rows before it."""
    X = np.atleast_2d(np.asarray(X, dtype=float).T).T
    stream = new_stream(X.shape[1], moments)
    stream.room.y_moments[1:3] = [[0.0], [1.0]]  # no scaling of outputs
    Z = stream.run(X)
    if moments is not None:
        moments[:] = stream.room.x_moments
    return Z, stream.room.x_moments


def test_moments_of_all_so_far():
    X = np.random.default_rng(0).normal(3.0, [1.0, 20.0], size=(500, 2))
    Z, moments = standardised(X)
    np.testing.assert_allclose(moments[1:3], [X.mean(0), X.var(0)], rtol=1e-10)
    for t in (2, 50, 499):
        np.testing.assert_allclose(Z[t], np.clip((X[t] - X[:t].mean(0)) / X[:t].std(0), -4, 4), rtol=1e-9)
    stream = new_stream(2)  # outputs have the scale of the targets
    stream.room.y_moments[:] = stream.room.x_moments[:] = moments
    np.testing.assert_allclose(stream.peek(X.mean(0) + 1.0), X.mean(0) + 1.0, rtol=1e-9)


def test_first_rows_and_missing_numbers_say_nothing():
    given = [5.0, 5.0, 5.0, np.nan, 6.0, np.nan, np.inf]
    Z, moments = standardised(given)
    np.testing.assert_array_equal(Z, np.zeros((7, 1)))
    assert moments[0, 0] == 4
    np.testing.assert_allclose(moments[1:3, 0], [5.25, 0.1875])
    stream = new_stream(1)
    stream.room.x_moments[1:3] = [[0.0], [1.0]]
    assert stream.peek([1.0]) == 0  # before the first target
    stream.run(np.zeros((6, 1)), np.array(given[:6]))
    np.testing.assert_array_equal(stream.room.y_moments[:, 0], moments[:, 0])
    assert stream.learned == 0  # a constant or missing target has no standardised value


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
    assert 0.1 < np.sqrt(moments[2, 0]) / factor < 10.0  # the first block may have started earlier
    standardised(later[256:], moments)
    assert 0.5 < np.sqrt(moments[2, 0]) / factor < 2.0
    standardised(rng.normal(size=256), moments)
    assert abs(moments[1, 0]) < 1.0
    assert 0.1 < np.sqrt(moments[2, 0]) < 10.0


def test_a_constant_and_a_ramp_are_no_surprise():
    ramp = np.arange(20_000.0)
    want = np.zeros(2)
    for t, x in enumerate(ramp):  # plain exponential forgetting
        rate = max(1 / (t + 1), 1 / MEMORY)
        want = want[0] + rate * (x - want[0]), (1 - rate) * (want[1] + rate * (x - want[0]) ** 2)
    np.testing.assert_allclose(standardised(ramp)[1][1:3, 0], want, rtol=1e-9)
    rng = np.random.default_rng(3)
    _, moments = standardised(rng.normal(size=3000))
    Z, moments = standardised(np.full(100_000, 2.0), moments)
    assert np.isfinite(Z).all()
    standardised(rng.normal(size=256), moments)
    assert 0.5 < np.sqrt(moments[2, 0]) < 2.0
