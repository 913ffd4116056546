"""PyTorch layers on graphs of all kinds, with their gradients."""

import numpy as np
import torch
from torch.func import functional_call

from meshnn import Topology
from meshnn.torch import MeshLayer

F64, F32 = torch.float64, torch.float32

#: Cycles, self-loops, dead edges, edges into inputs; one topological pass, an input projection, padded lists.
GRAPHS = {
    "cycles": (Topology.mesh(3, 5, 2, self_loops=True), 4),
    "no bias": (Topology.mesh(2, 4, 2, density=0.5, bias=False, random_state=3), 3),
    "edges into inputs": (
        Topology(2, 2, 1, [(0, 3), (1, 3), (3, 4), (4, 3), (4, 5), (5, 4), (3, 0), (4, 1), (2, 5), (5, 5), (0, 1)]), 5,
    ),
    "dead edges": (Topology.mesh(3, 4, 2), 1),
    "cascade": (Topology.cascade(3, 4, 2), None),
    "input projection": (Topology.mesh(9, 4, 2, self_loops=True), 6),
    "layers": (Topology.layered([3, 4, 4, 2]), 6),
    "padding": (Topology.mesh(8, 12, 4, density=0.9, random_state=0), 3),
}  # fmt: skip


def tied(topology):
    parameter = np.arange(topology.n_edges) % 7
    parameter[::5] = -1
    return np.unique(parameter, return_inverse=True)[1] - 1


def make(kind, ties=False, activation="tanh", dtype=F64, seed=0, **options):
    topology, ticks = GRAPHS[kind]
    parameter = tied(topology) if ties else None
    return MeshLayer(topology, ticks, activation, dtype=dtype, random_state=seed, tied=parameter, **options)


def numbers(*shape, dtype=F64, seed=0, needs=False):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed)).requires_grad_(needs)


def called(layer):
    return lambda x, weight: functional_call(layer, {"weight": weight}, (x,))


def both_gradients(layer, x, g):
    x = x.detach().clone().requires_grad_()
    y = layer(x)
    return (y.detach(), *torch.autograd.grad(y, (x, layer.weight), g))


def same(got, want, tolerance=1e-12):
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def loss_of(layer):
    return lambda weight, x: called(layer)(x, weight).square().sum()
