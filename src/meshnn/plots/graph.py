"""The graph of a net: neurons as circles, edges coloured by the sign of their weight; with matplotlib, or as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from meshnn.arrays import BoolArray, FloatArray, IntArray
from meshnn.checks import as_weights
from meshnn.errors import MeshError
from meshnn.plots import style
from meshnn.plots.layout import Places, edge_paths, place_neurons
from meshnn.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_graph", "svg_of"]


def draw_graph(
    ax: Axes,
    topology: Topology,
    weights: ArrayLike,
    *,
    ticks: int | None = None,
    dead: ArrayLike | None = None,
    feature_names: Sequence[object] | None = None,
    output_names: Sequence[object] | None = None,
) -> None:
    """Draw the graph: inputs left, outputs right, hidden neurons in between.

    Blue edges have positive weights, orange edges negative ones; wider edges have larger weights. Dead edges, which
    cannot influence an output, are dotted and grey. At most 5,000 edges are drawn, those with the largest weights; the
    title then shows their number.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    topology : Topology
    weights : array_like (n_edges,)
    ticks : int, optional
        Edges that are dead at this number of ticks are drawn as dead.
    dead : array_like of bool (n_edges,), optional
        The dead edges; by default `topology.dead_edges(ticks)`, which does not consider activations.
    feature_names, output_names : sequences, optional
        Written beside the inputs and outputs.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from meshnn import Topology
    >>> from meshnn.plots import draw_graph
    >>> ax = Figure().subplots()
    >>> draw_graph(ax, Topology.layered([2, 1]), [0.5, -1.0, 0.1])
    >>> ax.get_title(loc="left")
    'Graph'
    """
    style.require_matplotlib()
    w = as_weights(weights, topology.n_edges, np.dtype(np.float64))
    off = _dead_mask(topology, ticks, dead)
    features = style.as_names("feature_names", feature_names, topology.n_inputs)
    outputs = style.as_names("output_names", output_names, topology.n_outputs)
    wide, high = style.axes_size(ax)
    beside = 50 + 60 * (features is not None) + 60 * (outputs is not None)  # width of the names in points
    places = place_neurons(topology, float(np.clip((wide - beside) / max(high - 60, 1), 1.1, 2.0)))
    drawn = _strongest(w, off, 5000)
    curves = edge_paths(topology, places, drawn)
    (left, right), (bottom, top) = _frame(ax, places, curves)
    # points per unit, without the space for titles and names
    points = 0.7 * min(wide / (right - left), high / (top - bottom))
    _draw_edges(ax, topology, places, drawn, curves, w, off)
    _draw_neurons(ax, topology, places, points)
    _draw_names(ax, topology, places, points, features, outputs)
    _draw_captions(ax, topology, places)
    _draw_legend(ax, w[drawn], off[drawn], ticks)
    cut = f": strongest {len(drawn):,} of {topology.n_edges:,} edges" if len(drawn) < topology.n_edges else ""
    style.panel_title(ax, "Graph" + cut)


def _dead_mask(topology: Topology, ticks: int | None, dead: ArrayLike | None) -> BoolArray:
    """Return the edges `(n_edges,)` to draw as dead: the given ones, else those of the topology."""
    n = topology.n_edges
    if dead is None:
        return np.zeros(n, dtype=np.bool_) if ticks is None else topology.dead_edges(ticks)
    mask = np.asarray(dead)
    if mask.shape != (n,) or mask.dtype != np.bool_:
        raise MeshError(f"dead must be a mask of shape ({n},), got shape {mask.shape} of dtype {mask.dtype}")
    return mask


def _strongest(w: FloatArray, dead: BoolArray, most: int) -> IntArray:
    """Return the edges to draw, the strongest last and live ones before dead ones in the selection."""
    return np.argsort(np.where(dead, -1.0, np.abs(w)), kind="stable")[-most:]


def _draw_edges(
    ax: Axes, topology: Topology, places: Places, edges: IntArray, curves: FloatArray, w: FloatArray, dead: BoolArray
) -> None:
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.colors import to_rgb

    off = dead[edges]
    look: dict[str, Any] = {"colors": style.FAINT, "linewidths": 0.6, "linestyles": (0, (1, 2)), "zorder": 1}
    ax.add_collection(LineCollection(_segments(curves[off]), gid="dead edges", **look), autolim=False)

    live, curves = edges[~off], curves[~off]
    strength, widths, opacity = _looks(w[live])
    palette = np.array([to_rgb(style.NEGATIVE), to_rgb(style.FAINT), to_rgb(style.POSITIVE)])
    colours = np.column_stack([palette[np.sign(w[live]).astype(np.int64) + 1], opacity])
    look = {"colors": colours, "linewidths": widths, "zorder": 2, "capstyle": "butt"}
    ax.add_collection(LineCollection(_segments(curves), gid="edges", **look), autolim=False)
    if len(live) <= 400:  # more arrowheads would overlap
        ends = np.flatnonzero(topology.src[live] != topology.dst[live])
        triangles = _arrowheads(curves[ends], places.radius[topology.dst[live[ends]]], strength[ends])
        heads = PolyCollection(list(triangles), facecolors=colours[ends], linewidths=0, zorder=2.5, gid="arrowheads")
        ax.add_collection(heads, autolim=False)


def _segments(curves: FloatArray) -> list[FloatArray]:
    """Return the curves, straight ones only as their two ends, for smaller files."""
    middle = (curves[:, 0] + curves[:, -1]) / 2
    bent = np.abs(curves[:, curves.shape[1] // 2] - middle).max(axis=1) > 1e-9
    return [curve if curved else curve[[0, -1]] for curve, curved in zip(curves, bent, strict=True)]


def _looks(w: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return relative sizes of weights, and widths and opacities of their edges."""
    strength = np.abs(w) / max(float(np.abs(w).max(initial=0.0)), 1e-300)
    crowd = float(np.clip((150 / max(len(w), 1)) ** 0.35, 0.3, 1.0))  # many edges are drawn thinner and paler
    return strength, crowd * (3.0 - 2.5 * (1 - strength)), 0.4 * crowd + (0.9 - 0.4 * crowd) * strength


