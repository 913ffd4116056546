"""The adjacency matrix of a net, and its changes in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from meshnn.arrays import FloatArray, IntArray
from meshnn.checks import as_weights
from meshnn.errors import MeshError
from meshnn.plots import style
from meshnn.plots.save import Picture, as_picture
from meshnn.topology import Topology
from meshnn.topology.lineage import Lineage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["animate_lineage", "draw_adjacency", "plot_lineage", "scatter_edges"]


def draw_adjacency(ax: Axes, topology: Topology, weights: ArrayLike) -> None:
    """Draw the matrix A: row i, column j is the edge from neuron i to neuron j; white means no edge.

    With more than 400 neurons, a cell shows the largest weight of several neurons, as stated in the title.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    topology : Topology
    weights : array_like (n_edges,)

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from meshnn import Topology
    >>> from meshnn.plots import draw_adjacency
    >>> ax = Figure().subplots()
    >>> draw_adjacency(ax, Topology.layered([1, 1], bias=False), [0.5])
    >>> ax.images[0].get_array().tolist()
    [[None, 0.5], [None, None]]
    """
    style.require_matplotlib()
    w = as_weights(weights, topology.n_edges, np.dtype(np.float64))
    per_cell = -(-topology.n_neurons // 400)
    cells = _cells(topology, w, per_cell)
    strongest = _end_of_scale(np.abs(w))
    shown = np.ma.masked_invalid(cells)
    image = ax.imshow(shown, cmap=style.diverging(), vmin=-strongest, vmax=strongest, interpolation="nearest")
    t = topology
    groups = {"inputs": t.n_inputs, "bias": int(t.bias), "hidden": t.n_hidden, "outputs": t.n_outputs}
    _draw_groups(ax, groups, per_cell)
    style.colour_bar(ax, image, extend="both" if (np.abs(w) > strongest).any() else "neither")
    shared = f": each cell the strongest of {per_cell} by {per_cell}" if per_cell > 1 else ""
    style.panel_title(ax, "Weights" + shared)


def _end_of_scale(sizes: FloatArray) -> float:
    """Return the largest absolute weight, or the 98% quantile if a few large weights would make all others grey."""
    if sizes.size == 0:
        return 1.0
    most, common = float(sizes.max()), float(np.quantile(sizes, 0.98))
    return (common if most > 2 * common > 0 else most) or 1.0


def _cells(topology: Topology, w: FloatArray, per_cell: int) -> FloatArray:
    """Return the weight with the largest absolute value per cell, NaN without an edge; no dense matrix is made."""
    size = -(-topology.n_neurons // per_cell)
    at = (topology.src // per_cell) * size + topology.dst // per_cell
    cells = np.full(size * size, np.nan)
    order = np.argsort(np.abs(w), kind="stable")
    cells[at[order]] = w[order]  # the last one written, the largest, remains
    return cells.reshape(size, size)


def scatter_edges(ax: Axes, groups: dict[str, int], parts: Sequence[tuple[IntArray, str, str]]) -> None:
    """Draw edges (n, 2) as small squares of the matrix; each part has a colour and a name.

    `groups` contains the number of neurons of each kind, in order.
    """
    area = float(np.clip(40000 / sum(groups.values()) ** 2, 0.4, 60))
    for edges, colour, name in parts:
        ax.scatter(edges[:, 1], edges[:, 0], s=area, c=colour, marker="s", lw=0, label=name or None)
    _draw_groups(ax, groups)
    ax.set_aspect("equal")
    if any(name for *_, name in parts):
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.03), "ncols": len(parts)}
        ax.legend(markerscale=(24 / area) ** 0.5, **style.legend_options(**place))


def _draw_groups(ax: Axes, groups: dict[str, int], per_cell: int = 1) -> None:
    """Draw lines between groups of neurons, and their names along both sides."""
    from scipy.optimize import isotonic_regression

    names = [name for name, count in groups.items() if count]
    edges = np.cumsum([0, *(groups[name] for name in names)]) / per_cell - 0.5
    for at in edges[1:-1]:
        ax.axhline(at, color=style.INK, lw=0.6)
        ax.axvline(at, color=style.INK, lw=0.6)
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(edges[-1], edges[0])
    # names at the centre of their groups, moved apart (least squares) if they would overlap
    apart = 0.075 * (edges[-1] - edges[0]) * np.arange(len(names))
    centres = isotonic_regression((edges[1:] + edges[:-1]) / 2 - apart).x + apart
    centres = np.clip(centres, edges[0], edges[-1])
    ax.set_xticks(centres, names, rotation=45, ha="left", rotation_mode="anchor")
    ax.set_yticks(centres, names)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    style.axis_names(ax, "to", "from")
    ax.tick_params(length=0, labelsize=style.SMALL, labelcolor=style.INK, pad=3)
    ax.spines[:].set(color=style.INK, linewidth=0.6)


# -- changes of a graph ------------------------------------------------------------------------------------------


def plot_lineage(lineage: Lineage | None, title: str = "") -> Figure:
    """Draw the first and the last matrix of a graph that changed in training, and the number of edges by epoch.

    Examples
    --------
    >>> from meshnn import Topology
    >>> from meshnn.plots import plot_lineage
    >>> from meshnn.topology.lineage import Lineage
    >>> len(plot_lineage(Lineage(Topology.mesh(2, 3, 1)), "net").axes)
    3
    """
    style.require_matplotlib()
    lineage = _given(lineage)
    first, last = lineage.first, lineage.last()
    with style.clean_style():
        figure = style.new_figure(13.5, 5.0)
        before, after, time = figure.subplots(1, 3)
        groups = _groups(lineage)
        scatter_edges(before, groups, [(_split(first, first, groups)[0], style.POSITIVE, "")])
        style.panel_title(before, f"Before: {len(first):,} edges")
        stayed, came = _split(last, first, groups)
        parts = [(stayed, style.POSITIVE, f"from the beginning: {len(stayed):,}")]
        if len(came):
            parts.append((came, style.NEGATIVE, f"grown: {len(came):,}"))
        scatter_edges(after, groups, parts)
        style.panel_title(after, f"After: {len(last):,} edges")
        _draw_counts(time, lineage)
        style.page_title(figure, title)
    return figure


def animate_lineage(lineage: Lineage | None, title: str = "") -> list[Picture]:
    """Return images (height, width, 3) of the matrix after every edit, at most 60 of them; see `save_frames`."""
    style.require_matplotlib()
    from matplotlib.figure import Figure as Canvas

    lineage = _given(lineage)
    graphs, epochs, groups = lineage.graphs(), [0, *(step.epoch for step in lineage.steps)], _groups(lineage)
    chosen = np.unique(np.linspace(0, len(graphs) - 1, min(60, len(graphs))).round().astype(int))
    pictures = []
    with style.clean_style():
        figure = Canvas(figsize=(4.4, 4.7), dpi=90)
        for k in chosen.tolist():
            figure.clear()
            ax = figure.add_axes((0.16, 0.03, 0.8, 0.74))
            stayed, came = _split(graphs[k], graphs[max(k - 1, 0)], groups)
            scatter_edges(ax, groups, [(stayed, style.POSITIVE, ""), (came, style.NEGATIVE, "")])
            text = f"{title}{': ' if title else ''}epoch {epochs[k]}, {len(graphs[k]):,} edges"
            figure.text(0.02, 0.985, text, va="top", fontsize=9, color=style.INK, parse_math=False)
            pictures.append(as_picture(figure))
    return pictures


def _given(lineage: Lineage | None) -> Lineage:
    if lineage is None:
        raise MeshError("the graph of this net did not change in training; fit it with a structure, or --edges")
    return lineage


def _groups(lineage: Lineage) -> dict[str, int]:
    """Return the number of neurons that ever existed, per kind."""
    return {"inputs": lineage.n_clamped, "hidden": lineage.born, "outputs": lineage.n_outputs}


def _split(edges: IntArray, others: IntArray, groups: dict[str, int]) -> tuple[IntArray, IntArray]:
    """Return rows and columns of the edges that are in `others`, and of those that are not."""
    last = sum(groups.values()) - groups["outputs"] - 1
    # a lineage numbers outputs -1, -2, ..., because the number of hidden neurons changes
    cells, known = (np.where(pairs < 0, last - pairs, pairs) for pairs in (edges, others))
    size = np.array([sum(groups.values()), 1])
    there = np.isin(cells @ size, known @ size)
    return cells[there], cells[~there]


def _draw_counts(ax: Axes, lineage: Lineage) -> None:
    style.quiet_axes(ax)
    points = np.array(lineage.edges_over_time())
    ax.step(*points.T, where="post", color=style.POSITIVE, lw=1.6)
    grown = [len(step.added) > 0 for step in lineage.steps]
    if any(grown):
        ax.plot(*points[1:][grown].T, ls="", marker="o", ms=3, color=style.NEGATIVE, label="edges added")
        ax.legend(**style.legend_options(loc="best"))
    ax.set_ylim(bottom=0)
    style.axis_names(ax, "epoch", "")
    style.panel_title(ax, f"Edges over time: {len(lineage.steps)} edits")
