"""How long the season of a series is: the highest peak of the autocorrelation of its changes."""

from __future__ import annotations

import numpy as np

from meshnn.arrays import Array

__all__ = ["find_season", "is_time_to_look"]

#: A peak must be this high, and this many standard errors of white noise.
LEAST, ERRORS = 0.25, 2.2
#: A shorter season is taken if its peak is this share of the highest: multiples of a season have peaks, too.
ALMOST = 0.85
#: Values after which a season is looked for: these, and twice, four times, ... as many.
FIRST, LAST = (24, 36), 1536


def is_time_to_look(count: int) -> bool:
    """Whether a season should be looked for after so many values.

    >>> [n for n in range(400) if is_time_to_look(n)]
    [24, 36, 48, 72, 96, 144, 192, 288, 384]
    """
    return count <= LAST and any(count >= k and count % k == 0 and (count // k).bit_count() == 1 for k in FIRST)


def find_season(y: Array) -> int | None:
    """The steps of a season, or None. Two seasons and a half must have been seen.

    >>> import numpy as np
    >>> t = np.arange(60)
    >>> find_season(0.3 * t + np.sin(2 * np.pi * t / 12)), find_season(0.3 * t)
    (12, None)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        change = np.diff(y)
        change -= np.median(change)
        wide = 5.0 * np.median(np.abs(change))
        if wide > 0:  # a few wild changes say nothing about the others
            change = np.clip(change, -wide, wide)
        change -= change.mean()
        scale = np.abs(change).max(initial=0.0)
    n = len(change)
    most = int(n / 2.5)
    if most < 3 or not 0 < scale < np.inf or scale <= 1e-9 * np.abs(y).max():
        return None
    size = 1 << (2 * n - 1).bit_length()
    power = np.abs(np.fft.rfft(change / scale, size)) ** 2
    products = np.fft.irfft(power, size)[: most + 2]
    r = products / products[0]
    inner = r[2:-1]
    peaks = 2 + np.flatnonzero((inner > r[1:-2]) & (inner >= r[3:]) & (inner > max(LEAST, ERRORS / np.sqrt(n))))
    if not peaks.size:
        return None
    good = peaks[r[peaks] >= ALMOST * r[peaks].max()]
    return int(good[0])
