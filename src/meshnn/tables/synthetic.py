"""Data sets that are drawn, not read. Seeded, balanced and shuffled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import BELOW_1, FROM_0, as_generator, as_list, real_number, whole_number
from meshnn.errors import MeshError

__all__ = ["BLOBS", "blobs", "circles", "double_blobs", "moons", "spirals"]

Seed = int | np.random.Generator | None
Samples = tuple[NDArray[np.float64], NDArray[np.int64]]
#: Centres of `blobs`: far enough from each other that its classes can be told apart.
BLOBS = ((-7.0, -4.0), (6.0, 2.0), (-5.0, 7.0))


def spirals(n_samples: int = 1000, noise: float = 0.1, random_state: Seed = None) -> Samples:
    """Two interleaved spirals of 780 degrees.

    A point at angle a = sqrt(U) * 780 degrees lies at (-a cos a, a sin a) plus uniform noise; the second class is
    turned by half a circle. Both classes are drawn independently, so no test point mirrors a training point.

    Returns
    -------
    X : array (n_samples, 2)
    y : array (n_samples,) of 0 and 1, in random order

    Examples
    --------
    >>> from meshnn.tables.synthetic import spirals
    >>> X, y = spirals(1000, random_state=0)
    >>> X.shape, int(y.sum())
    ((1000, 2), 500)
    """
    n_samples, noise, rng = _checked(n_samples, noise, random_state)
    y = np.arange(n_samples, dtype=np.int64) % 2
    a = np.sqrt(rng.random(n_samples)) * np.deg2rad(780)
    X = np.stack([-a * np.cos(a), a * np.sin(a)], axis=1) + noise * rng.random((n_samples, 2))
    X[y == 1] *= -1
    return _shuffled(X, y, rng)


def moons(n_samples: int = 1000, noise: float = 0.1, random_state: Seed = None) -> Samples:
    """Two half circles that reach into each other, with normal noise.

    Examples
    --------
    >>> from meshnn.tables.synthetic import moons
    >>> X, y = moons(1000, random_state=0)
    >>> X.shape, int(y.sum())
    ((1000, 2), 500)
    """
    n_samples, noise, rng = _checked(n_samples, noise, random_state)
    y = np.arange(n_samples, dtype=np.int64) % 2
    a = np.empty(n_samples)
    for label in (0, 1):
        a[y == label] = np.linspace(0, np.pi, int((y == label).sum()))
    X = np.where(y[:, None] == 0, np.stack([np.cos(a), np.sin(a)], 1), np.stack([1 - np.cos(a), 0.5 - np.sin(a)], 1))
    return _shuffled(X + noise * rng.standard_normal(X.shape), y, rng)


def circles(n_samples: int = 1000, noise: float = 0.1, factor: float = 0.5, random_state: Seed = None) -> Samples:
    """A circle in a circle, `factor` times as large, with normal noise.

    Examples
    --------
    >>> from meshnn.tables.synthetic import circles
    >>> X, y = circles(1000, noise=0, random_state=0)
    >>> sorted({round(float(r), 3) for r in (X**2).sum(axis=1) ** 0.5})
    [0.5, 1.0]
    """
    n_samples, noise, rng = _checked(n_samples, noise, random_state)
    factor = real_number("factor", factor, *BELOW_1)
    y = np.arange(n_samples, dtype=np.int64) % 2
    a = 2 * np.pi * np.arange(n_samples) / n_samples
    X = np.where(y == 1, factor, 1.0)[:, None] * np.stack([np.cos(a), np.sin(a)], axis=1)
    return _shuffled(X + noise * rng.standard_normal(X.shape), y, rng)


def blobs(
    n_samples: int = 1000,
    centers: Sequence[Sequence[float]] | str = BLOBS,
    std: Sequence[float] = (1.0, 2.5, 0.5),
    random_state: Seed = None,
) -> Samples:
    """Normal clouds, one per class, with one standard deviation each.

    Centers that are "random" are drawn from the square (-10, 10), as scikit-learn does: some draws overlap.

    Examples
    --------
    >>> from meshnn.tables.synthetic import blobs
    >>> X, y = blobs(1000, random_state=0)
    >>> [int((y == label).sum()) for label in range(3)]
    [334, 333, 333]
    """
    n_samples, _, rng = _checked(n_samples, 0.0, random_state)
    widths = [real_number("std", value, *FROM_0) for value in as_list("std", std)]
    middles = _centers(centers, len(widths), rng)
    y = np.arange(n_samples, dtype=np.int64) % len(middles)
    X = middles[y] + np.array(widths)[y, None] * rng.standard_normal((n_samples, 2))
    return _shuffled(X, y, rng)


def double_blobs(
    n_samples: int = 1000, centers: Sequence[Sequence[float]] | str | None = None, random_state: Seed = None
) -> Samples:
    """Three classes of two normal clouds each, of standard deviation 1; the second half of the centers is theirs again.

    By default the centers are a hexagon on which the classes follow each other twice, so that no line parts any two.

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


def _checked(n_samples: int, noise: float, random_state: Seed) -> tuple[int, float, np.random.Generator]:
    return (
        whole_number("n_samples", n_samples, least=2),
        real_number("noise", noise, *FROM_0),
        as_generator(random_state),
    )


def _centers(centers: Sequence[Sequence[float]] | str, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    if isinstance(centers, str) and centers == "random":
        return rng.uniform(-10, 10, (count, 2))
    try:
        found = np.array(as_list("centers", centers), dtype=np.float64)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.shape != (count, 2) or not np.isfinite(found).all():
        raise MeshError(f'centers must be "random" or {count} points of 2 finite numbers, one per std, got {centers!r}')
    return found


def _shuffled(X: NDArray[np.float64], y: NDArray[np.int64], rng: np.random.Generator) -> Samples:
    order = rng.permutation(len(y))
    return X[order], y[order]
