"""Nets to draw, and functions that read drawn axes."""

import numpy as np

from meshnn import Topology

NETS = {
    "mesh": Topology.mesh(2, 5, 2),
    "self-loops": Topology.mesh(2, 5, 2, self_loops=True),
    "layered": Topology.layered([4, 8, 6, 3]),
    "cascade": Topology.cascade(2, 6, 1),
    "digits": Topology.mesh(64, 32, 10, density=0.2, random_state=0),
    "loops only": Topology(2, 5, 1, [(h, h) for h in range(3, 8)]),
    "no hidden": Topology.layered([3, 1]),
    "no edges": Topology(1, 0, 1, [], bias=False),
    "edges anywhere": Topology(2, 2, 2, [(0, 1), (3, 0), (5, 6), (6, 5), (5, 3), (3, 4), (6, 6), (0, 6)]),
}


def draw_weights(t, seed=0):
    return np.random.default_rng(seed).standard_normal(t.n_edges)


def part(ax, gid):
    (found,) = [artist for artist in ax.collections if artist.get_gid() == gid]
    return found


def texts(ax):
    return [text.get_text() for text in ax.texts]


def title(ax):
    return ax.get_title(loc="left")
