"""Data sets that are drawn, not read. Seeded, balanced and shuffled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import as_generator, real_number, whole_number

__all__ = ["spirals"]


def spirals(
    n_samples: int = 1000, noise: float = 0.1, random_state: int | np.random.Generator | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Two interleaved spirals of 780 degrees.

    A point at angle a = sqrt(U) * 780 degrees lies at (-a cos a, a sin a) plus uniform noise; the second class is
    turned by half a circle. Both classes are drawn independently, so no test point mirrors a training point.

    Returns
    -------
    X : array (n_samples, 2)
    y : array (n_samples,) of 0 and 1, in random order

    Examples
    --------
    >>> from meshnn.data.synthetic import spirals
    >>> X, y = spirals(1000, random_state=0)
    >>> X.shape, int(y.sum())
    ((1000, 2), 500)
    """
    n_samples = whole_number("n_samples", n_samples, least=2)
    noise = real_number("noise", noise, "a number of at least 0", lambda value: value >= 0)
    rng = as_generator(random_state)
    y = np.arange(n_samples, dtype=np.int64) % 2
    a = np.sqrt(rng.random(n_samples)) * np.deg2rad(780)
    X = np.stack([-a * np.cos(a), a * np.sin(a)], axis=1) + noise * rng.random((n_samples, 2))
    X[y == 1] *= -1
    order = rng.permutation(n_samples)
    return X[order], y[order]
