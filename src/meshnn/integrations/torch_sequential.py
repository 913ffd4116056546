"""`nn.Sequential` of PyTorch to a `Mesh`, and back: the weights move, the function stays."""

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

#: What a net does with them when it is not trained: nothing.
_IGNORED = (nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout)
_ADVICE = (
    "from_torch takes Linear, and behind each ReLU, LeakyReLU(0.01), ELU(1), Softplus(), Sigmoid, Tanh or Identity"
)
_MODULES: dict[str, Any] = {
    "identity": None,
    "relu": nn.ReLU,
    "leaky_relu": lambda: nn.LeakyReLU(0.01),
    "elu": nn.ELU,
    # torch's own is linear from its threshold on; where that is 50 nothing of it is left in float64
    "softplus": lambda: nn.Softplus(threshold=50),
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}


def _activation(module: nn.Module) -> str | None:
    """The name of an activation; None if it is not one, or one that we do not have."""
    match module:
        case nn.ReLU():
            return "relu"
        case nn.LeakyReLU(negative_slope=0.01):
            return "leaky_relu"
        case nn.ELU(alpha=1.0):
            return "elu"
        case nn.Softplus(beta=1.0) if module.threshold >= 20:
            return "softplus"
        case nn.Sigmoid():
            return "sigmoid"
        case nn.Tanh():
            return "tanh"
        case nn.Identity():
            return "identity"
    return None


def from_torch(model: nn.Sequential, *, drop_zeros: bool = False) -> Mesh:
    """A `Mesh` that computes what an `nn.Sequential` of linear layers and activations does in `eval()`.

    Parameters
    ----------
    model : nn.Sequential
        `Linear` layers, with or without bias, each with an activation behind it or none; `Flatten` in front and dropout
        anywhere are passed over. Sequentials may be nested.
    drop_zeros : bool
        Leave out edges of weight 0, as of layers that were pruned or masked.

    Returns
    -------
    Mesh
        Layered, with as many ticks as there are linear layers, and a copy of the weights. Its neurons are the inputs,
        the bias (if a layer has one), the layers in turn.

    Examples
    --------
    >>> import torch
    >>> from meshnn.torch import from_torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    >>> from_torch(model)
    Mesh(4-8-3 + bias, 67 edges, 2 ticks, float32)
    """
    if not isinstance(model, nn.Sequential):
        raise MeshError(f"from_torch takes an nn.Sequential, got {type(model).__name__}; put the layers into one")
    layers, names = _layers(model)
    dtype = layers[0].weight.dtype
    if dtype not in DTYPES or any(p.dtype != dtype for layer in layers for p in layer.parameters()):
        raise MeshError(
            f"all weights must be of one dtype, float32 or float64, got {_kinds(layers)}; use model.float()"
        )
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
    """The linear layers and the activation behind each."""
    layers: list[nn.Linear] = []
    names: list[str] = []
    fresh = False  # whether the last layer has no activation yet
    for name, module in _flat(model):
        found = _activation(module)
        if type(module) is nn.Linear:
            if layers and module.in_features != layers[-1].out_features:
                came = layers[-1].out_features
                raise MeshError(f"layer {name} takes {module.in_features} numbers, but {came} come from the one before")
            layers.append(module)
            names.append("identity")
            fresh = True
        elif isinstance(module, _IGNORED) or (isinstance(module, nn.Flatten) and not layers) or found == "identity":
            continue
        elif found is None:
            raise MeshError(f"layer {name} is {module!r}, which a mesh has not; {_ADVICE}")
        elif not fresh:
            where = "behind another activation" if layers else "in front of all layers"
            raise MeshError(f"layer {name} is {module!r} {where}, where a mesh has no neurons; {_ADVICE}")
        else:
            names[-1], fresh = found, False
    if not layers:
        raise MeshError(f"there is no Linear layer in {type(model).__name__}; {_ADVICE}")
    return layers, names


def _flat(model: nn.Sequential, prefix: str = "") -> list[tuple[str, nn.Module]]:
    found: list[tuple[str, nn.Module]] = []
    for name, module in model.named_children():
        inner = _flat(module, f"{prefix}{name}.") if isinstance(module, nn.Sequential) else [(prefix + name, module)]
        found += inner
    return found


def _kinds(layers: list[nn.Linear]) -> str:
    return ", ".join(sorted({str(p.dtype) for layer in layers for p in layer.parameters()}))


