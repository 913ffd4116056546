"""A model on one page: its graph, its weights, its training and what it decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshnn.arguments import known
from meshnn.errors import MeshError
from meshnn.plots import style
from meshnn.plots.curves import Columns, draw_history
from meshnn.plots.graph import dead_mask, draw_graph
from meshnn.plots.matrix import draw_adjacency
from meshnn.plots.regions import Regions, draw_regions
from meshnn.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PANELS", "plot_model"]

#: What `plot_model` can draw.
PANELS = ("all", "graph", "adjacency", "loss", "regions")

_SIZES = {"graph": (8.0, 6.0), "adjacency": (6.4, 5.6), "loss": (7.0, 4.2), "regions": (6.6, 5.4)}


def plot_model(
    *,
    topology: Topology,
    weights: ArrayLike,
    ticks: int,
    dead: ArrayLike | None = None,
    history: Columns | None = None,
    chosen: int | None = None,
    regions: Regions | None = None,
    title: str,
    feature_names: Sequence[object] | None = None,
    output_names: Sequence[object] | None = None,
    what: str = "all",
) -> Figure:
    """A figure of a model, with the panels that apply to it.

    Parameters
    ----------
    topology : Topology
    weights : array_like (n_edges,)
    ticks : int
    dead : array_like of bool (n_edges,), optional
        The dead edges; by default `topology.dead_edges(ticks)`.
    history : mapping, optional
        As for `draw_history`.
    chosen : int, optional
        The restart that was kept.
    regions : Regions, optional
        What to draw of the decisions, for a model of two features.
    title : str
        Written above, before the size of the model.
    feature_names, output_names : sequences, optional
    what : "all", "graph", "adjacency", "loss" or "regions"

    Examples
    --------
    >>> from meshnn import Topology
    >>> from meshnn.plots import plot_model
    >>> t = Topology.layered([2, 1])
    >>> figure = plot_model(topology=t, weights=[0.5, -1.0, 0.1], ticks=1, title="or.mesh")
    >>> figure.get_suptitle()
    'or.mesh: 2-0-1 + bias, 3 edges, 1 tick'
    """
    style.require_matplotlib()
    known("panel", what, PANELS)
    if what == "regions" and regions is None:
        raise MeshError("regions can only be drawn of a model with exactly two features")
    off = dead_mask(topology, ticks, dead)
    if regions is not None and regions.feature_names is None:
        regions = replace(regions, feature_names=feature_names)

    with style.clean_style():
        figure, axes = _arranged(what, history is not None, regions is not None)
        if "graph" in axes:
            names = {"feature_names": feature_names, "output_names": output_names}
            draw_graph(axes["graph"], topology, weights, ticks=ticks, dead=off, **names)
        if "adjacency" in axes:
            draw_adjacency(axes["adjacency"], topology, weights)
        if "loss" in axes:
            draw_history(axes["loss"], history or {}, chosen=chosen)
        if "regions" in axes and regions is not None:
            draw_regions(axes["regions"], **vars(regions))
        style.page_title(figure, _heading(title, topology, off, ticks))
        _settle(figure)
    return figure


def _arranged(what: str, history: bool, regions: bool) -> tuple[Figure, dict[str, Axes]]:
    """A figure and its axes by panel: the graph large on the left, the others beside and below it."""
    from matplotlib.figure import Figure

    if what != "all":
        figure = Figure(figsize=_SIZES[what], layout="constrained")
        return figure, {what: figure.add_subplot()}
    right: Any = [["adjacency"], ["regions"] if regions else ["loss"]][: 1 + (regions or history)]
    left: Any = [["graph"]] * 5 + [["loss"]] * (2 * (history and regions))
    figure = Figure(figsize=(13.5, 8.2) if len(right) > 1 else (13.0, 6.0), layout="constrained")
    return figure, figure.subplot_mosaic([[left, right]], width_ratios=[1.6, 1.0], gridspec_kw={"wspace": 0.04})


def _settle(figure: Figure) -> None:
    """Lay the figure out once and for all: matplotlib would again for every file, and move things by a hair."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")


def _heading(title: str, t: Topology, dead: NDArray[np.bool_], ticks: int) -> str:
    size = f"{t.n_inputs}-{t.n_hidden}-{t.n_outputs}{' + bias' if t.bias else ''}"
    live = t.n_edges - int(dead.sum())
    edges = f"{t.n_edges:,} edge{'' if t.n_edges == 1 else 's'}"
    if live < t.n_edges:
        edges = f"{live:,} of {edges} live"
    return f"{style.shorten(title, 60)}: {size}, {edges}, {ticks} tick{'' if ticks == 1 else 's'}"
