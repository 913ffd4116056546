"""How a graph changed: its matrix before and after, its edges over time, and a film of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import MeshError
from meshnn.plots import style
from meshnn.topology.lineage import Lineage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["animate_lineage", "plot_lineage"]

IntArray = NDArray[np.int64]
#: Pictures of a film, at most.
FRAMES = 60


def plot_lineage(lineage: Lineage | None, title: str = "") -> Figure:
    """A figure: the first matrix, the last one with what came and went, and the number of edges over time.

    Examples
    --------
    >>> from meshnn import Topology
    >>> from meshnn.plots import plot_lineage
    >>> from meshnn.topology.lineage import Lineage
    >>> len(plot_lineage(Lineage(Topology.mesh(2, 3, 1)), "net").axes)
    3
    """
    style.require_matplotlib()
    from matplotlib.figure import Figure as Canvas
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    lineage = _given(lineage)
    first, last = lineage.first, lineage.last()
    with style.clean_style():
        figure = Canvas(figsize=(13.5, 5.0), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
        before, after, time = figure.subplots(1, 3)
        _draw_matrix(before, lineage, [(first, style.POSITIVE, "")])
        style.panel_title(before, f"Before: {len(first):,} edges")
        stayed, came = _split(last, first)
        parts = [(stayed, style.POSITIVE, f"from the beginning: {len(stayed):,}")]
        if len(came):
            parts.append((came, style.NEGATIVE, f"grown: {len(came):,}"))
        _draw_matrix(after, lineage, parts)
        style.panel_title(after, f"After: {len(last):,} edges")
        if len(came):
            options = style.legend_options(loc="upper center", ncols=2, markerscale=(24 / _dots(lineage)) ** 0.5)
            after.legend(bbox_to_anchor=(0.5, -0.06), **options)
        _draw_time(time, lineage)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=style.TEXT + 3, color=style.INK, parse_math=False)
    return figure


def animate_lineage(lineage: Lineage | None, title: str = "", size: float = 4.4, dpi: int = 90) -> list[Any]:
    """Pictures (height, width, 3) of the matrix after every edit, at most 60 of them; see `save_frames`."""
    style.require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    lineage = _given(lineage)
    graphs, epochs = lineage.graphs(), [0, *(step.epoch for step in lineage.steps)]
    chosen = np.unique(np.linspace(0, len(graphs) - 1, min(FRAMES, len(graphs))).round().astype(int))
    pictures = []
    with style.clean_style():
        figure = Canvas(figsize=(size, size + 0.3), dpi=dpi)
        canvas: Any = FigureCanvasAgg(figure)
        for k in chosen.tolist():
            figure.clear()
            ax = figure.add_axes((0.13, 0.03, 0.84, 0.78))
            before = graphs[k - 1] if k else graphs[0]
            stayed, came = _split(graphs[k], before)
            _draw_matrix(ax, lineage, [(stayed, style.POSITIVE, ""), (came, style.NEGATIVE, "")])
            text = f"{title}{': ' if title else ''}epoch {epochs[k]}, {len(graphs[k]):,} edges"
            figure.text(0.02, 0.985, text, va="top", fontsize=style.TEXT, color=style.INK, parse_math=False)
            canvas.draw()
            pictures.append(np.asarray(canvas.buffer_rgba())[:, :, :3].copy())
    return pictures


def _given(lineage: Lineage | None) -> Lineage:
    if lineage is None:
        raise MeshError("the graph of this net did not change in training; fit it with a structure, or --edges")
    return lineage


def _split(edges: IntArray, others: IntArray) -> tuple[IntArray, IntArray]:
    """Edges that are among others, and those that are not."""
    there = {tuple(pair) for pair in others.tolist()}
    known = np.array([tuple(pair) in there for pair in edges.tolist()], dtype=np.bool_)
    return edges[known], edges[~known]


def _dots(lineage: Lineage) -> float:
    """The area of an edge, in square points."""
    n = lineage.n_clamped + lineage.born + lineage.n_outputs
    return float(np.clip(24000 / n**2, 0.4, 60))


def _draw_matrix(ax: Axes, lineage: Lineage, parts: list[tuple[IntArray, str, str]]) -> None:
    n = lineage.n_clamped + lineage.born + lineage.n_outputs
    dots = _dots(lineage)
    for edges, colour, label in parts:
        rows = np.where(edges < 0, n - lineage.n_outputs - 1 - edges, edges)
        ax.scatter(rows[:, 1], rows[:, 0], s=dots, c=colour, marker="s", lw=0, label=label or None)
    borders = [0, lineage.n_clamped, lineage.n_clamped + lineage.born, n]
    names = ["inputs", "hidden", "outputs"]
    shown = [k for k in range(3) if borders[k + 1] > borders[k]]
    for border in borders[1:-1]:
        ax.axhline(border - 0.5, color=style.INK, lw=0.6)
        ax.axvline(border - 0.5, color=style.INK, lw=0.6)
    ax.set_xlim(-0.5, n - 0.5)
    ax.set_ylim(n - 0.5, -0.5)
    middles = [(borders[k] + borders[k + 1] - 1) / 2 for k in shown]
    ax.set_xticks(middles, [names[k] for k in shown])
    ax.set_yticks(middles, [names[k] for k in shown], rotation=90, va="center")
    ax.xaxis.tick_top()
    ax.tick_params(length=0, labelsize=style.SMALL, labelcolor=style.INK)
    ax.set_aspect("equal")


def _draw_time(ax: Axes, lineage: Lineage) -> None:
    style.quiet_axes(ax)
    epochs, counts = zip(*lineage.edges_over_time(), strict=True)
    ax.step(epochs, counts, where="post", color=style.POSITIVE, lw=1.6)
    after = lineage.edges_over_time()[1:]
    swapped = [point for step, point in zip(lineage.steps, after, strict=True) if len(step.added)]
    if swapped:
        x, y = zip(*swapped, strict=True)
        ax.plot(x, y, ls="", marker="o", ms=3, color=style.NEGATIVE, label="edges came")
        ax.legend(**style.legend_options(loc="best"))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("epoch", fontsize=style.SMALL, color=style.INK)
    style.panel_title(ax, f"Edges over time: {len(lineage.steps)} edits")
