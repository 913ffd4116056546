"""`MeshLayer`: a net of any graph as a layer of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike

from meshnn.errors import DataError, MeshError
from meshnn.integrations.torch_ops import Pull, Wiring, pulled, run
from meshnn.mesh import Mesh
from meshnn.topology import Topology

__all__ = ["MeshLayer"]

_DTYPES = {torch.float32: "float32", torch.float64: "float64"}


class MeshLayer(torch.nn.Module):
    """A net of any directed graph as an `nn.Module`, run forward and backward by meshnn's kernels on the CPU.

    It goes wherever a layer goes: into `nn.Sequential`, optimisers, `torch.func`, `torch.compile(fullgraph=True)`,
    `deepcopy`, `state_dict`, DDP. Tensors on the CPU are read and written where they lie. Tensors elsewhere run in
    plain operations of PyTorch, as do second derivatives.

    Parameters
    ----------
    topology : Topology
    ticks : int, optional
        As for `Mesh`; inputs are held during all of them.
    activation : str or sequence of str
    output_activation : str
    weights : array_like (n_edges,), optional
        By default drawn as those of a `Mesh` are.
    dtype : torch.float32 or torch.float64
    random_state : int, Generator, SeedSequence or None
        Source of the default weights; None takes a seed from PyTorch, so that `torch.manual_seed` decides.
    parameter : array_like of int (n_edges,), optional
        Tied and fixed edges, as for `Mesh`.
    pure : bool
        Run in plain operations of PyTorch on the CPU, too: slower by far, but with derivatives of any kind and order.

    Attributes
    ----------
    weight : Parameter (n_parameters,)
        What is learned; without ties the weights of the edges.
    edge_index : buffer (2, n_edges)
        Sources and destinations. Neurons are numbered inputs, bias, hidden, outputs.
    fixed : buffer (n_fixed,) or None
        Weights of the edges that are fixed.

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
        parameter: ArrayLike | None = None,
        *,
        pure: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(weights, torch.Tensor):
            weights = weights.numpy(force=True)
        seed = _seed() if random_state is None and weights is None else random_state
        self._set(Mesh(topology, ticks, activation, output_activation, weights, _name(dtype), seed, parameter), pure)

    @classmethod
    def from_mesh(cls, mesh: Mesh, *, pure: bool = False) -> Self:
        """A layer with graph, activations, ties and a copy of the weights of a mesh; inverse of `mesh`.

        >>> from meshnn import Mesh, Topology
        >>> from meshnn.torch import MeshLayer
        >>> m = Mesh(Topology.layered([2, 3, 1]), random_state=0)
        >>> bool((MeshLayer.from_mesh(m).mesh().weights == m.weights).all())
        True
        """
        if not isinstance(mesh, Mesh):
            raise MeshError(f"from_mesh takes a Mesh, got {type(mesh).__name__}; an estimator has one, `mesh_`")
        layer = cls.__new__(cls)
        torch.nn.Module.__init__(layer)
        layer._set(mesh, pure)
        return layer

    def _set(self, mesh: Mesh, pure: bool) -> None:
        t, count = mesh.topology, mesh.n_parameters
        self.pure = bool(pure)
        self.wiring = Wiring.of(mesh)
        self._key = self.wiring.key
        self.weight = torch.nn.Parameter(torch.from_numpy(mesh.values[:count].copy()))
        self.register_buffer("edge_index", torch.from_numpy(np.stack([t.src, t.dst]).astype(np.int64)))
        fixed = torch.from_numpy(mesh.values[count:].copy()) if mesh.ties.n_numbers > count else None
        self.register_buffer("fixed", fixed)
        self._fixes = fixed is not None

    @property
    def topology(self) -> Topology:
        """The graph."""
        return self.wiring.topology

    @property
    def ticks(self) -> int:
        """How often states are passed on."""
        return self.wiring.ticks

    def mesh(self) -> Mesh:
        """A `Mesh` with a copy of the current weights: to save, explain, plot or train it."""
        w = self.wiring
        weights = self._values().numpy(force=True)[w.ties.number]
        made = Mesh(w.topology, w.ticks, weights=weights, dtype=_name(self.weight.dtype))
        made.replace(w.topology, weights, w.codes, w.ties)
        return made

    def reset_parameters(self, random_state: Any = None) -> None:
        """Draw the weights anew; fixed ones stay."""
        seed = _seed() if random_state is None else random_state
        fresh = self.mesh().draw_weights(seed)[self.wiring.ties.first][: len(self.weight)]
        with torch.no_grad():
            self.weight.copy_(torch.from_numpy(fresh))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs `(..., n_outputs)` of samples `(..., n_inputs)`."""
        if not isinstance(x, torch.Tensor):
            raise DataError(f"x must be a tensor, got {type(x).__name__}; torch.as_tensor(x) makes one")
        values = self._values()
        if self.pure or not (x.is_cpu and values.is_cpu):
            self.wiring.check(x, values)
            if x.device != values.device:
                raise MeshError(
                    f"x is on {x.device}, but the weights are on {values.device}; move one of them with .to"
                )
            return self.wiring.pure(x, values)
        return run(x, values, self.wiring, self._key)

    def _values(self) -> torch.Tensor:
        if not self._fixes:  # to ask for a buffer takes as long as to ask for all else
            return self.weight
        assert self.fixed is not None
        return torch.cat([self.weight, self.fixed])

    def vjp(self, x: torch.Tensor) -> tuple[torch.Tensor, Pull]:
        """Outputs, and a function from dE/dy to (dE/dweight, dE/dx): a gradient without autograd, in half the time.

        For loops that know dE/dy by themselves; nothing is recorded. x must be on the CPU.

        >>> import torch
        >>> from meshnn import Topology
        >>> from meshnn.torch import MeshLayer
        >>> layer = MeshLayer(Topology.layered([2, 1], bias=False), weights=[3.0, 4.0])
        >>> y, pull = layer.vjp(torch.ones(1, 2))
        >>> y.item(), [d.tolist() for d in pull(torch.ones(1, 1))]
        (7.0, [[1.0, 1.0], [[3.0, 4.0]]])
        """
        if not isinstance(x, torch.Tensor):
            raise DataError(f"x must be a tensor, got {type(x).__name__}; torch.as_tensor(x) makes one")
        if not (x.is_cpu and self.weight.is_cpu):
            raise MeshError(
                f"vjp runs on the CPU, got x on {x.device} and weights on {self.weight.device}; use autograd"
            )
        values, count = self._values(), self.wiring.ties.n_parameters
        y, pull = pulled(x, values, self.wiring)
        return y, pull if not self._fixes else lambda dy: _first(*pull(dy), count)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        given, errors = state_dict.get(f"{prefix}edge_index"), rest[-1]
        if given is not None and not torch.equal(given.to(self.edge_index.device), self.edge_index):
            errors.append(
                f"{prefix}edge_index is of another graph: {given.shape[-1]} edges, where this layer has "
                f"{self.edge_index.shape[-1]}, or others; build the MeshLayer from the topology that was saved, "
                "for example Topology(n_inputs, n_hidden, n_outputs, edge_index.T)"
            )
            return
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        """Sizes."""
        text = repr(self.topology)
        return f"{text[text.index('(') + 1 : -1]}, {self.ticks} ticks{', pure' if self.pure else ''}"


def _first(by_values: torch.Tensor, by_x: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return by_values[:count], by_x


def _name(dtype: Any) -> str:
    if dtype not in _DTYPES:
        raise MeshError(f"dtype must be torch.float32 or torch.float64, got {dtype!r}")
    return _DTYPES[dtype]


def _seed() -> int:
    return int(torch.randint(2**31 - 1, ()))
