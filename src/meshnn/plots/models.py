"""Plots of models: fitted estimators, or a `Mesh`. They draw into given axes, or into those of a new figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.plots import style
from meshnn.plots.curves import draw_history
from meshnn.plots.graph import draw_graph, svg_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["feature_names", "graph_svg", "mesh_of", "plot_graph", "plot_history", "plot_importances"]


def plot_history(model: Any, ax: Axes | None = None) -> Axes:
    """Draw the training of a fitted estimator: loss, validation loss and accuracy by epoch.

    Parameters
    ----------
    model : fitted estimator
        It has a `history_`.
    ax : matplotlib.axes.Axes, optional
        By default those of a new figure.

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
        By default those of a new figure.

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
    mesh = mesh_of(model)
    ax = _axes(ax, (8.0, 6.0))
    names = {"feature_names": feature_names(model), "output_names": _output_names(model)}
    draw_graph(ax, mesh.topology, mesh.weights, ticks=mesh.ticks, dead=mesh.dead_edges(), **names)
    return ax


def plot_importances(model: Any, ax: Axes | None = None, most: int = 20) -> Axes:
    """Draw the importances of the features of a fitted estimator as bars, the largest on top.

    Parameters
    ----------
    model : fitted estimator
        It has `feature_importances_`.
    ax : matplotlib.axes.Axes, optional
        By default those of a new figure.
    most : int
        Only this many features are drawn, those with the largest importances.

    Returns
    -------
    matplotlib.axes.Axes
    """
    shares = np.asarray(_fitted(model, "feature_importances_"), np.float64)
    names = feature_names(model)
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

    Of more than `most_edges` edges only the strongest are drawn.

    Examples
    --------
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.plots import graph_svg
    >>> graph_svg(Mesh(Topology.layered([2, 1]))).count("<circle")
    4
    """
    mesh = mesh_of(model)
    return svg_of(mesh.topology, mesh.weights, mesh.dead_edges(), width, most_edges)


def feature_names(model: Any) -> list[str] | None:
    """Return the names of the inputs of a model's net, if they are known."""
    n_inputs = mesh_of(model).topology.n_inputs
    for names in (
        getattr(getattr(model, "preprocessing_", None), "feature_names", None),
        getattr(getattr(model, "features_", None), "names", None),
    ):
        if names is not None and len(names) == n_inputs:
            return [str(name) for name in names]
    return None


def _output_names(model: Any) -> list[str] | None:
    """Return the names of the outputs of a model's net, if they are known."""
    n_outputs = mesh_of(model).topology.n_outputs
    names = getattr(model, "classes_", [getattr(model, "target_", None)])
    if not isinstance(names, (list, np.ndarray)) or len(names) != n_outputs or names[0] is None:
        return None
    return [str(name) for name in names]


def _fitted(model: Any, name: str) -> Any:
    if not hasattr(model, name):
        raise MeshError(f"this {type(model).__name__} has no {name}: it is not fitted, or has none of its kind")
    return getattr(model, name)


def mesh_of(model: Any) -> Mesh:
    """Return the mesh of a fitted model, or the mesh itself."""
    return model if isinstance(model, Mesh) else _fitted(model, "mesh_")


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the axes; if there are none those of a new figure, of pyplot, so that a notebook shows it."""
    style.require_matplotlib()
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")[1]
