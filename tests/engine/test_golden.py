"""The installed version reproduces the golden record, see `golden.py`."""

from functools import cache

import pytest

import golden

#: Every gradient method is exact, so the record holds one result for all of them.
METHODS = ("auto", "adjoint", "factored", "influence")
#: Tolerance relative to the largest entry of the recorded array. Longer computations amplify rounding errors.
TOLERANCES = {
    "gradient": {"float64": 1e-12, "float32": 1e-5},
    "run": {"float64": 1e-12, "float32": 1e-5},
    "jacobian": {"float64": 1e-12, "float32": 1e-5},
    "growth": {"float64": 1e-12, "float32": 1e-5},
    "training": {"float64": 1e-9, "float32": 1e-4},
    "stream": {"float64": 1e-7, "float32": 1e-3},
    "portable": {"float32": 0.0},
}


@cache
def recorded():
    """Return the recorded values by kind, case and dtype."""
    found = {}
    for key, value in golden.load().items():
        kind, name, dtype, quantity = key.split("/")
        found.setdefault((kind, name, dtype), {})[quantity] = value
    return found


def check(kind, name, dtype, *options):
    """Compare all values of a case with the record."""
    got, want, tolerance = golden.values_of(kind, name, dtype, *options), recorded()[kind, name, dtype], TOLERANCES
    assert got.keys() == want.keys()
    for quantity, value in got.items():
        assert value.dtype == want[quantity].dtype
        assert value.shape == want[quantity].shape, quantity
        error = golden.deviation(value, want[quantity])
        assert error <= tolerance[kind][dtype], f"{quantity} is off by {error:.3g} of its largest entry"


def cases(kind):
    """Parametrise a test with the cases and dtypes of a kind."""
    return pytest.mark.parametrize(("name", "dtype"), golden.case_ids(kind))


def test_the_record_has_the_cases_of_the_list():
    assert set(recorded()) == {(kind, *case) for kind in golden.KINDS for case in golden.case_ids(kind)}


@pytest.mark.parametrize("method", METHODS)
@cases("gradient")
def test_gradient(name, dtype, method):
    check("gradient", name, dtype, method)


@cases("run")
def test_outputs_and_states(name, dtype):
    check("run", name, dtype)


def has_jacobian(name, method):
    """Return whether a method computes the Jacobian; with a given initial state only `adjoint` does."""
    return method in ("auto", "adjoint") or not golden.JACOBIANS[name].state


@pytest.mark.parametrize(
    ("name", "dtype", "method"),
    [(*case, method) for case in golden.case_ids("jacobian") for method in METHODS if has_jacobian(case[0], method)],
)
def test_jacobian(name, dtype, method):
    check("jacobian", name, dtype, method)


@pytest.mark.parametrize("method", METHODS)
@cases("growth")
def test_growth_scores(name, dtype, method):
    check("growth", name, dtype, method)


@pytest.mark.parametrize("method", METHODS)
@cases("training")
def test_training(name, dtype, method):
    check("training", name, dtype, method)


@cases("stream")
def test_stream(name, dtype):
    check("stream", name, dtype)


@cases("portable")
def test_portable_stream_has_the_same_bits(name, dtype):
    check("portable", name, dtype)
