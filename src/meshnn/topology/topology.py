"""`Topology`: an immutable directed graph of inputs, bias, hidden neurons and outputs."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence, Sized
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshnn.arguments import as_list, switch, whole_number
from meshnn.arrays import Array, BoolArray, EdgeArray, IntArray
from meshnn.errors import TopologyError
from meshnn.memory import check_fits
from meshnn.topology import convert, reach
from meshnn.topology.builders import GraphFamilies, Seed

__all__ = ["Topology"]


class Topology(GraphFamilies):
    """A directed graph of neurons, without weights.

    Neurons are numbered in the order inputs, bias neuron (if any), hidden, outputs. All edges are allowed: cycles,
    self-loops, and edges into inputs, which are always dead because inputs are clamped. The edges are the int32 arrays
    `src` and `dst`, sorted by (destination, source).

    Parameters
    ----------
    n_inputs, n_hidden, n_outputs : int
        Features, hidden neurons, outputs. The bias neuron is not counted in `n_inputs`.
    edges : array_like of int, shape (n_edges, 2)
        Pairs (source, destination).
    bias : bool
        Whether neuron `n_inputs` is a bias neuron with the constant state 1. Its edges are ordinary edges.

    Examples
    --------
    >>> from meshnn import Topology
    >>> t = Topology(1, 1, 1, [(0, 2), (2, 3), (2, 2)])      # x -> h -> y, h feeds itself; neuron 1 is the bias
    >>> t
    Topology(1 inputs + bias, 1 hidden, 1 outputs, 3 edges)
    >>> t.dead_edges(ticks=2).tolist()                       # in order of (destination, source)
    [False, True, False]
    """

    def __init__(self, n_inputs: int, n_hidden: int, n_outputs: int, edges: ArrayLike, bias: bool = True) -> None:
        self.n_inputs = whole_number("n_inputs", n_inputs, least=1)
        self.n_hidden = whole_number("n_hidden", n_hidden, least=0)
        self.n_outputs = whole_number("n_outputs", n_outputs, least=1)
        self.bias = switch("bias", bias)
        if self.n_neurons >= 2**31:
            raise TopologyError(f"a topology has fewer than 2**31 neurons, got {self.n_neurons:,}")
        check_fits(self.n_neurons * 64.0, f"a graph of {self.n_neurons:,} neurons", "take fewer neurons")
        pairs = self._checked(edges)
        # sort both ends in one word: argsort would need a 64-bit index per edge
        keys = pairs[:, 1].astype(np.uint64)
        keys <<= np.uint64(32)
        keys |= pairs[:, 0].astype(np.uint32)
        if not (keys[1:] > keys[:-1]).all():
            keys.sort()
        self.src: EdgeArray = keys.astype(np.uint32).view(np.int32)  # the lower half of each word
        same = keys[1:] == keys[:-1]
        keys >>= np.uint64(32)
        self.dst: EdgeArray = keys.astype(np.int32)
        if same.any():
            k = int(np.flatnonzero(same)[0])
            raise TopologyError(
                f"edge ({self.src[k]}, {self.dst[k]}) is given twice ({int(same.sum())} duplicates in all); "
                "give each pair once, for example with np.unique(edges, axis=0)"
            )
        self.src.setflags(write=False)
        self.dst.setflags(write=False)
        self._frozen = True

    def __setattr__(self, name: str, value: object) -> None:
        if getattr(self, "_frozen", False):
            raise AttributeError(f"a Topology is frozen, {name!r} cannot be set; build a new one")
        super().__setattr__(name, value)

    def _checked(self, edges: ArrayLike) -> Array:
        try:
            raw = np.empty(0) if isinstance(edges, np.ma.MaskedArray) else np.asarray(edges)
        except ValueError:  # rows of different lengths
            raw = np.empty(0)
        if raw.size == 0 and isinstance(edges, Sized) and len(edges) == 0:
            return np.empty((0, 2), dtype=np.int64)
        if raw.ndim != 2 or raw.shape[1] != 2:
            raise TopologyError(
                f"edges must be a list of pairs (source, destination) or an array of shape (n_edges, 2), got "
                f"{type(edges).__name__} of shape {raw.shape}"
            )
        if raw.dtype.kind == "f" and np.isfinite(raw).all() and np.array_equal(raw, np.trunc(raw)):
            raw = raw.astype(np.float64)
        elif raw.dtype.kind not in "iu":
            raise TopologyError(f"edges must hold whole neuron numbers, got dtype {raw.dtype}: {raw[:4].tolist()}")
        if raw.min() < 0 or raw.max() >= self.n_neurons:
            outside = (raw < 0) | (raw >= self.n_neurons)
            k = int(np.flatnonzero(outside.any(axis=1))[0])
            raise TopologyError(
                f"edge {k} is ({raw[k, 0]}, {raw[k, 1]}), but the neurons are 0 to {self.n_neurons - 1} "
                f"({self._layout()}); {int(outside.any(axis=1).sum())} edges are out of range"
            )
        return raw

    # -- other kinds of graphs --------------------------------------------------------------------------------------

    @classmethod
    def from_adjacency(cls, A: Any, n_inputs: int, n_outputs: int, bias: bool = False) -> Topology:
        """Return the graph of a square matrix: its non-zero entries, or the stored entries if it is scipy.sparse.

        `A[i, j]` is the edge from i to j. With `bias`, the first neuron after the inputs is the bias neuron.

        >>> from meshnn import Topology
        >>> Topology.from_adjacency([[0, 1, 0], [0, 0, 1], [0, 0, 0]], n_inputs=1, n_outputs=1)
        Topology(1 inputs, 1 hidden, 1 outputs, 2 edges)
        """
        n, edges, _ = convert.adjacency_entries(A)
        left = n - whole_number("n_inputs", n_inputs, 1) - bool(bias) - whole_number("n_outputs", n_outputs, 1)
        if left < 0:
            raise TopologyError(f"a matrix of {n} neurons is too small for {n_inputs} inputs and {n_outputs} outputs")
        return cls(n_inputs, left, n_outputs, edges, bias=bias)

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        inputs: Sequence[Hashable] | None = None,
        outputs: Sequence[Hashable] | None = None,
        bias: Hashable | None = None,
    ) -> Topology:
        """Return the topology of a `networkx.DiGraph`: the inverse of `to_networkx`.

        `inputs`, `outputs` and `bias` name nodes; by default they are those with the attribute `role` "input", "output"
        and "bias". All other nodes are hidden.

        >>> from meshnn import Topology
        >>> t = Topology.cascade(2, 3, 1)
        >>> Topology.from_networkx(t.to_networkx()) == t
        True
        """
        first = None if inputs is None else as_list("inputs", inputs)
        last = None if outputs is None else as_list("outputs", outputs)
        neurons, n_inputs, n_outputs, has_bias = convert.networkx_nodes(graph, first, last, bias)
        n_hidden = len(neurons) - n_inputs - n_outputs - has_bias
        return cls(n_inputs, n_hidden, n_outputs, convert.networkx_edges(graph, neurons), bias=has_bias)

    def to_networkx(self) -> Any:
        """Return a `networkx.DiGraph` with nodes 0 to `n_neurons - 1` and their `role`."""
        from meshnn.integrations.networkx import build_digraph

        return build_digraph({"role": self.roles}, list(zip(self.src.tolist(), self.dst.tolist(), strict=True)))

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be stored as JSON; `Topology.from_dict` is its inverse."""
        return {
            **convert.HEADER,
            "n_inputs": self.n_inputs,
            "n_hidden": self.n_hidden,
            "n_outputs": self.n_outputs,
            "bias": self.bias,
            "edges": np.stack([self.src, self.dst], axis=1).tolist(),
        }

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Topology:
        """Return the topology of a dictionary that `to_dict` made.

        >>> from meshnn import Topology
        >>> t = Topology.cascade(2, 3, 1)
        >>> Topology.from_dict(t.to_dict()) == t
        True
        """
        d = convert.check_dict(d)
        return cls(d["n_inputs"], d["n_hidden"], d["n_outputs"], d["edges"], bias=d["bias"])

    def prune(
        self, fraction: float = 0.0, blocks: Mapping[str, float] | None = None, random_state: Seed = None
    ) -> Topology:
        """Return the graph without an exact, rounded fraction of its edges, chosen at random.

        Parameters
        ----------
        fraction : float
            Fraction of the edges to remove, except edges from the bias.
        blocks : dict, optional
            Other fractions for blocks of edges: {"I->H": 0.9} prunes edges from inputs to hidden neurons. Letters are I
            (inputs), B (bias), H (hidden) and O (outputs).
        random_state : int, Generator or None

        Examples
        --------
        >>> from meshnn import Topology
        >>> dense = Topology.mesh(32, 50, 10, self_loops=True, feedback=False)
        >>> dense.n_edges, dense.prune(0.8, random_state=0).n_edges
        (4980, 1044)
        >>> dense.prune(0.5, blocks={"H->H": 1.0}, random_state=0).n_edges        # no edge between hidden neurons
        1270
        """
        from meshnn.topology.pruning import prune

        return prune(self, fraction, blocks, random_state)

    # -- facts ---------------------------------------------------------------------------------------------------

    @property
    def n_clamped(self) -> int:
        """Number of neurons whose state is set from outside: the features and the bias."""
        return self.n_inputs + self.bias

    @property
    def n_neurons(self) -> int:
        """Number of neurons, including the bias."""
        return self.n_inputs + self.bias + self.n_hidden + self.n_outputs

    @property
    def n_edges(self) -> int:
        """Number of edges, including dead ones."""
        return len(self.src)

    @property
    def _shape(self) -> tuple[int, int, int, bool]:
        """The properties that graphs with the same neurons have in common."""
        return self.n_inputs, self.n_hidden, self.n_outputs, self.bias

    @property
    def inputs(self) -> IntArray:
        """Indices of the features, without the bias."""
        return np.arange(self.n_inputs, dtype=np.int64)

    @property
    def hidden(self) -> IntArray:
        """Indices of the hidden neurons."""
        return np.arange(self.n_clamped, self.n_clamped + self.n_hidden, dtype=np.int64)

    @property
    def outputs(self) -> IntArray:
        """Indices of the outputs, which are the last neurons."""
        return np.arange(self.n_neurons - self.n_outputs, self.n_neurons, dtype=np.int64)

    @property
    def roles(self) -> list[str]:
        """The role of each neuron: "input", "bias", "hidden" or "output"."""
        counts = [self.n_inputs, self.bias, self.n_hidden, self.n_outputs]
        return [str(role) for role in np.repeat(["input", "bias", "hidden", "output"], counts)]

    @cached_property
    def _distance(self) -> IntArray:
        return reach.output_distance(self.n_neurons, self.n_clamped, self.n_outputs, self.src, self.dst)

    @cached_property
    def _birth(self) -> IntArray:
        return reach.birth_ticks(self.n_neurons, self.n_clamped, self.src, self.dst)

    def birth_ticks(self, awake: BoolArray | None = None) -> IntArray:
        """Return the first tick at which each neuron can be non-zero; `awake` marks neurons with phi(0) != 0."""
        marks = _mask("awake", awake, self.n_neurons, False)
        if not marks.any():
            return self._birth
        return reach.birth_ticks(self.n_neurons, self.n_clamped, self.src, self.dst, marks)

    def dead_edges(self, ticks: int, awake: BoolArray | None = None) -> BoolArray:
        """Return a mask of the edges that cannot influence any output within `ticks`.

        `awake` (n_neurons,) marks neurons with phi(0) != 0, which can be non-zero without an input.

        >>> from meshnn import Topology
        >>> t = Topology.mesh(2, 5, 2)
        >>> int(t.dead_edges(2).sum()), int(t.dead_edges(3).sum()), t.n_edges
        (30, 0, 61)
        """
        ticks = whole_number("ticks", ticks, least=1)
        return self.birth_ticks(awake)[self.src] + 1 + self._distance[self.dst] > ticks

    def default_ticks(self, awake: BoolArray | None = None) -> int:
        """Return the default number of ticks of a mesh.

        For an acyclic graph, this is its longest path from input to output, so that a layered graph is a feed-forward
        net. Otherwise, it is the fewest ticks at which every edge that can ever influence an output does. Cycles that
        are on no path from an input to an output, and edges into inputs, do not count.

        >>> from meshnn import Topology
        >>> Topology.layered([2, 14, 13, 3]).default_ticks(), Topology.mesh(2, 5, 2).default_ticks()
        (3, 3)
        """
        longest = reach.longest_path(self.n_neurons, self._birth, self._distance, self.src, self.dst)
        if longest is not None:
            return max(longest, 1)
        fewest = reach.fewest_ticks(self.birth_ticks(awake), self._distance, self.src, self.dst)
        reached = self._birth[self.outputs]  # awake neurons may influence an output earlier than any input does
        return max(fewest, int(reached[reached < reach.NEVER].max(initial=1)))

    def check_reachable(self, ticks: int) -> None:
        """Raise a `TopologyError` if an output is not reached by any input (or the bias) within `ticks`."""
        ticks = whole_number("ticks", ticks)
        birth = self._birth[self.outputs]
        late = np.flatnonzero(birth > ticks)
        if late.size == 0:
            return
        o = int(late[0])
        name = f"output {o} (neuron {self.outputs[o]})"
        if self.n_edges == 0:
            raise TopologyError("the topology has no edges, so no output can ever change; add edges to every output")
        if birth[o] >= reach.NEVER:
            raise TopologyError(f"no input reaches {name} at any number of ticks; add a path of edges to it")
        needed = birth[birth < reach.NEVER].max()
        raise TopologyError(
            f"no input reaches {name} within {ticks} ticks; set ticks={needed} or more, or add a shorter path"
        )

    def components(self) -> IntArray:
        """Return the strong component of each neuron, -1 for inputs and bias.

        Two neurons are in the same component if each can influence the other within any number of ticks. Components are
        numbered so that no edge leads to a lower number.

        >>> from meshnn import Topology
        >>> Topology(1, 3, 1, [(0, 2), (2, 3), (3, 2), (3, 4), (4, 5)]).components().tolist()
        [-1, -1, 0, 0, 1, 2]
        """
        from meshnn.topology.components import components

        return components(self.n_neurons, self.n_clamped, self.src, self.dst)

    def influence_cost(self, learned: ArrayLike | None = None) -> int:
        """Return the multiply-adds per tick that carry all exact derivatives ds/dA forward on one stream.

        This is the sum, over edges i -> o between neurons that are not clamped, of the number of edges that can
        influence i. `learned` marks the edges whose derivative is needed; by default all.

        >>> from meshnn import Topology
        >>> Topology.columns(2, 10, 1).influence_cost(), Topology.mesh(2, 10, 1, self_loops=True).influence_cost()
        (80, 18360)
        """
        from meshnn.topology.components import influence_cost

        wanted = _mask("learned", learned, self.n_edges, True)
        return influence_cost(self.n_neurons, self.n_clamped, self.src, self.dst, wanted)

    # -- identity ------------------------------------------------------------------------------------------------

    @cached_property
    def _digest(self) -> bytes:
        found = hashlib.sha256(",".join(map(str, self._shape)).encode() + b";")
        for ends in (self.src, self.dst):  # in 64 bits, as in files
            for begin in range(0, len(ends), reach.BLOCK):
                found.update(ends[begin : begin + reach.BLOCK].astype(np.int64).data)
        return found.digest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"Topology({self._layout()}, {self.n_edges} edges)"

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_distance", "_birth", "_digest")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.src.setflags(write=False)
        self.dst.setflags(write=False)

    def _layout(self) -> str:
        bias = " + bias" if self.bias else ""
        return f"{self.n_inputs} inputs{bias}, {self.n_hidden} hidden, {self.n_outputs} outputs"


def _mask(name: str, given: ArrayLike | None, size: int, default: bool) -> BoolArray:
    mask = np.full(size, default) if given is None else np.asarray(given)
    if mask.shape != (size,) or mask.dtype != np.bool_:
        raise TopologyError(f"{name} must be a mask of shape ({size},), got {mask.dtype} of shape {mask.shape}")
    return mask
