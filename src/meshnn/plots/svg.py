"""The graph of a net as a small SVG, for notebooks; needs no matplotlib."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from meshnn.plots import style
from meshnn.plots.layout import place_neurons
from meshnn.topology import Topology

__all__ = ["graph_svg"]


def graph_svg(topology: Topology, weights: ArrayLike, height: int = 180, most_edges: int = 400) -> str:
    """Return the graph as SVG: inputs left, outputs right; blue edges have positive weights, orange ones negative.

    Of more than `most_edges` edges only the strongest are drawn.

    Examples
    --------
    >>> from meshnn import Topology
    >>> from meshnn.plots.svg import graph_svg
    >>> graph_svg(Topology.layered([2, 1]), [0.5, -1.0, 0.1]).count("<line")
    3
    """
    w = np.asarray(weights, np.float64)
    places = place_neurons(topology)
    points = np.round(places.xy * [height, -height] + [0, height], 1) + 10.0
    drawn = np.argsort(np.abs(w), kind="stable")[-most_edges:]
    widest = float(np.abs(w).max(initial=0.0)) or 1.0
    parts = []
    for k in drawn.tolist():
        (x1, y1), (x2, y2) = points[topology.src[k]], points[topology.dst[k]]
        colour, share = style.POSITIVE if w[k] > 0 else style.NEGATIVE, abs(w[k]) / widest
        look = f'stroke="{colour}" stroke-width="{0.3 + 2 * share:.2f}" opacity="{0.25 + 0.6 * share:.2f}"'
        parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" {look}/>')
    for (x, y), r in zip(points, places.radius * height, strict=True):
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{max(r, 1.5):.1f}" fill="{style.INK}"/>')
    wide, high = (points.max(axis=0) + 10).tolist()
    size = f'width="{wide:g}" height="{high:g}" viewBox="0 0 {wide:g} {high:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(parts)}</svg>'
