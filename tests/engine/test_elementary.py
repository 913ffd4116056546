"""Elementary functions and activations of the core, in every instruction set that this processor has."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import naive
from meshnn import Mesh, Topology, _core
from meshnn.codes import ACTIVATIONS

DTYPES = [np.float32, np.float64]
EXP, EXPM1, LOG, LOG1P = range(4)
RNG = np.random.default_rng(0)
SPREAD = np.concatenate([RNG.uniform(-80, 80, 4000), RNG.uniform(-1, 1, 2000) * 10.0 ** RNG.uniform(-12, 0, 2000)])
CASES = {
    EXP: (np.exp, SPREAD),
    EXPM1: (np.expm1, SPREAD),
    LOG: (np.log, np.concatenate([RNG.uniform(1, 3, 3000), 10.0 ** RNG.uniform(-30, 30, 3000)])),
    LOG1P: (np.log1p, np.concatenate([RNG.uniform(0, 1, 3000), 10.0 ** RNG.uniform(-30, 0, 3000)])),
}


def elementary(function, x):
    """A function of the core, whose arrays have whole registers."""
    whole = np.resize(x, -(-len(x) // 16) * 16)
    out = np.empty_like(whole)
    _core.elementary(whole.dtype.char, function, whole, out)
    return out[: len(x)]


def error(function, dtype):
    """The largest error, in units of the last place."""
    exact, x = CASES[function]
    x = x.astype(dtype)
    want = exact(x.astype(np.longdouble))
    return float(np.abs((elementary(function, x) - want) / want).max() / np.finfo(dtype).eps)


def isas():
    """Instruction sets of the core that this processor has: all up to the one that it has chosen."""
    return _core.isas[: _core.isas.index(_core.isa) + 1]


def errors():
    """All of them, for a process that runs another instruction set."""
    return [error(function, dtype) for function in CASES for dtype in DTYPES]


@pytest.mark.parametrize("isa", isas())
def test_a_few_units_in_the_last_place(isa):
    program = "import json, test_elementary as t; print(json.dumps([t._core.isa, t.errors()]))"
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | {"MESHNN_ISA": isa}, capture_output=True,
                          cwd=Path(__file__).parent, text=True, check=True)  # fmt: skip
    used, found = json.loads(done.stdout)
    assert used == isa
    assert max(found) < 3, found


@pytest.mark.parametrize("dtype", DTYPES)
def test_ends_of_the_range(dtype):
    top = np.log(np.finfo(dtype).max)
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0, top * 1.001, -top * 1.2], dtype)
    np.testing.assert_array_equal(elementary(EXP, x), np.array([np.nan, np.inf, 0, np.inf, 0, 1, np.inf, 0], dtype))
    x = np.array([np.nan, np.inf, 1], dtype)
    np.testing.assert_array_equal(elementary(LOG, x), x - np.array([0, 0, 1], dtype))


# -- activations, of a net whose hidden neuron gets the input and a bias of 0 -----------------------------------------


def chain(name, dtype, weight=1.0):
    return Mesh(Topology(1, 1, 1, [(0, 2), (1, 2), (2, 3)]), 2, name, weights=[weight, 0.0, 1.0], dtype=dtype)


def activate(name, points, dtype):
    """Values and slopes, which are derivatives by the bias."""
    mesh, x = chain(name, dtype), np.asarray(points, dtype)[:, None]
    return mesh.forward(x)[:, 0], mesh.jacobian(x)[:, 0, 1]


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_activations_at_the_edges(name, dtype):
    """At zero, far out and at infinity; NaN stays NaN."""
    points = [0.0, 1e-30, -1e-30, 0.3, -0.3, 5.0, -5.0, 30.0, -30.0]
    got, slope = activate(name, points, dtype)
    want = np.array([naive.activate(name, float(dtype(t))) for t in points])
    eps, top = np.finfo(dtype).eps, float(np.finfo(dtype).max)
    np.testing.assert_allclose(got, want[:, 0], rtol=8 * eps, atol=eps**2)
    np.testing.assert_allclose(slope, want[:, 1], rtol=40 * eps, atol=2 * eps)
    assert np.isfinite(activate(name, [top, -top, 1e10, -1e10], dtype)).all()
    ends = {
        "identity": (np.inf, -np.inf), "relu": (np.inf, 0), "leaky_relu": (np.inf, -np.inf), "elu": (np.inf, -1),
        "softplus": (np.inf, 0), "sigmoid": (1, 0), "tanh": (1, -1), "sin": (np.nan, np.nan), "gauss": (0, 0),
    }  # fmt: skip
    overflown = chain(name, dtype, 2.0).forward([[top], [-top]])[:, 0]
    np.testing.assert_array_equal(overflown, np.array(ends[name], dtype))
    edges = [(0, 2), (1, 3), (2, 4), (3, 4), (4, 5)]  # infinity less infinity
    lost = Mesh(
        Topology(2, 3, 1, edges, bias=False), 3, ["identity", "identity", name], weights=[2.0, 2.0, 1.0, 1.0, 1.0]
    )
    assert np.isnan(lost.forward([[3e38, -3e38]])).all()


SATURATED = np.concatenate([np.linspace(-36, 36, 400), RNG.uniform(-8, 8, 400)])
SLOPES = {  # in extended precision, without a difference of nearly equal numbers
    "tanh": lambda t: 1 / np.cosh(t) ** 2,
    "sigmoid": lambda t: 1 / (2 * np.cosh(t / 2)) ** 2,
    "elu": lambda t: np.where(t <= 0, np.exp(np.minimum(t, 0)), 1),
    "softplus": lambda t: 1 / (1 + np.exp(-t)),
    "gauss": lambda t: -2 * t * np.exp(-t * t),
}


@pytest.mark.parametrize("name", SLOPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_slopes_are_accurate_where_neurons_saturate(name, dtype):
    info = np.finfo(dtype)
    points = SATURATED.astype(dtype)
    slopes = activate(name, points, dtype)[1]
    want = SLOPES[name](points.astype(np.longdouble))
    # gauss: the rounding of t * t counts as often as t * t is large
    allowed = 6 * (1 + points.astype(float) ** 2 if name == "gauss" else 1.0) * 0.5 * info.eps
    normal = np.abs(want) > info.tiny / info.eps  # beyond it there are fewer digits to be right
    assert (np.abs(slopes - want)[normal] <= (allowed * np.abs(want))[normal]).all()
    assert (np.abs(slopes[~normal]) <= 2 * info.tiny / info.eps).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_gauss_far_out_has_a_slope(dtype):
    top = float(np.finfo(dtype).max)
    np.testing.assert_array_equal(activate("gauss", [0.9 * top, -0.9 * top, 1e10], dtype), 0)
