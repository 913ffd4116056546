"""A model on one page: its graph, its weights, its training and its decision regions."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from meshnn.arguments import known
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.plots import style
from meshnn.plots.curves import draw_history
from meshnn.plots.matrix import draw_adjacency
from meshnn.plots.models import feature_names, mesh_of, plot_graph
from meshnn.plots.regions import draw_regions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PANELS", "plot_model"]

#: Values of `what` of `plot_model`.
PANELS = ("all", "graph", "adjacency", "loss", "regions")


def plot_model(
    model: Any, *, title: str = "", what: str = "all", points: ArrayLike | None = None, labels: ArrayLike | None = None
) -> Figure:
    """Return a figure of a model, with the panels that apply to it.

    Parameters
    ----------
    model : fitted estimator or Mesh
    title : str
        Above the figure, before the size of the model.
    what : "all", "graph", "adjacency", "loss" or "regions"
    points : array_like (p, 2), optional
        Samples that are drawn over the decision regions, of a model with two features.
    labels : array_like (p,), optional
        Classes or values of the points.

    Examples
    --------
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.plots import plot_model
    >>> plot_model(Mesh(Topology.layered([2, 1]), 1), title="or.mesh").get_suptitle()
    'or.mesh: 2-0-1 + bias, 3 edges, 1 tick'
    """
    style.require_matplotlib()
    known("panel", what, PANELS)
    mesh = mesh_of(model)
    steps = hasattr(model, "reading_") or hasattr(model, "learn_one")  # a step of a sequence has no regions
    decides = mesh.topology.n_inputs == getattr(model, "n_features_in_", 0) == 2 and not steps
    if not decides and (what == "regions" or points is not None):
        raise MeshError("decision regions need a fitted model with exactly two features")
    history = getattr(model, "history_", None) or None
    with style.clean_style():
        figure, axes = _arranged(what, history is not None, decides)
        if "graph" in axes:
            plot_graph(model, axes["graph"])
        if "adjacency" in axes:
            draw_adjacency(axes["adjacency"], mesh.topology, mesh.weights)
        if "loss" in axes:
            chosen = getattr(model, "best_restart_", None)
            draw_history(axes["loss"], {} if history is None else history.to_dict(), chosen=chosen)
        if "regions" in axes:
            _draw_decisions(axes["regions"], model, points, labels)
        style.page_title(figure, f"{style.shorten(title, 60)}: {_size(mesh)}")
        style.settle(figure)
    return figure


def _arranged(what: str, history: bool, regions: bool) -> tuple[Figure, dict[str, Axes]]:
    """Return a figure and its axes by panel: the graph is large on the left, the others are beside and below it."""
    if what != "all":
        sizes = {"graph": (8.0, 6.0), "adjacency": (6.4, 5.6), "loss": (7.0, 4.2), "regions": (6.6, 5.4)}
        figure = style.new_figure(*sizes[what])
        return figure, {what: figure.add_subplot()}
    right: Any = [["adjacency"], ["regions"] if regions else ["loss"]][: 1 + (regions or history)]
    left: Any = [["graph"]] * 5 + [["loss"]] * (2 * (history and regions))
    figure = style.new_figure(13.5, 8.2 if len(right) > 1 else 6.0)
    return figure, figure.subplot_mosaic([[left, right]], width_ratios=[1.6, 1.0], gridspec_kw={"wspace": 0.04})


def _draw_decisions(ax: Axes, model: Any, points: ArrayLike | None, labels: ArrayLike | None) -> None:
    """Draw the decision regions around the training data and the points."""
    scaling = model.preprocessing_.scaling
    low, high = (scaling.x_mean + side * scaling.x_scale for side in (-2.2, 2.2))
    if points is not None:
        xy = np.asarray(points, np.float64)
        margin = 0.05 * np.ptp(xy, axis=0)
        low, high = np.minimum(low, xy.min(axis=0) - margin), np.maximum(high, xy.max(axis=0) + margin)
    classes = [str(name) for name in model.classes_] if hasattr(model, "classes_") else None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        draw_regions(
            ax, model.predict if classes is None else model.predict_proba, (low[0], high[0], low[1], high[1]),
            classes=classes, feature_names=feature_names(model), points=points, labels=labels,
        )  # fmt: skip


def _size(mesh: Mesh) -> str:
    t, ticks = mesh.topology, mesh.ticks
    size = f"{t.n_inputs}-{t.n_hidden}-{t.n_outputs}{' + bias' if t.bias else ''}"
    dead, edges = int(mesh.dead_edges().sum()), style.counted(t.n_edges, "edge")
    live = f"{t.n_edges - dead:,} of {edges} live" if dead else edges
    return f"{size}, {live}, {style.counted(ticks, 'tick')}"
