"""Pictures of a fitted estimator: calls of `meshnn.plots`, which is imported when something is drawn."""

from __future__ import annotations

from html import escape
from typing import Any

from sklearn.utils.validation import check_is_fitted

__all__ = ["html", "plots_of"]


def plots_of(model: Any) -> Any:
    """Return the module `meshnn.plots`, for a model that is fitted."""
    check_is_fitted(model, "mesh_")
    from meshnn import plots

    return plots


def html(model: Any) -> str:
    """Return the graph of a fitted net and its sizes as HTML; of a model that is not fitted nothing."""
    if not hasattr(model, "mesh_"):
        return ""
    picture = plots_of(model).graph_svg(model)
    return f"<figure>{picture}<figcaption>{escape(repr(model.mesh_))}</figcaption></figure>"