def to_torch(mesh: Mesh) -> nn.Sequential:
    """The `nn.Sequential` that computes what a layered mesh does: the inverse of `from_torch`.

    Edges that are not there become weights of 0, and edges that are tied become weights of their own. A graph that is
    not layered, with skips or cycles, is refused; `MeshLayer.from_mesh(mesh)` takes any.

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
        raise MeshError(f"to_torch takes a Mesh, got {type(mesh).__name__}; an estimator has one, `mesh_`")
    t, level = mesh.topology, _levels(mesh)
    depth = int(level[-1])
    A = mesh.adjacency().tocsc()
    modules: list[nn.Module] = []
    dtype = torch.float32 if mesh.dtype == np.float32 else torch.float64
    before = np.arange(t.n_inputs)
    for k in range(1, depth + 1):
        here = np.flatnonzero(level == k)
        fed = t.bias and bool(np.isin(t.dst[t.src == t.n_inputs], here).any())
        layer = nn.Linear(len(before), len(here), fed, dtype=dtype)
        columns = A[:, here].toarray()
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(np.ascontiguousarray(columns[before].T)))
            if fed:
                layer.bias.copy_(torch.from_numpy(columns[t.n_inputs]))
        modules.append(layer)
        activation = _shared_activation(mesh, here, k)
        modules += [] if activation is None else [activation]
        before = here
    return nn.Sequential(*modules)


def _shared_activation(mesh: Mesh, neurons: IntArray, k: int) -> nn.Module | None:
    names = sorted({mesh.activations[j - mesh.topology.n_clamped] for j in neurons.tolist()})
    if len(names) > 1 or names[0] not in _MODULES:
        raise MeshError(
            f"layer {k} has the activation {' and '.join(names)}, for which nn.Sequential has no module; "
            "use MeshLayer.from_mesh(mesh), which takes any mesh"
        )
    make = _MODULES[names[0]]
    return None if make is None else make()


def _levels(mesh: Mesh) -> IntArray:
    """The layer of every neuron: inputs 0, outputs last; refuses a graph with edges elsewhere than to the next."""
    t = mesh.topology
    level = np.full(t.n_neurons, -1, np.int64)
    moving = (t.src != t.n_inputs) | (not t.bias)
    src, dst = t.src[moving].astype(np.int64), t.dst[moving].astype(np.int64)
    if (t.dst < t.n_clamped).any():
        raise MeshError("edges lead into inputs, which no nn.Sequential has; use MeshLayer.from_mesh(mesh)")
    level[: t.n_inputs] = 0
    _spread(level, src, dst)
    reached = level[t.outputs]
    level[t.outputs] = reached.max() if (reached >= 0).any() else mesh.ticks
    _spread(level, src, dst)
    while (level[t.n_clamped :] < 0).any():  # what neither inputs nor outputs are tied to
        level[t.n_clamped + int(np.argmax(level[t.n_clamped :] < 0))] = 1
        _spread(level, src, dst)
    depth = int(level[-1])
    hidden = level[t.hidden]
    wrong = np.flatnonzero(level[dst] != level[src] + 1)
    if len(wrong) or (level[t.outputs] != depth).any() or (hidden < 1).any() or (hidden >= depth).any():
        edge = f", as edge ({src[wrong[0]]}, {dst[wrong[0]]}) shows" if len(wrong) else ""
        raise MeshError(
            f"this graph is not layered{edge}, so it is no nn.Sequential; use MeshLayer.from_mesh(mesh), which takes "
            "any graph"
        )
    if depth > mesh.ticks:
        raise MeshError(
            f"with {mesh.ticks} ticks not all of {depth} layers are passed, as they are in an nn.Sequential; "
            f"use MeshLayer.from_mesh(mesh), or set mesh.ticks = {depth}"
        )
    if len(np.unique(level[level > 0])) < depth:
        raise MeshError("a layer has no neurons left; use MeshLayer.from_mesh(mesh), which takes any graph")
    return level


def _spread(level: IntArray, src: Array, dst: Array) -> None:
    """Along edges, both ways, until nobody new is reached."""
    while True:
        on, back = (level[src] >= 0) & (level[dst] < 0), (level[dst] > 0) & (level[src] < 0)
        if not on.any() and not back.any():
            return
        level[dst[on]] = level[src[on]] + 1
        back &= level[src] < 0
        level[src[back]] = level[dst[back]] - 1
