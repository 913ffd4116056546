"""Shared functions of the figures: a canvas that is saved, labels, lines with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from meshnn.paper.experiment import Mean
from meshnn.plots import save_figure, style


@contextmanager
def canvas(path: Path, size: tuple[float, float], rows: int = 1, columns: int = 1) -> Iterator[Any]:
    """Yield an array of axes (rows, columns), and write the figure to a file after the block."""
    from matplotlib.figure import Figure

    with style.clean_style():
        figure = Figure(figsize=size, layout="constrained")
        yield figure.subplots(rows, columns, squeeze=False)
        save_figure(figure, path, dpi=110)


def label(ax: Any, title: str, across: str, up: str, **legend: Any) -> None:
    """Set the title and the names of the axes, and draw a legend."""
    style.panel_title(ax, title)
    style.axis_names(ax, across, up)
    ax.legend(**style.legend_options(**legend))


def draw_means(ax: Any, x: Sequence[float], means: Sequence[Mean], **look: Any) -> None:
    """Draw a line through proportions with their intervals, cut off at 0 and 1."""
    values, halves = np.array([m.value for m in means]), np.nan_to_num([m.half_width for m in means])
    ends = [np.minimum(halves, values), np.minimum(halves, 1 - values)]
    ax.errorbar(x, values, yerr=ends, **look)
