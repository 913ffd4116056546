"""Where the neurons of a graph are drawn: numbers only, no drawing.

The picture is 1 high and `width` wide. Inputs stand on the left with the bias set apart below them, outputs on the
right. Hidden neurons stand in columns by depth if no cycle runs through them, else on an ellipse (on a filled disc if
there are many).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshnn.topology import Topology
from meshnn.topology.reach import longest_paths

__all__ = ["Places", "hidden_depths", "place_neurons"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_LARGEST = 0.034  # radius of a neuron
_SMALLEST = 0.0015
_GAP = 0.2  # between neighbours in a column, if there is room
_RING = 120  # hidden neurons that an ellipse holds; more fill the disc


@dataclass(frozen=True)
class Places:
    """Where neurons are drawn."""

    xy: FloatArray  # (n, 2) centres
    radius: FloatArray  # (n,) of the dots
    columns: bool  # hidden neurons stand by depth, so that edges run from left to right
    centre: FloatArray  # (2,) of the hidden neurons: loops on a ring point away from it


def hidden_depths(topology: Topology) -> IntArray | None:
    """Longest path to each hidden neuron through hidden neurons `(n_hidden,)`; None if they hold a cycle.

    Self-loops do not count: they are drawn at their neuron wherever it stands.
    """
    src, dst = _inner(topology)
    return longest_paths(topology.n_hidden, src[src != dst], dst[src != dst])


def _inner(t: Topology) -> tuple[IntArray, IntArray]:
    """The ends of edges between hidden neurons, which are numbered from 0."""
    src, dst = t.src - t.n_clamped, t.dst - t.n_clamped
    inner = (src >= 0) & (src < t.n_hidden) & (dst >= 0) & (dst < t.n_hidden)
    return src[inner], dst[inner]


def place_neurons(topology: Topology, width: float = 1.4) -> Places:
    """Centres and radii of all neurons, in a picture 1 high and `width` wide."""
    t = topology
    xy = np.zeros((t.n_neurons, 2))
    radius = np.zeros(t.n_neurons)
    xy[t.inputs], radius[t.inputs], bottom = _clamped(t)
    if t.bias:
        r = max(float(radius[0]), 0.008)
        xy[t.n_inputs] = 0.0, bottom
        radius[t.n_inputs] = r
    block, r, _ = _block(t.n_outputs, 0.0, 0.16)
    xy[t.outputs], radius[t.outputs] = block + np.array([width, 0.5]), r
    depth = hidden_depths(t)
    if t.n_hidden and depth is not None:
        xy[t.hidden], radius[t.hidden] = _by_depth(depth, width, _skips(t, depth))
    elif t.n_hidden:
        xy[t.hidden], radius[t.hidden] = _round(t.n_hidden, width)
    # Tiny dots beside huge ones look like two pictures; without numbers in them none need be large.
    largest = min(max(3 * radius.min(), 0.01), _LARGEST if t.n_neurons <= 60 else 0.6 * _LARGEST)
    radius = np.clip(radius, _SMALLEST, largest)
    return Places(xy, radius, depth is not None, np.array([width / 2, 0.5]))


def _block(m: int, taken: float, widest: float) -> tuple[FloatArray, float, float]:
    """Offsets of m neurons around (0, 0), their radius and spacing: one column, or several if it would be crowded."""
    height = 1.0 - taken
    rows = m if m <= 40 else min(m, max(40, int(np.ceil(np.sqrt(m * height / widest)))))
    across = -(-m // rows)
    rows = -(-m // across)
    gap = min(_GAP, height / max(rows - 1, 1))
    k = np.arange(m)
    column, row = k // rows, k % rows
    full = np.minimum(m - column * rows, rows)  # the last column may be shorter: it is centred as well
    offsets = np.stack([(column - (across - 1) / 2) * gap, ((full - 1) / 2 - row) * gap], axis=1)
    return offsets, min(_LARGEST, 0.4 * gap), gap


def _clamped(t: Topology) -> tuple[FloatArray, float, float]:
    """Places and radius of the inputs, and the height of the bias below them."""
    below = 1.7  # gaps
    share = below / (t.n_inputs + below) if t.bias else 0.0
    offsets, r, gap = _block(t.n_inputs, min(share, 0.2), 0.16)
    away = max(below * gap, 0.06) if t.bias else 0.0
    top, low = offsets[:, 1].max(), offsets[:, 1].min()
    middle = (top + low - away) / 2
    return offsets + np.array([0.0, 0.5 - middle]), r, float(low - away - middle + 0.5)


def _skips(t: Topology, depth: IntArray) -> bool:
    """Whether a hidden neuron reads one that is not in the column before it."""
    src, dst = _inner(t)
    return bool((depth[dst] - depth[src] > 1).any())


def _by_depth(depth: IntArray, width: float, arched: bool) -> tuple[FloatArray, FloatArray]:
    """Columns from left to right. If edges skip columns, an arch: on a straight line they would hide each other."""
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
    """On an ellipse, clockwise from the top; many fill the disc, each a golden angle further and further out."""
    across, up = max(width / 2 - 0.26, 0.3), 0.48
    k = np.arange(m)
    if m <= _RING:
        angle, gap = _even_angles(m, across, up)
        out = np.ones(m)
    else:
        angle = np.pi / 2 - np.pi * (3 - np.sqrt(5)) * k
        out = np.sqrt((k + 0.5) / m)
        gap = np.sqrt(np.pi * across * up / m)
    xy = np.stack([width / 2 + across * out * np.cos(angle), 0.5 + up * out * np.sin(angle)], axis=1)
    return xy, np.full(m, min(_LARGEST, (0.36 if m <= _RING else 0.26) * gap))


def _even_angles(m: int, across: float, up: float) -> tuple[FloatArray, float]:
    """Angles at which m neurons stand evenly on an ellipse, clockwise from the top, and the way between two."""
    fine = np.pi / 2 - np.linspace(0.0, 2 * np.pi, 4001)
    steps = np.hypot(across * np.diff(np.cos(fine)), up * np.diff(np.sin(fine)))
    way = np.concatenate([[0.0], np.cumsum(steps)])
    return np.interp(np.arange(m) * way[-1] / m, way, fine), float(way[-1] / m)
