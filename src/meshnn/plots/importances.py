"""Importances of features as bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from meshnn.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_importances"]


def draw_importances(
    ax: Axes, importances: ArrayLike, *, names: Sequence[object] | None = None, most: int = 20
) -> None:
    """Draw the largest importances as bars, the largest on top.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    importances : array_like (n_features,)
    names : sequence, optional
        Names of the features; by default their numbers.
    most : int
        Maximum number of bars.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from meshnn.plots import draw_importances
    >>> ax = Figure().subplots()
    >>> draw_importances(ax, [0.2, 0.7, 0.1], names=["a", "b", "c"], most=2)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['a', 'b']
    """
    style.require_matplotlib()
    values = np.asarray(importances, np.float64)
    labels = style.as_names("names", names, len(values)) or [str(k) for k in range(len(values))]
    shown = np.argsort(values, kind="stable")[-most:]
    ax.barh(np.arange(len(shown)), values[shown], color=style.POSITIVE)
    ax.set_yticks(np.arange(len(shown)), [labels[k] for k in shown], fontsize=style.SMALL)
    style.quiet_axes(ax)
    cut = f": largest {len(shown)} of {len(values):,}" if len(shown) < len(values) else ""
    style.panel_title(ax, "Importances" + cut)
