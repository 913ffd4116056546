"""Elementary functions of the kernels against the C library in extended precision."""

import numpy as np
import pytest

from meshnn.codes import ACTIVATIONS
from meshnn.kernels import elementary
from meshnn.kernels._jit import jit
from meshnn.kernels._row import lanes
from meshnn.kernels.activations import activate_all


@jit
def _exp(x, out):
    for k in range(x.shape[0]):
        out[k] = elementary.exp(x[k])


@jit
def _expm1(x, out):
    for k in range(x.shape[0]):
        out[k] = elementary.expm1_moderate(x[k])


@jit
def _log(x, out):
    for k in range(x.shape[0]):
        out[k] = elementary.log(x[k])


@jit
def _log1p(x, out):
    for k in range(x.shape[0]):
        out[k] = elementary.log1p_unit(x[k])


RNG = np.random.default_rng(0)
SPREAD = np.concatenate([RNG.uniform(-80, 80, 4000), RNG.uniform(-1, 1, 2000) * 10.0 ** RNG.uniform(-12, 0, 2000)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("got", "want", "x"),
    [
        (_exp, np.exp, SPREAD),
        (_expm1, np.expm1, SPREAD),
        (_log, np.log, np.concatenate([RNG.uniform(1, 3, 3000), 10.0 ** RNG.uniform(-30, 30, 3000)])),
        (_log1p, np.log1p, np.concatenate([RNG.uniform(0, 1, 3000), 10.0 ** RNG.uniform(-30, 0, 3000)])),
    ],
)
def test_a_few_units_in_the_last_place(got, want, x, dtype):
    x = x.astype(dtype)
    out = np.empty_like(x)
    got(x, out)
    exact = want(x.astype(np.longdouble))
    assert np.abs((out - exact) / exact).max() < 3 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ends_of_the_range(dtype):
    info = np.finfo(dtype)
    top = np.log(info.max)
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0, top * 1.001, -top * 1.2], dtype)
    out = np.empty_like(x)
    _exp(x, out)
    np.testing.assert_array_equal(out, np.array([np.nan, np.inf, 0, np.inf, 0, 1, np.inf, 0], dtype))
    x = np.array([np.nan, np.inf, 1], dtype)
    out = np.empty_like(x)
    _log(x, out)
    np.testing.assert_array_equal(out, np.array([np.nan, np.inf, 0], dtype))


def activate(name, points, dtype):
    S = np.zeros((1, lanes(dtype)), dtype)
    S[0, : len(points)] = points
    D = np.empty_like(S)
    activate_all(np.array([ACTIVATIONS[name]]), S, D)
    return S[0, : len(points)], D[0, : len(points)]


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_activations_at_the_edges(name, dtype):
    """Right at zero, far out and at infinity, and NaN stays NaN."""
    import warnings

    import naive

    points = [0.0, 1e-30, -1e-30, 0.3, -0.3, 5.0, -5.0, 30.0, -30.0]
    got, slope = activate(name, points, dtype)
    want = np.array([naive.activate(name, float(dtype(t))) for t in points])
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(got, want[:, 0], rtol=8 * eps, atol=eps**2)
    np.testing.assert_allclose(slope, want[:, 1], rtol=40 * eps, atol=2 * eps)

    got, _ = activate(name, [np.nan, np.inf, -np.inf], dtype)
    ends = {
        "identity": (np.inf, -np.inf), "relu": (np.inf, 0), "leaky_relu": (np.inf, -np.inf), "elu": (np.inf, -1),
        "softplus": (np.inf, 0), "sigmoid": (1, 0), "tanh": (1, -1), "sin": (np.nan, np.nan), "gauss": (0, 0),
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(got, np.array([np.nan, *ends[name]], dtype))


SATURATED = np.concatenate([np.linspace(-36, 36, 400), RNG.uniform(-8, 8, 400)])
SLOPES = {  # in extended precision, without a difference of nearly equal numbers
    "tanh": lambda t: 1 / np.cosh(t) ** 2,
    "sigmoid": lambda t: 1 / (2 * np.cosh(t / 2)) ** 2,
    "elu": lambda t: np.where(t <= 0, np.exp(np.minimum(t, 0)), 1),
    "softplus": lambda t: 1 / (1 + np.exp(-t)),
    "gauss": lambda t: -2 * t * np.exp(-t * t),
}


@pytest.mark.parametrize("name", SLOPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_slopes_are_accurate_where_neurons_saturate(name, dtype):
    info = np.finfo(dtype)
    points = SATURATED.astype(dtype)
    slopes = np.concatenate([activate(name, part, dtype)[1] for part in np.split(points, len(points) // 16)])
    want = SLOPES[name](points.astype(np.longdouble))
    # gauss: the rounding of t * t counts as often as t * t is large
    allowed = 6 * (1 + points.astype(float) ** 2 if name == "gauss" else 1.0) * 0.5 * info.eps
    normal = np.abs(want) > info.tiny / info.eps  # beyond it there are fewer digits to be right
    assert (np.abs(slopes - want)[normal] <= (allowed * np.abs(want))[normal]).all()
    assert (np.abs(slopes[~normal]) <= 2 * info.tiny / info.eps).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gauss_far_out_has_a_slope(dtype):
    top = float(np.finfo(dtype).max)
    got, slope = activate("gauss", [0.9 * top, -0.9 * top, np.inf, -np.inf, 1e10], dtype)
    np.testing.assert_array_equal(got, 0)
    np.testing.assert_array_equal(slope, 0)
