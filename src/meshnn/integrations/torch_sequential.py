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

#: Activations as modules, with their options.
MODULES: dict[str, tuple[Any, dict[str, float]]] = {
    "identity": (nn.Identity, {}),
    "relu": (nn.ReLU, {}),
    "leaky_relu": (nn.LeakyReLU, {"negative_slope": 0.01}),
    "elu": (nn.ELU, {"alpha": 1.0}),
    # torch's own is linear from its threshold on; where that is 50 nothing of it is left in float64
    "softplus": (nn.Softplus, {"beta": 1.0, "threshold": 50.0}),
    "sigmoid": (nn.Sigmoid, {}),
    "tanh": (nn.Tanh, {}),
}


def _activation(module: nn.Module) -> str | None:
    """Return the name of an activation; None if it is not one, or one that meshnn does not have."""
    for name, (kind, options) in MODULES.items():
        if isinstance(module, kind) and getattr(module, "threshold", 50.0) >= 20:
            alike = all(getattr(module, key) == value for key, value in options.items() if key != "threshold")
            return name if alike else None
    return None


def from_torch(model: nn.Sequential, *, drop_zeros: bool = False) -> Mesh:
    """Return a `Mesh` that computes what an `nn.Sequential` of linear layers and activations does in `eval()`.

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
    """Return the linear layers and the activation behind each."""
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
                raise MeshError(f"layer {name} takes {module.in_features} numbers, but {came} come from the one before")
            layers.append(module)
            names.append("identity")
            fresh = True
        elif isinstance(module, (nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout)) or found == "identity":
            continue  # they do nothing in a net that is not trained
        elif found is not None and fresh:
            names[-1], fresh = found, False
        elif layers or not isinstance(module, nn.Flatten):
            raise MeshError(
                f"layer {name} is {module!r}; from_torch takes Linear, and behind each at most one of ReLU, "
                "LeakyReLU(0.01), ELU(1), Softplus(), Sigmoid, Tanh or Identity"
            )
    if not layers:
        raise MeshError(f"there is no Linear layer in {type(model).__name__}")
    return layers, names


def to_torch(mesh: Mesh) -> nn.Sequential:
    """Return the `nn.Sequential` that computes what a layered mesh does: the inverse of `from_torch`.

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
                            "module; use MeshLayer.from_mesh(mesh), which takes any mesh")  # fmt: skip
        kind, options = MODULES[names[0]]
        modules += [] if kind is nn.Identity else [kind(**options)]
        before = here
    return nn.Sequential(*modules)


def _levels(mesh: Mesh) -> IntArray:
    """Return the layer of every neuron: inputs and bias 0, outputs the last; refuse a graph that is not layered."""
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
    raise MeshError(f"this mesh is not layered, so it is no nn.Sequential: {why}; use MeshLayer.from_mesh(mesh)")


def _spread(level: IntArray, src: Array, dst: Array) -> None:
    """Set levels along edges, both ways, until nothing new is reached."""
    while True:
        on, back = (level[src] >= 0) & (level[dst] < 0), (level[dst] > 0) & (level[src] < 0)
        if not on.any() and not back.any():
            return
        level[dst[on]] = level[src[on]] + 1
        back &= level[src] < 0
        level[src[back]] = level[dst[back]] - 1