def _arrowheads(curves: FloatArray, radius: FloatArray, strength: FloatArray) -> FloatArray:
    """Return triangles `(edges, 3, 2)` whose tips touch the neurons at the ends of the curves."""
    distance = np.linalg.norm(curves - curves[:, -1:], axis=2)
    near = np.argmax(distance < 1.3 * radius[:, None], axis=1)  # the curve enters the neuron near this point
    before = curves[np.arange(len(curves)), np.maximum(near - 1, 0)]
    back = before - curves[:, -1]
    back /= np.maximum(np.linalg.norm(back, axis=1), 1e-12)[:, None]
    across = np.stack([-back[:, 1], back[:, 0]], axis=1)
    size = (0.006 + 0.011 * strength)[:, None]
    tip = curves[:, -1] + radius[:, None] * back
    return np.stack([tip, tip + 2 * size * back + size * across, tip + 2 * size * back - size * across], axis=1)


# -- neurons and text --------------------------------------------------------------------------------------------


def _frame(ax: Axes, places: Places, curves: FloatArray) -> tuple[tuple[float, float], tuple[float, float]]:
    """Set and return limits around the graph; names may be outside, where the figure layout reserves space."""
    edge = places.radius.max() * 1.1
    corners = np.vstack([places.xy - edge, places.xy + edge, curves.reshape(-1, 2), [[0.5, -0.02], [0.5, 1.02]]])
    low, high = corners.min(axis=0), corners.max(axis=0)
    ax.set_aspect("equal")
    ax.set_axis_off()
    # space for the captions
    return ax.set_xlim(low[0] - 0.01, high[0] + 0.01), ax.set_ylim(low[1] - 0.01, high[1] + 0.06)


def _draw_neurons(ax: Axes, topology: Topology, places: Places, points: float) -> None:
    from matplotlib.collections import EllipseCollection

    width = 2 * places.radius
    dots = EllipseCollection(
        width, width, np.zeros(len(width)), units="xy", offsets=places.xy, offset_transform=ax.transData,
        facecolors=_fills(topology), edgecolors=style.INK, zorder=3, gid="neurons",
        linewidths=float(np.clip(width.min() * points / 12, 0.1, 0.9)),
    )  # fmt: skip
    ax.add_collection(dots, autolim=False)


def _fills(t: Topology) -> list[str]:
    """Return the colours of all neurons: inputs and bias grey, hidden ones white, outputs dark."""
    return ["#d9d9d9"] * t.n_clamped + ["#ffffff"] * t.n_hidden + [style.INK] * t.n_outputs


def _draw_names(
    ax: Axes, topology: Topology, places: Places, points: float, features: list[str] | None, outputs: list[str] | None
) -> None:
    t = topology
    for k in range(t.n_neurons if places.few else 0):
        size = min(style.SMALL, places.radius[k] * points * 1.2)  # two digits fit into the circle
        if size >= 4.5:
            colour = "white" if k >= t.outputs[0] else style.INK
            x, y = places.xy[k]
            ax.text(x, y, str(k), ha="center", va="center_baseline", fontsize=size, color=colour, zorder=4)
    if t.bias and (places.few or features is not None):
        _name(ax, places, t.n_inputs, "bias", "right", style.SMALL)
    for names, neurons, side in ((features, t.inputs, "right"), (outputs, t.outputs, "left")):
        size = _room_for_names(places.xy[neurons]) * points
        if names is not None and size >= 5.5:
            for name, k in zip(names, neurons.tolist(), strict=True):
                _name(ax, places, k, name, side, min(size, style.SMALL))


