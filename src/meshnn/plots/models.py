"""Plots of a fitted estimator or a `Mesh`: single panels, or all panels on one figure."""

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
from meshnn.plots.graph import draw_graph, svg_of
from meshnn.plots.matrix import draw_adjacency
from meshnn.plots.regions import draw_regions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PANELS", "graph_svg", "plot_graph", "plot_history", "plot_importances", "plot_model"]

#: Values of the parameter `what` of `plot_model`.
PANELS = ("all", "graph", "adjacency", "loss", "regions")


def plot_history(model: Any, ax: Axes | None = None) -> Axes:
    """Draw the training of a fitted estimator: loss, validation loss and accuracy by epoch.

    Parameters
    ----------
    model : fitted estimator
        With the attribute `history_`.
    ax : matplotlib.axes.Axes, optional
        By default of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from meshnn import MeshRegressor
    >>> from meshnn.plots import plot_history
    >>> plot_history(MeshRegressor(max_epochs=3).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])).get_ylabel()
    'loss'
    """
    history = _fitted(model, "history_")
    ax = _axes(ax, (7.0, 4.2))
    draw_history(ax, history.to_dict(), chosen=getattr(model, "best_restart_", None))
    return ax


def plot_graph(model: Any, ax: Axes | None = None) -> Axes:
    """Draw the graph of a fitted estimator or of a `Mesh`, with the names of its features and classes.

    Parameters
    ----------
    model : fitted estimator or Mesh
    ax : matplotlib.axes.Axes, optional
        By default of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.plots import plot_graph
    >>> plot_graph(Mesh(Topology.layered([2, 1]))).get_title(loc="left")
    'Graph'
    """
    mesh = _mesh_of(model)
    ax = _axes(ax, (8.0, 6.0))
    names = {"feature_names": _feature_names(model), "output_names": _output_names(model)}
    draw_graph(ax, mesh.topology, mesh.weights, ticks=mesh.ticks, dead=mesh.dead_edges(), **names)
    return ax


def plot_importances(model: Any, ax: Axes | None = None, most: int = 20) -> Axes:
    """Draw the importances of the features of a fitted estimator as bars, the largest on top.

    Parameters
    ----------
    model : fitted estimator
        With the attribute `feature_importances_`.
    ax : matplotlib.axes.Axes, optional
        By default of a new figure.
    most : int
        Maximum number of features; those with the largest importances are drawn.

    Returns
    -------
    matplotlib.axes.Axes
    """
    shares = np.asarray(_fitted(model, "feature_importances_"), np.float64)
    names = _feature_names(model)
    if names is None or len(names) != len(shares):
        names = [f"feature {k}" for k in range(len(shares))]
    best = np.argsort(-shares, kind="stable")[:most]
    ax = _axes(ax, (6.0, 0.8 + 0.26 * len(best)))
    style.quiet_axes(ax)
    places = np.arange(len(best))[::-1]
    ax.barh(places, shares[best], color=style.POSITIVE, height=0.7)
    ax.set_yticks(places, [style.shorten(names[k], 30) for k in best.tolist()], parse_math=False)
    style.axis_names(ax, "importance", "")
    left_out = f": {len(best)} of {len(shares):,} features" if len(best) < len(shares) else ""
    style.panel_title(ax, "Importances" + left_out)
    return ax


def graph_svg(model: Any, width: int = 480, most_edges: int = 400) -> str:
    """Return the graph of a fitted estimator or of a `Mesh` as an SVG, for notebooks; matplotlib is not needed.

    At most `most_edges` edges are drawn, those with the largest weights.

    Examples
    --------
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.plots import graph_svg
    >>> graph_svg(Mesh(Topology.layered([2, 1]))).count("<circle")
    4
    """
    mesh = _mesh_of(model)
    return svg_of(mesh.topology, mesh.weights, mesh.dead_edges(), width, most_edges)


def _feature_names(model: Any) -> list[str] | None:
    """Return the names of the inputs of a model, if they are known."""
    n_inputs = _mesh_of(model).topology.n_inputs
    for names in (
        getattr(getattr(model, "preprocessing_", None), "feature_names", None),
        getattr(getattr(model, "features_", None), "names", None),
    ):
        if names is not None and len(names) == n_inputs:
            return [str(name) for name in names]
    return None


def _output_names(model: Any) -> list[str] | None:
    """Return the names of the outputs of a model, if they are known."""
    n_outputs = _mesh_of(model).topology.n_outputs
    names = getattr(model, "classes_", [getattr(model, "target_", None)])
    if not isinstance(names, (list, np.ndarray)) or len(names) != n_outputs or names[0] is None:
        return None
    return [str(name) for name in names]


def _fitted(model: Any, name: str) -> Any:
    if not hasattr(model, name):
        raise MeshError(f"this {type(model).__name__} has no {name}; fit it first, if this kind of model has it")
    return getattr(model, name)


def _mesh_of(model: Any) -> Mesh:
    """Return the mesh of a fitted model, or the mesh itself."""
    return model if isinstance(model, Mesh) else _fitted(model, "mesh_")


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the axes, by default those of a new figure of pyplot, which a notebook displays."""
    style.require_matplotlib()
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")[1]


# -- whole figures -----------------------------------------------------------------------------------------------


def plot_model(
    model: Any, *, title: str = "", what: str = "all", points: ArrayLike | None = None, labels: ArrayLike | None = None
) -> Figure:
    """Return a figure of a model, with the panels that apply to it.

    Parameters
    ----------
    model : fitted estimator or Mesh
    title : str
        Title of the figure, followed by the size of the model.
    what : "all", "graph", "adjacency", "loss" or "regions"
    points : array_like (p, 2), optional
        Samples to draw over the decision regions of a model with two features.
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
    mesh = _mesh_of(model)
    steps = hasattr(model, "reading_") or hasattr(model, "learn_one")  # models of sequences have no decision regions
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
    """Return a figure and its axes by panel; the graph is large on the left."""
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
            classes=classes, feature_names=_feature_names(model), points=points, labels=labels,
        )  # fmt: skip


def _size(mesh: Mesh) -> str:
    t, ticks = mesh.topology, mesh.ticks
    size = f"{t.n_inputs}-{t.n_hidden}-{t.n_outputs}{' + bias' if t.bias else ''}"
    dead, edges = int(mesh.dead_edges().sum()), style.counted(t.n_edges, "edge")
    live = f"{t.n_edges - dead:,} of {edges} live" if dead else edges
    return f"{size}, {live}, {style.counted(ticks, 'tick')}"
