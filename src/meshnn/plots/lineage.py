"""How a graph changed: its matrix before and after, its edges over time, and a film of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import MeshError
from meshnn.plots import style
from meshnn.plots.animation import Picture, as_picture
from meshnn.plots.matrix import scatter_edges
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

    lineage = _given(lineage)
    first, last = lineage.first, lineage.last()
    with style.clean_style():
        figure = Canvas(figsize=(13.5, 5.0), layout="constrained")
        before, after, time = figure.subplots(1, 3)
        groups = _groups(lineage)
        scatter_edges(before, groups, [(_rows(first, groups), style.POSITIVE, "")])
        style.panel_title(before, f"Before: {len(first):,} edges")
        stayed, came = _split(last, first, groups)
        parts = [(stayed, style.POSITIVE, f"from the beginning: {len(stayed):,}")]
        if len(came):
            parts.append((came, style.NEGATIVE, f"grown: {len(came):,}"))
        scatter_edges(after, groups, parts)
        style.panel_title(after, f"After: {len(last):,} edges")
        _draw_time(time, lineage)
        style.page_title(figure, title)
    return figure


def animate_lineage(lineage: Lineage | None, title: str = "", size: float = 4.4, dpi: int = 90) -> list[Picture]:
    """Pictures (height, width, 3) of the matrix after every edit, at most 60 of them; see `save_frames`."""
    style.require_matplotlib()
    from matplotlib.figure import Figure as Canvas

    lineage = _given(lineage)
    graphs, epochs, groups = lineage.graphs(), [0, *(step.epoch for step in lineage.steps)], _groups(lineage)
    chosen = np.unique(np.linspace(0, len(graphs) - 1, min(FRAMES, len(graphs))).round().astype(int))
    pictures = []
    with style.clean_style():
        figure = Canvas(figsize=(size, size + 0.3), dpi=dpi)
        for k in chosen.tolist():
            figure.clear()
            ax = figure.add_axes((0.16, 0.03, 0.8, 0.74))
            stayed, came = _split(graphs[k], graphs[max(k - 1, 0)], groups)
            scatter_edges(ax, groups, [(stayed, style.POSITIVE, ""), (came, style.NEGATIVE, "")])
            text = f"{title}{': ' if title else ''}epoch {epochs[k]}, {len(graphs[k]):,} edges"
            figure.text(0.02, 0.985, text, va="top", fontsize=style.TEXT, color=style.INK, parse_math=False)
            pictures.append(as_picture(figure))
    return pictures


def _given(lineage: Lineage | None) -> Lineage:
    if lineage is None:
        raise MeshError("the graph of this net did not change in training; fit it with a structure, or --edges")
    return lineage


def _groups(lineage: Lineage) -> dict[str, int]:
    """All neurons that ever were, by kind."""
    return {"inputs": lineage.n_clamped, "hidden": lineage.born, "outputs": lineage.n_outputs}


def _rows(edges: IntArray, groups: dict[str, int]) -> IntArray:
    """Their places in the matrix: outputs are numbered -1, -2, ... since hidden neurons come and go before them."""
    return np.where(edges < 0, groups["inputs"] + groups["hidden"] - 1 - edges, edges)


def _split(edges: IntArray, others: IntArray, groups: dict[str, int]) -> tuple[IntArray, IntArray]:
    """The places of edges that are among others, and of those that are not."""
    there = {tuple(pair) for pair in others.tolist()}
    known = np.array([tuple(pair) in there for pair in edges.tolist()], dtype=np.bool_)
    return _rows(edges[known], groups), _rows(edges[~known], groups)


def _draw_time(ax: Axes, lineage: Lineage) -> None:
    style.quiet_axes(ax)
    points = np.array(lineage.edges_over_time())
    ax.step(*points.T, where="post", color=style.POSITIVE, lw=1.6)
    swapped = [len(step.added) > 0 for step in lineage.steps]
    if any(swapped):
        x, y = points[1:][swapped].T
        ax.plot(x, y, ls="", marker="o", ms=3, color=style.NEGATIVE, label="edges came")
        ax.legend(**style.legend_options(loc="best"))
    ax.set_ylim(bottom=0)
    style.axis_names(ax, "epoch", "")
    style.panel_title(ax, f"Edges over time: {len(lineage.steps)} edits")