def _room_for_names(xy: FloatArray) -> float:
    """Return the largest font size without overlap in a column; 0 if there are several columns."""
    if np.ptp(xy[:, 0]) > 1e-9:
        return 0.0
    return 1.0 if len(xy) == 1 else 0.9 * float(xy[0, 1] - xy[1, 1])


def _name(ax: Axes, places: Places, k: int, name: str, side: str, size: float) -> None:
    x, y = places.xy[k]
    beside = (places.radius[k] + 0.012) * (-1 if side == "right" else 1)
    ax.text(x + beside, y, name, ha=side, va="center", fontsize=size, color=style.INK, parse_math=False, zorder=4)


def _draw_captions(ax: Axes, topology: Topology, places: Places) -> None:
    """Write the number of inputs, hidden neurons and outputs above them."""
    t = topology
    captions = (style.counted(t.n_inputs, "input"), f"{t.n_hidden:,} hidden", style.counted(t.n_outputs, "output"))
    for neurons, text in zip((t.inputs, t.hidden, t.outputs), captions, strict=True):
        if len(neurons):
            x = (places.xy[neurons, 0].min() + places.xy[neurons, 0].max()) / 2
            ax.text(x, ax.get_ylim()[1], text, ha="center", va="top", fontsize=style.SMALL, color=style.FAINT)


def _draw_legend(ax: Axes, w: FloatArray, dead: BoolArray, ticks: int | None) -> None:
    from matplotlib.lines import Line2D

    live = w[~dead]
    strongest, widest = float(np.abs(live).max(initial=0.0)), float(_looks(live)[1].max(initial=0.0))
    when = "" if ticks is None else f" at {style.counted(ticks, 'tick')}"
    lines = [
        ((live > 0).any(), style.POSITIVE, 2.2, "-", "positive"),
        ((live < 0).any(), style.NEGATIVE, 2.2, "-", "negative"),
        ((live == 0).any(), style.FAINT, 0.8, "-", "zero"),
        (strongest > 0, style.FAINT, widest, "-", f"|weight| = {strongest:.3g}"),
        (dead.any(), style.FAINT, 0.9, (0, (1, 2)), f"dead{when}"),
    ]
    handles = [Line2D([], [], color=colour, lw=lw, ls=ls, label=name) for there, colour, lw, ls, name in lines if there]
    if handles:
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.01), "ncols": len(handles)}
        ax.legend(handles=handles, **style.legend_options(**place))


# -- SVG ---------------------------------------------------------------------------------------------------------


def svg_of(topology: Topology, weights: ArrayLike, dead: BoolArray, width: int, most: int) -> str:
    """Return the graph as SVG, like `draw_graph` but without names and legend; matplotlib is not needed."""
    w = as_weights(weights, topology.n_edges, np.dtype(np.float64))
    places = place_neurons(topology)
    drawn = _strongest(w, dead, most)
    curves, off, w = edge_paths(topology, places, drawn), dead[drawn], w[drawn]
    edge = places.radius[:, None] + 0.01
    corners = np.vstack([curves.reshape(-1, 2), places.xy - edge, places.xy + edge])
    low, high = corners.min(axis=0), corners.max(axis=0)
    scale = width / (high[0] - low[0])
    curves, xy = ((np.abs(points - [low[0], high[1]]) * scale) for points in (curves, places.xy))
    signs = {-1.0: style.NEGATIVE, 0.0: style.FAINT, 1.0: style.POSITIVE}
    _, widths, opacities = _looks(w[~off])
    looks = [f'stroke="{style.FAINT}" stroke-width="0.7" stroke-dasharray="1 2"'] * int(off.sum())
    looks += [
        f'stroke="{signs[sign]}" stroke-width="{thick:.2f}" opacity="{opacity:.2f}"'
        for sign, thick, opacity in zip(np.sign(w[~off]).tolist(), widths, opacities, strict=True)
    ]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{(high[1] - low[1]) * scale:.0f}">']
    for curve, look in zip([*_segments(curves[off]), *_segments(curves[~off])], looks, strict=True):
        points = "L".join(f"{x:.1f} {y:.1f}" for x, y in curve)
        parts.append(f'<path d="M{points}" fill="none" {look}/>')
    for (x, y), r, fill in zip(xy, places.radius * scale, _fills(topology), strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}" fill="{fill}" stroke="{style.INK}"/>')
    return "".join([*parts, "</svg>"])
