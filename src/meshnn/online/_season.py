"""How long the season of a series is: the highest peak of the autocorrelation of its changes."""

from __future__ import annotations

import numpy as np

from meshnn.arrays import Array
from meshnn.online._tuning import TUNING

__all__ = ["find_season", "is_time_to_look"]


def is_time_to_look(count: int) -> bool:
    """Whether a season should be looked for after so many values.

    >>> [n for n in range(400) if is_time_to_look(n)]
    [24, 36, 48, 72, 96, 144, 192, 288, 384]
    """
    times = 24, 36  # and twice, four times, ... as many
    return count <= TUNING.kept and any(count % k == 0 and (count // k).bit_count() == 1 for k in times)


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
    least = max(0.25, 2.2 / np.sqrt(n))  # some standard errors of white noise
    peaks = 2 + np.flatnonzero((inner > r[1:-2]) & (inner >= r[3:]) & (inner > least))
    if not peaks.size:
        return None
    # multiples of a season have peaks, too: the shortest that is almost as high as the highest
    return int(peaks[r[peaks] >= 0.85 * r[peaks].max()][0])
