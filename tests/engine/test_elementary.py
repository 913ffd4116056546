"""Activations of the core: a net whose hidden neuron receives the input and a bias of 0."""

import numpy as np
import pytest

import naive
from meshnn import Mesh, Topology
from meshnn.codes import ACTIVATIONS

DTYPES = [np.float32, np.float64]
RNG = np.random.default_rng(0)


def chain(name, dtype, weight=1.0):
    return Mesh(Topology(1, 1, 1, [(0, 2), (1, 2), (2, 3)]), 2, name, weights=[weight, 0.0, 1.0], dtype=dtype)


def activate(name, points, dtype):
    """Return values and slopes; the slope is the derivative with respect to the bias."""
    mesh, x = chain(name, dtype), np.asarray(points, dtype)[:, None]
    return mesh.forward(x)[:, 0], mesh.jacobian(x)[:, 0, 1]


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_activations_at_the_edges(name, dtype):
    """Test zero, large values and infinity; NaN stays NaN."""
    points = [0.0, 1.0, -1.0, 1e-30, -1e-30, 0.3, -0.3, 5.0, -5.0, 30.0, -30.0]
    got, slope = activate(name, points, dtype)
    want = np.array([naive.activate(name, float(dtype(t))) for t in points])
    eps, top = np.finfo(dtype).eps, float(np.finfo(dtype).max)
    np.testing.assert_allclose(got, want[:, 0], rtol=8 * eps, atol=eps**2)
    np.testing.assert_allclose(slope, want[:, 1], rtol=40 * eps, atol=2 * eps)
    assert np.isfinite(activate(name, [top, -top, 1e10, -1e10], dtype)).all()
    ends = {
        "identity": (np.inf, -np.inf), "relu": (np.inf, 0), "leaky_relu": (np.inf, -np.inf), "elu": (np.inf, -1),
        "softplus": (np.inf, 0), "sigmoid": (1, 0), "tanh": (1, -1), "sin": (np.nan, np.nan), "gauss": (0, 0),
        "hardtanh": (1, -1),
    }  # fmt: skip
    overflown = chain(name, dtype, 2.0).forward([[top], [-top]])[:, 0]
    np.testing.assert_array_equal(overflown, np.array(ends[name], dtype))
    edges = [(0, 2), (1, 3), (2, 4), (3, 4), (4, 5)]  # infinity minus infinity
    lost = Mesh(
        Topology(2, 3, 1, edges, bias=False), 3, ["identity", "identity", name], weights=[2.0, 2.0, 1.0, 1.0, 1.0]
    )
    assert np.isnan(lost.forward([[3e38, -3e38]])).all()


SATURATED = np.concatenate([np.linspace(-36, 36, 400), RNG.uniform(-8, 8, 400)])
SMALL = RNG.uniform(-1, 1, 400) * 10.0 ** RNG.uniform(-12, 0, 400)
EXACT = {  # values and slopes in extended precision, without cancellation
    "tanh": (np.tanh, lambda t: 1 / np.cosh(t) ** 2),
    "sigmoid": (lambda t: 1 / (1 + np.exp(-t)), lambda t: 1 / (2 * np.cosh(t / 2)) ** 2),
    "elu": (lambda t: np.where(t <= 0, np.expm1(np.minimum(t, 0)), t), lambda t: np.exp(np.minimum(t, 0))),
    "softplus": (lambda t: np.log1p(np.exp(-np.abs(t))) + np.maximum(t, 0), lambda t: 1 / (1 + np.exp(-t))),
    "gauss": (lambda t: np.exp(-t * t), lambda t: -2 * t * np.exp(-t * t)),
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_and_slopes_are_accurate_where_neurons_saturate_and_near_zero(name, dtype):
    """The error is at most a few units in the last place."""
    info = np.finfo(dtype)
    points = np.concatenate([SATURATED, SMALL]).astype(dtype)
    # gauss: the relative error grows with t * t
    allowed = 6 * (1 + points.astype(float) ** 2 if name == "gauss" else 1.0) * 0.5 * info.eps
    for got, exact in zip(activate(name, points, dtype), EXACT[name], strict=True):
        want = exact(points.astype(np.longdouble))
        normal = np.abs(want) > info.tiny / info.eps  # smaller numbers are denormal and have fewer digits
        assert (np.abs(got - want)[normal] <= (allowed * np.abs(want))[normal]).all()
        assert (np.abs(got[~normal]) <= 2 * info.tiny / info.eps).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_gauss_far_out_has_a_slope(dtype):
    top = float(np.finfo(dtype).max)
    np.testing.assert_array_equal(activate("gauss", [0.9 * top, -0.9 * top, 1e10], dtype), 0)
