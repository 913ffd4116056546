"""`MeshLayer`: a net of any graph as a layer of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike

from meshnn.errors import DataError, MeshError
from meshnn.integrations import torch_ops
from meshnn.integrations.torch_ops import DTYPES, LayerSpec, Pullback
from meshnn.mesh import Mesh
from meshnn.topology import Topology

__all__ = ["MeshLayer"]


class MeshLayer(torch.nn.Module):
    """A net of any directed graph as an `nn.Module`, with meshnn's forward and backward kernels on the CPU.

    It works wherever a layer does: in `nn.Sequential`, optimisers, `torch.func`, `torch.compile(fullgraph=True)`,
    `deepcopy`, `state_dict`, DDP. Tensors on the CPU are used in place. Other devices and second derivatives use plain
    PyTorch operations. Under `torch.autocast` it computes in the dtype of its weights.

    Parameters
    ----------
    topology : Topology
    ticks : int, optional
        As for `Mesh`; inputs are held during all ticks.
    activation : str or sequence of str
    output_activation : str
    weights : array_like (n_edges,), optional
        By default drawn as for a `Mesh`.
    dtype : torch.float32 or torch.float64
    random_state : int, Generator, SeedSequence or None
        Source of the default weights; None draws a seed from PyTorch (`torch.manual_seed`).
    tied : array_like of int (n_edges,), optional
        Tied and fixed edges, as for `Mesh`.
    pure : bool
        Use plain PyTorch operations also on the CPU: much slower, with derivatives of any kind and order.

    Attributes
    ----------
    weight : Parameter (n_parameters,)
        The learned parameters; without ties, one weight per edge.
    edge_index : buffer (2, n_edges)
        Sources and destinations. Neurons are numbered inputs, bias, hidden, outputs.
    fixed : buffer (n_fixed,) or None
        Weights of the fixed edges.

    Examples
    --------
    >>> import torch
    >>> from meshnn import Topology
    >>> from meshnn.torch import MeshLayer
    >>> layer = MeshLayer(Topology.mesh(4, 10, 3, density=0.5, random_state=0), random_state=0)
    >>> layer
    MeshLayer(4 inputs + bias, 10 hidden, 3 outputs, 114 edges, 4 ticks)
    >>> y = layer(torch.ones(5, 4))
    >>> y.sum().backward()
    >>> y.shape, layer.weight.grad.shape
    (torch.Size([5, 3]), torch.Size([114]))
    """

    weight: torch.nn.Parameter
    edge_index: torch.Tensor
    fixed: torch.Tensor | None

    def __init__(
        self,
        topology: Topology,
        ticks: int | None = None,
        activation: str | Sequence[str] = "relu",
        output_activation: str = "identity",
        weights: ArrayLike | None = None,
        dtype: torch.dtype = torch.float32,
        random_state: Any = None,
        tied: ArrayLike | None = None,
        *,
        pure: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(weights, torch.Tensor):
            weights = weights.numpy(force=True)
        seed = _seed() if random_state is None and weights is None else random_state
        self._set(Mesh(topology, ticks, activation, output_activation, weights, _name(dtype), seed, tied), pure)

    @classmethod
    def from_mesh(cls, mesh: Mesh, *, pure: bool = False) -> Self:
        """Return a layer with the graph, activations and ties of a mesh, and a copy of its weights.

        >>> from meshnn import Mesh, Topology
        >>> from meshnn.torch import MeshLayer
        >>> m = Mesh(Topology.layered([2, 3, 1]), random_state=0)
        >>> bool((MeshLayer.from_mesh(m).mesh().weights == m.weights).all())
        True
        """
        if not isinstance(mesh, Mesh):
            raise MeshError(f"from_mesh takes a Mesh, got {type(mesh).__name__}; for an estimator, pass `mesh_`")
        layer = cls.__new__(cls)
        torch.nn.Module.__init__(layer)
        layer._set(mesh, pure)
        return layer

    def _set(self, mesh: Mesh, pure: bool) -> None:
        t, count = mesh.topology, mesh.n_parameters
        self.pure = bool(pure)
        self.spec = LayerSpec.of(mesh)
        self.weight = torch.nn.Parameter(torch.from_numpy(mesh.values[:count].copy()))
        self.register_buffer("edge_index", torch.from_numpy(np.stack([t.src, t.dst]).astype(np.int64)))
        fixed = torch.from_numpy(mesh.values[count:].copy()) if mesh.ties.n_numbers > count else None
        self.register_buffer("fixed", fixed)
        self._has_fixed = fixed is not None  # looking up a buffer takes as long as the rest of a small layer

    @property
    def topology(self) -> Topology:
        """The graph."""
        return self.spec.topology

    @property
    def ticks(self) -> int:
        """Number of ticks."""
        return self.spec.ticks

    def mesh(self) -> Mesh:
        """Return a `Mesh` with a copy of the current weights, to save, explain, plot or train it."""
        spec = self.spec
        weights = self._values().numpy(force=True)[spec.ties.number]
        made = Mesh(spec.topology, spec.ticks, weights=weights, dtype=_name(self.weight.dtype))
        made.replace(spec.topology, weights, spec.codes, spec.ties)
        return made

    def reset_parameters(self, random_state: Any = None) -> None:
        """Draw new weights; fixed weights do not change."""
        seed = _seed() if random_state is None else random_state
        fresh = self.mesh().draw_weights(seed)[self.spec.ties.first][: len(self.weight)]
        with torch.no_grad():
            self.weight.copy_(torch.from_numpy(fresh))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return outputs `(..., n_outputs)` of samples `(..., n_inputs)`."""
        x, values = self._converted(x), self._values()
        if not self.pure and x.is_cpu and values.is_cpu:
            return torch_ops.run(x, values, self.spec)
        self.spec.check(x, values)
        if x.device != values.device:
            raise MeshError(f"x is on {x.device}, but the weights are on {values.device}; move one of them with .to")
        return self.spec.pure(x, values)

    def vjp(self, x: torch.Tensor) -> tuple[torch.Tensor, Pullback]:
        """Return outputs and a function from dE/dy to (dE/dweight, dE/dx): a gradient without autograd.

        It is faster than autograd for loops that compute dE/dy. x must be on the CPU.

        >>> import torch
        >>> from meshnn import Topology
        >>> from meshnn.torch import MeshLayer
        >>> layer = MeshLayer(Topology.layered([2, 1], bias=False), weights=[3.0, 4.0])
        >>> y, pull = layer.vjp(torch.ones(1, 2))
        >>> y.item(), [d.tolist() for d in pull(torch.ones(1, 1))]
        (7.0, [[1.0, 1.0], [[3.0, 4.0]]])
        """
        x, values = self._converted(x), self._values()
        if not (x.is_cpu and values.is_cpu):
            raise MeshError(f"vjp runs on the CPU, got x on {x.device} and weights on {values.device}; use autograd")
        return torch_ops.vjp(x, values, self.spec)

    def _converted(self, x: torch.Tensor) -> torch.Tensor:
        """Return x, under autocast in the dtype of the weights, because the engine has no half precision."""
        if not isinstance(x, torch.Tensor):
            raise DataError(f"x must be a tensor, got {type(x).__name__}; torch.as_tensor(x) makes one")
        if x.dtype in (torch.bfloat16, torch.float16) and torch.is_autocast_enabled(x.device.type):
            return x.to(self.weight.dtype)
        return x

    def _values(self) -> torch.Tensor:
        if not self._has_fixed:
            return self.weight
        assert self.fixed is not None
        return torch.cat([self.weight, self.fixed])

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        given, errors = state_dict.get(f"{prefix}edge_index"), rest[-1]
        if given is not None and not torch.equal(given.to(self.edge_index.device), self.edge_index):
            errors.append(f"{prefix}edge_index belongs to another graph; create the layer from the saved topology")
        else:
            super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        """Return the sizes."""
        text = repr(self.topology)
        return f"{text[text.index('(') + 1 : -1]}, {self.ticks} ticks{', pure' if self.pure else ''}"


def _name(dtype: Any) -> str:
    if dtype not in DTYPES:
        raise MeshError(f"dtype must be torch.float32 or torch.float64, got {dtype!r}")
    return DTYPES[dtype]


def _seed() -> int:
    return int(torch.randint(2**31 - 1, ()))
