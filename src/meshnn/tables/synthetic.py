"""Synthetic data sets: seeded, balanced and shuffled.

All functions return X (n_samples, 2) and the classes y (n_samples,), numbered from 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import BELOW_1, FROM_0, as_generator, as_list, real_number, whole_number
from meshnn.errors import MeshError

__all__ = ["BLOBS", "blobs", "circles", "double_blobs", "moons", "spirals"]

Seed = int | np.random.Generator | None
Floats = NDArray[np.float64]
Classes = NDArray[np.int64]
#: Centres of `blobs`, far enough apart to separate the classes.
BLOBS = ((-7.0, -4.0), (6.0, 2.0), (-5.0, 7.0))


def spirals(n_samples: int = 1000, noise: float = 0.1, random_state: Seed = None) -> tuple[Floats, Classes]:
    """Return two interleaved spirals of 780 degrees.

    A point at angle a = sqrt(U) * 780 degrees lies at (-a cos a, a sin a) plus uniform noise; the second class is
    rotated by 180 degrees. Both classes are drawn independently, so no test point mirrors a training point.

    Examples
    --------
    >>> from meshnn.tables.synthetic import spirals
    >>> X, y = spirals(1000, random_state=0)
    >>> X.shape, int(y.sum())
    ((1000, 2), 500)
    """
    y, rng = _classes(n_samples, 2, random_state)
    a = np.sqrt(rng.random(n_samples)) * np.deg2rad(780)
    X = np.stack([-a * np.cos(a), a * np.sin(a)], axis=1) + _noise(noise) * rng.random((n_samples, 2))
    X[y == 1] *= -1
    return _shuffled(X, y, rng)


def moons(n_samples: int = 1000, noise: float = 0.1, random_state: Seed = None) -> tuple[Floats, Classes]:
    """Return two interleaving half circles with normal noise.

    Examples
    --------
    >>> from meshnn.tables.synthetic import moons
    >>> X, y = moons(1000, random_state=0)
    >>> X.shape, int(y.sum())
    ((1000, 2), 500)
    """
    y, rng = _classes(n_samples, 2, random_state)
    a = np.empty(n_samples)
    for label in (0, 1):
        a[label::2] = np.linspace(0, np.pi, len(a[label::2]))
    X = np.where(y[:, None] == 0, np.stack([np.cos(a), np.sin(a)], 1), np.stack([1 - np.cos(a), 0.5 - np.sin(a)], 1))
    return _shuffled(X + _noise(noise) * rng.standard_normal(X.shape), y, rng)


def circles(
    n_samples: int = 1000, noise: float = 0.1, factor: float = 0.5, random_state: Seed = None
) -> tuple[Floats, Classes]:
    """Return a circle and a concentric one that is `factor` times as large, with normal noise.

    Examples
    --------
    >>> from meshnn.tables.synthetic import circles
    >>> X, y = circles(1000, noise=0, random_state=0)
    >>> sorted({round(float(r), 3) for r in (X**2).sum(axis=1) ** 0.5})
    [0.5, 1.0]
    """
    y, rng = _classes(n_samples, 2, random_state)
    a = 2 * np.pi * np.arange(n_samples) / n_samples
    radius = np.where(y == 1, real_number("factor", factor, *BELOW_1), 1.0)
    X = radius[:, None] * np.stack([np.cos(a), np.sin(a)], axis=1)
    return _shuffled(X + _noise(noise) * rng.standard_normal(X.shape), y, rng)


def blobs(
    n_samples: int = 1000,
    centers: Sequence[Sequence[float]] | str = BLOBS,
    std: Sequence[float] = (1.0, 2.5, 0.5),
    random_state: Seed = None,
) -> tuple[Floats, Classes]:
    """Return normal clusters, one per class, each with its own standard deviation.

    With centers="random", they are drawn from the square (-10, 10) as in scikit-learn, and may overlap.

    Examples
    --------
    >>> from meshnn.tables.synthetic import blobs
    >>> X, y = blobs(1000, random_state=0)
    >>> [int((y == label).sum()) for label in range(3)]
    [334, 333, 333]
    """
    widths = np.array([real_number("std", value, *FROM_0) for value in as_list("std", std)])
    y, rng = _classes(n_samples, len(widths), random_state)
    if isinstance(centers, str) and centers == "random":
        middles = rng.uniform(-10, 10, (len(widths), 2))
    else:
        try:
            middles = np.array(as_list("centers", centers), dtype=np.float64)
        except (TypeError, ValueError):
            middles = np.empty(0)
    if middles.shape != (len(widths), 2) or not np.isfinite(middles).all():
        expected = f'"random" or {len(widths)} points of 2 finite numbers, one per std'
        raise MeshError(f"centers must be {expected}, got {centers!r}")
    return _shuffled(middles[y] + widths[y, None] * rng.standard_normal((n_samples, 2)), y, rng)


def double_blobs(
    n_samples: int = 1000, centers: Sequence[Sequence[float]] | str | None = None, random_state: Seed = None
) -> tuple[Floats, Classes]:
    """Return three classes of two normal clusters each; centers k and k + 3 belong to one class.

    The default centers form a hexagon with opposite clusters of one class: no line separates two classes.

    Examples
    --------
    >>> from meshnn.tables.synthetic import double_blobs
    >>> X, y = double_blobs(600, random_state=0)
    >>> [int((y == label).sum()) for label in range(3)]
    [200, 200, 200]
    """
    if centers is None:
        centers = [(8.0 * float(np.cos(k * np.pi / 3)), 8.0 * float(np.sin(k * np.pi / 3))) for k in range(6)]
    X, y = blobs(n_samples, centers, (1.0,) * 6, random_state)
    return X, y % 3


def _classes(n_samples: int, count: int, random_state: Seed) -> tuple[Classes, np.random.Generator]:
    """Return alternating classes and a random generator."""
    return np.arange(whole_number("n_samples", n_samples, least=2), dtype=np.int64) % count, as_generator(random_state)


def _noise(noise: float) -> float:
    return real_number("noise", noise, *FROM_0)


def _shuffled(X: Floats, y: Classes, rng: np.random.Generator) -> tuple[Floats, Classes]:
    order = rng.permutation(len(y))
    return X[order], y[order]
