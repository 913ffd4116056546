"""What the figures share: a canvas that is saved at the end, labels, lines with intervals, a film."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshnn.paper.experiment import Mean
from meshnn.plots import draw_regions, save_figure, style
from meshnn.plots.save import Picture, as_picture

Bounds = tuple[float, float, float, float]


@contextmanager
def canvas(path: Path, size: tuple[float, float], rows: int = 1, columns: int = 1) -> Iterator[Any]:
    """Yield an array of axes (rows, columns), and write the figure to a file at the end."""
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


def film(
    frames: Iterable[tuple[Callable[[NDArray[np.float64]], ArrayLike], str]],
    bounds: Bounds,
    points: ArrayLike,
    labels: ArrayLike,
) -> list[Picture]:
    """Return pictures of decision regions, of functions as for `draw_regions` with titles."""
    from matplotlib.figure import Figure

    pictures = []
    with style.clean_style():
        figure = Figure(figsize=(4.6, 4.2), dpi=80)
        for decide, title in frames:
            figure.clear()
            ax = figure.add_axes((0.02, 0.02, 0.86, 0.9))
            ax.set_axis_off()
            draw_regions(ax, decide, bounds, points=points, labels=labels)
            style.panel_title(ax, title)
            pictures.append(as_picture(figure))
    return pictures
