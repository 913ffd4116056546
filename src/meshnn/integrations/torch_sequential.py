"""Conversion of an `nn.Sequential` of PyTorch to a `Mesh`, and back, with equal outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from meshnn.arrays import Array, IntArray
from meshnn.errors import MeshError
from meshnn.integrations.torch_ops import DTYPES
from meshnn.mesh import Mesh
from meshnn.topology import Topology

__all__ = ["from_torch", "to_torch"]

#: Activations as modules with their options.
MODULES: dict[str, tuple[Any, dict[str, float]]] = {
    "identity": (nn.Identity, {}),
    "relu": (nn.ReLU, {}),
    "leaky_relu": (nn.LeakyReLU, {"negative_slope": 0.01}),
    "elu": (nn.ELU, {"alpha": 1.0}),
    # PyTorch's softplus is linear above its threshold; at 50 the difference vanishes in float64
    "softplus": (nn.Softplus, {"beta": 1.0, "threshold": 50.0}),
    "sigmoid": (nn.Sigmoid, {}),
    "tanh": (nn.Tanh, {}),
    "hardtanh": (nn.Hardtanh, {"min_val": -1.0, "max_val": 1.0}),
}


def _activation(module: nn.Module) -> str | None:
    """Return the name of an activation; None if it is none, or not supported."""
    for name, (kind, options) in MODULES.items():
        if isinstance(module, kind) and getattr(module, "threshold", 50.0) >= 20:
            alike = all(getattr(module, key) == value for key, value in options.items() if key != "threshold")
            return name if alike else None
    return None


def from_torch(model: nn.Sequential, *, drop_zeros: bool = False) -> Mesh:
    """Return a `Mesh` with the outputs of an `nn.Sequential` of linear layers and activations in `eval()`.

    Parameters
    ----------
    model : nn.Sequential
        `Linear` layers, with or without bias, each followed by at most one activation. `Flatten` at the beginning and
        dropout are ignored. Sequentials may be nested.
    drop_zeros : bool
        Leave out edges of weight 0, such as those of pruned or masked layers.

    Returns
    -------
    Mesh
        Layered, with one tick per linear layer and a copy of the weights. Its neurons are the inputs, the bias (if a
        layer has one) and the layers in order.

    Examples
    --------
    >>> import torch
    >>> from meshnn.torch import from_torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    >>> from_torch(model)
    Mesh(4-8-3 + bias, 67 edges, 2 ticks, float32)
    """
    if not isinstance(model, nn.Sequential):
        raise MeshError(f"from_torch takes an nn.Sequential, got {type(model).__name__}; wrap the layers in one")
    layers, names = _layers(model)
    dtype, dtypes = layers[0].weight.dtype, {p.dtype for layer in layers for p in layer.parameters()}
    if dtype not in DTYPES or len(dtypes) > 1:
        kinds = ", ".join(sorted(map(str, dtypes)))
        raise MeshError(f"all weights must be of one dtype, float32 or float64, got {kinds}; use model.float()")
    sizes = [layers[0].in_features, *(layer.out_features for layer in layers)]
    has_bias = any(layer.bias is not None for layer in layers)
    starts = np.cumsum([0, sizes[0] + has_bias, *sizes[1:-1]]).tolist()  # first neuron of each layer
    edges, weights = [], []
    for k, layer in enumerate(layers):
        matrix = layer.weight.numpy(force=True)
        into, out_of = (end.ravel() for end in np.indices(matrix.shape))
        edges.append(np.stack([starts[k] + out_of, starts[k + 1] + into], axis=1))
        weights.append(matrix.ravel())
        if layer.bias is not None:
            those = np.arange(layer.out_features)
            edges.append(np.stack([np.full_like(those, sizes[0]), starts[k + 1] + those], axis=1))
            weights.append(layer.bias.numpy(force=True))
    pairs, values = np.concatenate(edges), np.concatenate(weights)
    if drop_zeros:
        pairs, values = pairs[values != 0], values[values != 0]
    order = np.lexsort((pairs[:, 0], pairs[:, 1]))
    topology = Topology(sizes[0], sum(sizes[1:-1]), sizes[-1], pairs, bias=has_bias)
    hidden = [name for name, size in zip(names[:-1], sizes[1:-1], strict=True) for _ in range(size)]
    return Mesh(topology, len(layers), hidden, names[-1], values[order], DTYPES[dtype])


def _layers(model: nn.Sequential) -> tuple[list[nn.Linear], list[str]]:
    """Return the linear layers and the activation after each."""
    layers: list[nn.Linear] = []
    names: list[str] = []
    fresh = False  # whether the last layer has no activation yet
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, nn.Sequential):
            continue  # its modules follow
        found = _activation(module)
        if type(module) is nn.Linear:
            if layers and module.in_features != layers[-1].out_features:
                came = layers[-1].out_features
                raise MeshError(f"layer {name} has {module.in_features} inputs, the layer before it {came} outputs")
            layers.append(module)
            names.append("identity")
            fresh = True
        elif isinstance(module, (nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout)) or found == "identity":
            continue  # no effect in eval()
        elif found is not None and fresh:
            names[-1], fresh = found, False
        elif layers or not isinstance(module, nn.Flatten):
            raise MeshError(
                f"layer {name} is {module!r}; from_torch supports Linear, followed by at most one of ReLU, "
                "LeakyReLU(0.01), ELU(1), Softplus(), Sigmoid, Tanh, Hardtanh() or Identity"
            )
    if not layers:
        raise MeshError(f"there is no Linear layer in {type(model).__name__}")
    return layers, names


def to_torch(mesh: Mesh) -> nn.Sequential:
    """Return an `nn.Sequential` with the outputs of a layered mesh: the inverse of `from_torch`.

    Absent edges become weights of 0, and tied edges become independent weights. A graph that is not layered, with skips
    or cycles, raises an error; `MeshLayer.from_mesh(mesh)` supports every graph.

    Examples
    --------
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.torch import to_torch
    >>> to_torch(Mesh(Topology.layered([4, 8, 3]), activation="tanh", random_state=0))
    Sequential(
      (0): Linear(in_features=4, out_features=8, bias=True)
      (1): Tanh()
      (2): Linear(in_features=8, out_features=3, bias=True)
    )
    """
    if not isinstance(mesh, Mesh):
        raise MeshError(f"to_torch takes a Mesh, got {type(mesh).__name__}; for an estimator, pass `mesh_`")
    t, level, A = mesh.topology, _levels(mesh), mesh.adjacency().tocsc()
    modules: list[nn.Module] = []
    dtype = torch.float32 if mesh.dtype == np.float32 else torch.float64
    before = np.arange(t.n_inputs)
    for k in range(1, int(level[-1]) + 1):
        here = np.flatnonzero(level == k)
        fed = t.bias and bool(np.isin(t.dst[t.src == t.n_inputs], here).any())
        layer = nn.Linear(len(before), len(here), fed, dtype=dtype)
        columns = A[:, here].toarray()
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(np.ascontiguousarray(columns[before].T)))
            if fed:
                layer.bias.copy_(torch.from_numpy(columns[t.n_inputs]))
        modules.append(layer)
        names = sorted({mesh.activations[j - t.n_clamped] for j in here.tolist()})
        if len(names) > 1 or names[0] not in MODULES:
            raise MeshError(f"layer {k} has the activation {' and '.join(names)}, for which nn.Sequential has no "
                            "module; use MeshLayer.from_mesh(mesh), which supports every mesh")  # fmt: skip
        kind, options = MODULES[names[0]]
        modules += [] if kind is nn.Identity else [kind(**options)]
        before = here
    return nn.Sequential(*modules)


def _levels(mesh: Mesh) -> IntArray:
    """Return the layer of every neuron (inputs and bias 0, outputs last); raise an error without layers."""
    t = mesh.topology
    moving = (t.src != t.n_inputs) | (not t.bias)
    src, dst = t.src[moving].astype(np.int64), t.dst[moving].astype(np.int64)
    level = np.full(t.n_neurons, -1, np.int64)
    level[: t.n_clamped] = 0
    _spread(level, src, dst)
    level[t.outputs] = level[t.outputs].max() if (level[t.outputs] >= 0).any() else mesh.ticks
    _spread(level, src, dst)
    while (level < 0).any():  # connected neither to inputs nor to outputs
        level[np.argmax(level < 0)] = 1
        _spread(level, src, dst)
    depth, hidden = int(level[-1]), level[t.hidden]
    wrong = np.flatnonzero(level[dst] != level[src] + 1)
    if len(wrong):
        why = f"edge ({src[wrong[0]]}, {dst[wrong[0]]}) does not lead to the next layer"
    elif (hidden < 1).any() or (hidden >= depth).any() or len(np.unique(level)) <= depth:
        why = "a hidden neuron is in no layer, or a layer has no neuron"
    elif depth > mesh.ticks:
        why = f"{mesh.ticks} ticks are too few for its {depth} layers"
    else:
        return level
    raise MeshError(f"the mesh is not layered ({why}); use MeshLayer.from_mesh(mesh)")


def _spread(level: IntArray, src: Array, dst: Array) -> None:
    """Propagate levels along edges in both directions until nothing changes."""
    while True:
        on, back = (level[src] >= 0) & (level[dst] < 0), (level[dst] > 0) & (level[src] < 0)
        if not on.any() and not back.any():
            return
        level[dst[on]] = level[src[on]] + 1
        back &= level[src] < 0
        level[src[back]] = level[dst[back]] - 1
