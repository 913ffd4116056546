"""Elementary functions and activations in C: bit-identical to the core, and close to NumPy in float64."""

import ctypes

import numpy as np
import pytest

import boards
from meshnn import _core
from meshnn.codes import ACTIVATIONS
from meshnn.errors import MeshError
from meshnn.export.c.text import activation_source, arithmetic_begin, literal

RNG = np.random.default_rng(0)
#: All exponents with both signs and their limits, random bits, and the range of typical states.
POINTS = np.concatenate(
    [
        (np.arange(512, dtype=np.uint32)[:, None] << 23 | np.array([0, 1, 0x400000, 0x7FFFFF], np.uint32)).ravel(),
        RNG.integers(0, 2**32, 20_000, dtype=np.uint32),
        RNG.normal(0, 3, 20_000).astype(np.float32).view(np.uint32),
        np.linspace(-100, 100, 20_001, dtype=np.float32).view(np.uint32),
    ]
).view(np.float32)
STRICT = "-std=c99 -O0"


def header(slopes=True):
    text = activation_source(ACTIVATIONS, slopes, "net", also=["sqrt"])
    return "#include <stdint.h>\n" + arithmetic_begin("net.h") + "\n" + text


def loops(slopes=True):
    """Return the source of one function over arrays per activation."""
    found = '#include "net.h"\n#ifdef __cplusplus\nextern "C" {\n#endif\n'
    for name in [*ACTIVATIONS, "sqrt"]:
        head = f"void all_{name}(const float *t, float *s, float *d, int n)"
        call = f"net_{name}(t[i], d + i)" if slopes and name != "sqrt" else f"net_{name}(t[i])"
        found += f"{head};\n{head} {{ int i; (void)d; for (i = 0; i < n; i++) s[i] = {call}; }}\n"
    return found + "#ifdef __cplusplus\n}\n#endif\n"


def called(library, name, points=POINTS):
    S, D = np.zeros_like(points), np.zeros_like(points)
    places = [a.ctypes.data_as(ctypes.c_void_p) for a in (points, S, D)]
    getattr(library, f"all_{name}")(*places, len(points))
    return S, D


def assert_same_bits(got, want):
    """Check for equal bits; any NaN equals any other."""
    same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
    assert same.all(), (got[~same][:5], want[~same][:5])


@pytest.mark.parametrize(
    ("compiler", "flags"),
    [("gcc", STRICT), ("gcc", "-std=gnu99 -O3 -march=native -ffp-contract=fast"), ("g++", "-std=c++11 -O2")],
)
def test_the_bits_of_the_core(compiler, flags):
    library = boards.load(loops(), {"net.h": header()}, flags, compiler)
    without = boards.load(loops(False), {"net.h": header(False)}, flags, compiler)
    for name in ACTIVATIONS:
        S, D = called(library, name)
        want_S, want_D = np.empty_like(POINTS), np.empty_like(POINTS)
        _core.portable_activate(ACTIVATIONS[name], POINTS, want_S, want_D)
        assert_same_bits(S, want_S)
        assert_same_bits(D, want_D)
        assert_same_bits(called(without, name)[0], want_S)
    points = np.abs(POINTS[~np.isnan(POINTS)])
    assert_same_bits(called(library, "sqrt", points)[0], np.sqrt(points))  # correctly rounded


def test_fast_math_is_refused():
    with pytest.raises(AssertionError, match="compile without -ffast-math"):
        boards.load(loops(), {"net.h": header()}, "-std=c99 -O2 -ffast-math")


_WANT = {
    "tanh": (np.tanh, lambda t: 1 / np.cosh(t) ** 2),
    "sigmoid": (lambda t: 1 / (1 + np.exp(-t)), lambda t: np.exp(-np.abs(t)) / (1 + np.exp(-np.abs(t))) ** 2),
    "relu": (lambda t: np.maximum(t, 0), lambda t: (t > 0) * 1.0),
    "leaky_relu": (lambda t: np.where(t > 0, t, np.float32(0.01) * t), lambda t: np.where(t > 0, 1, np.float32(0.01))),
    "elu": (lambda t: np.where(t > 0, t, np.expm1(np.minimum(t, 0))), lambda t: np.exp(np.minimum(t, 0))),
    "softplus": (lambda t: np.logaddexp(0, t), lambda t: 1 / (1 + np.exp(-t))),
    "sin": (np.sin, np.cos),
    "gauss": (lambda t: np.exp(-t * t), lambda t: -2 * t * np.exp(-t * t)),
    "identity": (lambda t: t, np.ones_like),
    "hardtanh": (lambda t: np.clip(t, -1, 1), lambda t: (np.abs(t) < 1) * 1.0),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_within_a_few_units_of_float64(name):
    """Results must be normal numbers; for gauss, the rounding of the exponent must not dominate."""
    library = boards.load(loops(), {"net.h": header()}, STRICT)
    points = POINTS[np.isfinite(POINTS) & (np.abs(POINTS) < (1e30 if name == "sin" else 80))]
    with np.errstate(over="ignore", under="ignore"):
        for got, function in zip(called(library, name, points), _WANT[name], strict=True):
            want = function(points.astype(np.float64))
            normal = np.abs(want) > 1e-37
            units = np.abs(got - want)[normal] / np.spacing(np.abs(want[normal]).astype(np.float32))
            slack = 1 + points[normal].astype(float) ** 2 if name == "gauss" else 1
            assert (units / slack).max() < 5


def test_numbers_are_written_as_their_bits():
    for value in (0.1, 1e-45, 3.4028235e38, -1 / 3, 1.0, 123456789.0, 0.0, 1e20):
        text = literal(value)
        assert text.endswith("f")
        assert set(".e") & set(text)
        assert np.float32(text.removesuffix("f")) == np.float32(value)
    with pytest.raises(MeshError, match="finite"):
        literal(np.nan)
