"""What the figures share: a canvas that is saved when it is done, axes with labels, lines with intervals, a film."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshnn.paper.tables import Mean
from meshnn.plots import save_figure, style

__all__ = ["Bounds", "canvas", "draw_means", "film", "label"]

Bounds = tuple[float, float, float, float]
#: Cells along each side of a film, its inches and dots in an inch.
RESOLUTION, SIZE, DPI = 120, 4.0, 80


@contextmanager
def canvas(path: Path, size: tuple[float, float], rows: int = 1, columns: int = 1) -> Iterator[Any]:
    """An array of axes (rows, columns), written to a file at the end."""
    from matplotlib.figure import Figure

    with style.clean_style():
        figure = Figure(figsize=size, layout="constrained")
        yield figure.subplots(rows, columns, squeeze=False)
        save_figure(figure, path, dpi=110)


def label(ax: Any, title: str, across: str, up: str, **legend: Any) -> None:
    """Title, names of the axes, and a legend."""
    style.panel_title(ax, title)
    ax.set_xlabel(across, fontsize=style.SMALL, color=style.INK)
    ax.set_ylabel(up, fontsize=style.SMALL, color=style.INK)
    ax.legend(**style.legend_options(**legend))


def draw_means(ax: Any, x: Sequence[float], means: Sequence[Mean], **look: Any) -> None:
    """A line through shares with their intervals; no share is below 0 or above 1."""
    values, halves = np.array([m.value for m in means]), np.nan_to_num([m.half_width for m in means])
    ends = [np.minimum(halves, values), np.minimum(halves, 1 - values)]
    ax.errorbar(x, values, yerr=ends, **look)


def film(
    frames: Sequence[tuple[Callable[[NDArray[np.float64]], ArrayLike], str]],
    bounds: Bounds,
    points: ArrayLike,
    labels: ArrayLike,
) -> list[NDArray[np.uint8]]:
    """Pictures (height, width, 3) of what each net decides, with the points on top.

    Parameters
    ----------
    frames : sequence of (decide, title)
        `decide` gives probabilities (m, k) of m pairs of features.
    bounds : (left, right, bottom, top)
    points, labels : array_like (p, 2), (p,)
        Labels are numbers from 0.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure

    xy, y = np.asarray(points, np.float64), np.asarray(labels, np.int64)
    left, right, bottom, top = bounds
    middles = (np.arange(RESOLUTION) + 0.5) / RESOLUTION
    grid = np.stack(np.meshgrid(left + (right - left) * middles, bottom + (top - bottom) * middles), axis=-1)
    palette = np.array([to_rgb(colour) for colour in style.CLASSES])
    with style.clean_style():
        figure = Figure(figsize=(SIZE, SIZE + 0.3), dpi=DPI)
        drawn: Any = FigureCanvasAgg(figure)
        ax = figure.add_axes((0.02, 0.02, 0.96, 0.96 * SIZE / (SIZE + 0.3)))
        ax.set_axis_off()
        image = ax.imshow(np.ones((RESOLUTION, RESOLUTION, 3)), extent=bounds, origin="lower", aspect="auto")
        ax.scatter(xy[:, 0], xy[:, 1], s=9, c=0.75 * palette[y % len(palette)], edgecolors="white", linewidths=0.3)
        ax.set_xlim(left, right)
        ax.set_ylim(bottom, top)
        title = figure.text(0.02, 0.985, "", ha="left", va="top", fontsize=style.TEXT, color=style.INK)
        pictures = []
        for decide, text in frames:
            image.set_data(_colours(np.asarray(decide(grid.reshape(-1, 2)), np.float64), palette))
            title.set_text(text)
            drawn.draw()
            pictures.append(np.asarray(drawn.buffer_rgba())[:, :, :3].copy())
    return pictures


def _colours(answer: NDArray[np.float64], palette: NDArray[np.float64]) -> NDArray[np.float64]:
    k = answer.shape[1]
    answer = np.nan_to_num(answer, nan=1 / k)
    sure = np.clip((answer.max(axis=1) - 1 / k) / (1 - 1 / k), 0, 1)
    # few steps of depth: neighbours of the same colour make a GIF small
    depth = (0.15 + 0.45 * np.round(4 * sure) / 4)[:, None]
    picture = 1 - depth * (1 - palette[answer.argmax(axis=1) % len(palette)])
    return np.asarray(picture.reshape(RESOLUTION, RESOLUTION, 3))
