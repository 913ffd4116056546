"""Pictures of a fitted estimator: thin calls of `meshnn.plots`, which is imported when something is drawn."""

from __future__ import annotations

from html import escape
from typing import Any

from sklearn.utils.validation import check_is_fitted

from meshnn.errors import MeshError

__all__ = ["graph", "history", "html", "importances"]


def _axes(model: Any, ax: Any) -> Any:
    """Return the axes, or new ones, for a model that is fitted."""
    check_is_fitted(model, "mesh_")
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots()[1]


def history(model: Any, ax: Any) -> Any:
    """Draw loss and accuracy by epoch; return the axes."""
    from meshnn.plots import draw_history

    ax = _axes(model, ax)
    names = ("epoch", "loss", "validation", "accuracy", "restart")
    draw_history(ax, {name: model.history_[name] for name in names}, chosen=model.best_restart_)
    return ax


def graph(model: Any, ax: Any) -> Any:
    """Draw the net; return the axes."""
    from meshnn.plots import draw_graph

    ax = _axes(model, ax)
    mesh, features = model.mesh_, model.preprocessing_.feature_names or None
    outputs = model.classes_.tolist() if hasattr(model, "classes_") else None
    draw_graph(
        ax, mesh.topology, mesh.weights, ticks=mesh.ticks, dead=mesh.dead_edges(), feature_names=features,
        output_names=outputs,
    )  # fmt: skip
    return ax


def importances(model: Any, ax: Any) -> Any:
    """Draw the importances of the columns as bars; return the axes."""
    from meshnn.plots import draw_importances

    ax = _axes(model, ax)
    if not hasattr(model, "feature_importances_"):
        raise MeshError("there are no feature_importances_ of this model: only `fit` on rows finds them")
    draw_importances(ax, model.feature_importances_, names=getattr(model, "feature_names_in_", None))
    return ax


def html(model: Any) -> str:
    """Return the graph of the net and its sizes as HTML."""
    from meshnn.plots import graph_svg

    picture = graph_svg(model.mesh_.topology, model.mesh_.weights)
    return f"<figure>{picture}<figcaption>{escape(repr(model.mesh_))}</figcaption></figure>"
