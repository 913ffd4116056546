"""Positions of neurons and paths of edges in the drawing of a graph, as arrays.

The drawing has height 1 and width `width`. Inputs are on the left with the bias below them, outputs on the right.
Hidden neurons are in columns by depth if they have no cycle, else on an ellipse (if there are many, in the whole
ellipse).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshnn.arrays import BoolArray, FloatArray, IntArray
from meshnn.topology import Topology
from meshnn.topology.reach import longest_paths

__all__ = ["Places", "edge_paths", "place_neurons"]


@dataclass(frozen=True)
class Places:
    """Positions and sizes of neurons."""

    xy: FloatArray  # (n, 2) centres
    radius: FloatArray  # (n,) radius of the circles
    columns: bool  # hidden neurons are in columns by depth
    centre: FloatArray  # (2,) centre of the hidden neurons; loops on a ring point away from it

    @property
    def few(self) -> bool:
        """Return whether numbers fit into the circles."""
        return len(self.xy) <= 60


def place_neurons(topology: Topology, width: float = 1.4) -> Places:
    """Return centres and radii of all neurons, in a drawing of height 1 and width `width`."""
    t = topology
    xy = np.zeros((t.n_neurons, 2))
    radius = np.zeros(t.n_neurons)
    xy[t.inputs], radius[t.inputs], bottom = _clamped(t)
    if t.bias:
        xy[t.n_inputs], radius[t.n_inputs] = (0.0, bottom), max(float(radius[0]), 0.008)
    block, radius[t.outputs], _ = _block(t.n_outputs, 0.0, 0.16)
    xy[t.outputs] = block + np.array([width, 0.5])
    # edges between hidden neurons, numbered from 0, without self-loops
    src, dst = t.src - t.n_clamped, t.dst - t.n_clamped
    inner = (np.minimum(src, dst) >= 0) & (np.maximum(src, dst) < t.n_hidden) & (src != dst)
    depth = longest_paths(t.n_hidden, src[inner], dst[inner])  # None if there is a cycle
    if t.n_hidden and depth is not None:
        skips = bool((depth[dst[inner]] - depth[src[inner]] > 1).any())
        xy[t.hidden], radius[t.hidden] = _by_depth(depth, width, skips)
    elif t.n_hidden:
        xy[t.hidden], radius[t.hidden] = _round(t.n_hidden, width)
    places = Places(xy, radius, depth is not None, np.array([width / 2, 0.5]))
    # radii differ at most by a factor of 3; circles without numbers can be small
    largest = min(max(3 * radius.min(), 0.01), 0.034 if places.few else 0.0204)
    np.clip(radius, 0.0015, largest, out=radius)
    return places


def _block(m: int, taken: float, widest: float) -> tuple[FloatArray, float, float]:
    """Return offsets of m neurons around (0, 0), their radius and spacing, in one column or, if crowded, in several."""
    height = 1.0 - taken
    rows = m if m <= 40 else min(m, max(40, int(np.ceil(np.sqrt(m * height / widest)))))
    across = -(-m // rows)
    rows = -(-m // across)
    gap = min(0.2, height / max(rows - 1, 1))
    k = np.arange(m)
    column, row = k // rows, k % rows
    full = np.minimum(m - column * rows, rows)  # the last column may be shorter and is also centred
    offsets = np.stack([(column - (across - 1) / 2) * gap, ((full - 1) / 2 - row) * gap], axis=1)
    return offsets, 0.4 * gap, gap


def _clamped(t: Topology) -> tuple[FloatArray, float, float]:
    """Return positions and radius of the inputs, and the height of the bias below them."""
    below = 1.7  # in units of the gap between neurons
    share = below / (t.n_inputs + below) if t.bias else 0.0
    offsets, r, gap = _block(t.n_inputs, min(share, 0.2), 0.16)
    away = max(below * gap, 0.06) if t.bias else 0.0
    top, low = offsets[:, 1].max(), offsets[:, 1].min()
    middle = (top + low - away) / 2
    return offsets + np.array([0.0, 0.5 - middle]), r, float(low - away - middle + 0.5)


def _by_depth(depth: IntArray, width: float, arched: bool) -> tuple[FloatArray, FloatArray]:
    """Return positions in columns from left to right; on an arch if edges that skip columns would overlap."""
    deepest = int(depth.max()) + 1
    edge = max(width / (deepest + 1), 0.14)  # from the inputs to the first column, from the last to the outputs
    step = (width - 2 * edge) / (deepest - 1) if deepest > 1 else edge
    xy, radius = np.zeros((len(depth), 2)), np.zeros(len(depth))
    order = np.argsort(depth, kind="stable")
    ends = np.cumsum(np.bincount(depth, minlength=deepest))
    for k, members in enumerate(np.split(order, ends[:-1])):
        offsets, r, gap = _block(len(members), 0.0, 0.45 * min(step, edge))
        x = edge + k * step
        room = max(0.0, 0.5 - gap * (len(members) - 1) / 2)
        lift = room * 0.9 * (2 * np.sqrt(1 - (2 * x / width - 1) ** 2) - 1) if arched else 0.0
        xy[members] = offsets + np.array([x, 0.5 + lift])
        radius[members] = min(r, 0.45 * step)
    return xy, radius


def _round(m: int, width: float) -> tuple[FloatArray, FloatArray]:
    """Return positions on an ellipse, clockwise from the top; many neurons fill it along a golden spiral."""
    across, up = max(width / 2 - 0.26, 0.3), 0.48
    k = np.arange(m)
    if m <= 120:  # evenly spaced along the ellipse
        fine = np.pi / 2 - np.linspace(0.0, 2 * np.pi, 4001)
        steps = np.hypot(across * np.diff(np.cos(fine)), up * np.diff(np.sin(fine)))
        way = np.concatenate([[0.0], np.cumsum(steps)])
        angle, out = np.interp(k * way[-1] / m, way, fine), np.ones(m)
        radius = 0.36 * way[-1] / m
    else:
        angle, out = np.pi / 2 - np.pi * (3 - np.sqrt(5)) * k, np.sqrt((k + 0.5) / m)
        radius = 0.26 * np.sqrt(np.pi * across * up / m)
    xy = np.stack([width / 2 + across * out * np.cos(angle), 0.5 + up * out * np.sin(angle)], axis=1)
    return xy, np.full(m, radius)


# -- edges -------------------------------------------------------------------------------------------------------


def edge_paths(topology: Topology, places: Places, edges: IntArray) -> FloatArray:
    """Return the path of every edge `(edges, steps, 2)`: straight, bent around neurons, or a loop."""
    src, dst = topology.src[edges], topology.dst[edges]
    n = topology.n_neurons
    two_way = np.isin(src * n + dst, dst * n + src)
    upright = np.abs(places.xy[src, 0] - places.xy[dst, 0]) < 1e-9  # within a column
    bow = np.where(two_way, 0.13, np.where(upright, 0.3, 0.0))
    if places.few and len(edges) <= 1600:
        bow = _clear_bows(places, src, dst, bow, two_way)
    paths = _bent(places.xy[src], places.xy[dst], bow)
    loops = np.flatnonzero(src == dst)
    paths[loops] = _loops(places, src[loops])
    return paths


def _bent(a: FloatArray, b: FloatArray, bow: FloatArray, points: int = 17) -> FloatArray:
    """Return parabolas from a to b; the bow is relative to the length and to the right, so opposite edges differ."""
    along = b - a
    middle = (a + b) / 2 + bow[:, None] * np.stack([along[:, 1], -along[:, 0]], axis=1)
    t = np.linspace(0.0, 1.0, points)[None, :, None]
    return np.asarray((1 - t) ** 2 * a[:, None] + 2 * t * (1 - t) * middle[:, None] + t**2 * b[:, None])


def _clear_bows(places: Places, src: IntArray, dst: IntArray, bow: FloatArray, two_way: BoolArray) -> FloatArray:
    """Return the bows; edges that would pass behind neurons get the bow with the fewest of them."""
    best, hidden = bow.copy(), _passed(places, src, dst, bow)
    for more in (0.08, -0.08, 0.16, -0.16, 0.25, -0.25, 0.35, -0.35):
        retry = np.flatnonzero((hidden > 0) & ((more > 0) | ~two_way))  # opposite edges keep their side
        passed = _passed(places, src[retry], dst[retry], bow[retry] + more)
        better = passed < hidden[retry]
        best[retry[better]] = bow[retry[better]] + more
        hidden[retry] = np.minimum(passed, hidden[retry])
    return best


def _passed(places: Places, src: IntArray, dst: IntArray, bow: FloatArray) -> IntArray:
    """Return the number of neurons that each path passes behind, except for its ends."""
    from scipy.spatial.distance import cdist

    points = _bent(places.xy[src], places.xy[dst], bow, 65)
    gaps = cdist(points.reshape(-1, 2), places.xy).reshape(len(src), 65, len(places.xy))
    near = np.asarray((gaps < 1.15 * places.radius).any(axis=1))
    row = np.arange(len(src))
    near[row, src] = near[row, dst] = False
    return np.asarray(near.sum(axis=1))


def _loops(places: Places, neurons: IntArray) -> FloatArray:
    """Return circles that touch their neuron: away from the centre of a ring, or at the upper right in a column."""
    out = np.tile(np.sqrt([0.5, 0.5]), (len(neurons), 1))
    if not places.columns:
        away = places.xy[neurons] - places.centre
        length = np.linalg.norm(away, axis=1)
        far = length > 1e-9
        out[far] = away[far] / length[far, None]
    r = places.radius[neurons][:, None]
    middle = places.xy[neurons] + 1.5 * r * out
    turn = np.linspace(0.0, 2 * np.pi, 17)
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    return np.asarray(middle[:, None] + 0.85 * r[:, None] * circle[None], dtype=np.float64)
