"""The adjacency matrix of a net as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshnn.checks import as_weights
from meshnn.plots import style
from meshnn.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_adjacency", "scatter_edges"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MOST_CELLS = 400  # rows and columns; a screen has not many more dots for them


def draw_adjacency(ax: Axes, topology: Topology, weights: ArrayLike) -> None:
    """Draw the matrix A: row i, column j is the edge from neuron i to neuron j. White where there is no edge.

    Of more than 400 neurons several share a cell; it shows the strongest of their weights, and the title says so.

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
    per_cell = -(-topology.n_neurons // MOST_CELLS)
    cells = _cells(topology, w, per_cell)
    strongest = _end_of_scale(np.abs(w))
    image = ax.imshow(
        np.ma.masked_invalid(cells), cmap=style.diverging(), vmin=-strongest, vmax=strongest, interpolation="nearest"
    )
    t = topology
    groups = {"inputs": t.n_inputs, "bias": int(t.bias), "hidden": t.n_hidden, "outputs": t.n_outputs}
    _draw_groups(ax, groups, per_cell)
    beyond = bool((np.abs(w) > strongest).any())
    style.colour_bar(ax, image, extend="both" if beyond else "neither")
    shared = f": each cell the strongest of {per_cell} by {per_cell}" if per_cell > 1 else ""
    style.panel_title(ax, "Weights" + shared)


def _end_of_scale(sizes: FloatArray) -> float:
    """The largest weight, unless it is one of a few that would leave all others grey."""
    if sizes.size == 0:
        return 1.0
    most, usual = float(sizes.max()), float(np.quantile(sizes, 0.98))
    return (usual if most > 2 * usual > 0 else most) or 1.0


def _cells(topology: Topology, w: FloatArray, per_cell: int) -> FloatArray:
    """The weight of largest size in each cell, NaN where there is none; the matrix itself is never filled."""
    size = -(-topology.n_neurons // per_cell)
    at = (topology.src // per_cell) * size + topology.dst // per_cell
    cells = np.full(size * size, np.nan)
    order = np.argsort(np.abs(w), kind="stable")
    cells[at[order]] = w[order]  # the last one written stays: the strongest
    return cells.reshape(size, size)


def scatter_edges(ax: Axes, groups: dict[str, int], parts: Sequence[tuple[IntArray, str, str]]) -> None:
    """Edges (n, 2) as small squares in the places that they have in the matrix, in parts of a colour and a name each.

    `groups` says how many neurons of which kind there are, in order.
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
    """Lines between groups of neurons, and their names along both sides."""
    from scipy.optimize import isotonic_regression

    names = [name for name, count in groups.items() if count]
    edges = np.cumsum([0, *(groups[name] for name in names)]) / per_cell - 0.5
    for at in edges[1:-1]:
        ax.axhline(at, color=style.INK, lw=0.6)
        ax.axvline(at, color=style.INK, lw=0.6)
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(edges[-1], edges[0])
    # names in the middles of their groups, moved as little as it takes (in least squares) to stand apart
    apart = 0.075 * (edges[-1] - edges[0]) * np.arange(len(names))
    centres = isotonic_regression((edges[1:] + edges[:-1]) / 2 - apart).x + apart
    centres = np.clip(centres, edges[0], edges[-1])
    ax.set_xticks(centres, names, rotation=45, ha="left", rotation_mode="anchor")
    ax.set_yticks(centres, names)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    style.axis_names(ax, "to", "from")
    ax.tick_params(length=0, labelsize=style.SMALL, labelcolor=style.INK, pad=3)
    for spine in ax.spines.values():
        spine.set(color=style.INK, linewidth=0.6)
