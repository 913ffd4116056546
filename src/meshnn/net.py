"""`Net`: the data of a mesh (graph, ticks, activations, ties and weights), its files and conversions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from meshnn import checks, storage
from meshnn.arguments import as_generator, as_list, known, switch, whole_number
from meshnn.arrays import Array, BoolArray, IntArray
from meshnn.codes import ACTIVATIONS
from meshnn.engine import Engines
from meshnn.errors import MeshError
from meshnn.export.blueprint import Blueprint, Exports
from meshnn.memory import check_fits
from meshnn.parameters import Ties
from meshnn.topology import Topology
from meshnn.topology.builders import Seed
from meshnn.topology.lineage import Lineage
from meshnn.topology.reach import BLOCK, counted

__all__ = ["MOST_TICKS", "Net"]

#: Maximum number of ticks: planning more would take too long.
MOST_TICKS = 100_000


class Net(Exports):
    """A topology with ticks, activations and weights, see `Mesh`."""

    #: Ticks for which a stream holds each sample by default; None means `ticks`. May be set.
    ticks_per_sample: int | None = None

    def __init__(
        self,
        topology: Topology,
        ticks: int | None = None,
        activation: str | Sequence[str] = "relu",
        output_activation: str = "identity",
        weights: ArrayLike | None = None,
        dtype: Any = "float32",
        random_state: Seed = None,
        tied: ArrayLike | None = None,
    ) -> None:
        if not isinstance(topology, Topology):
            raise MeshError(f"topology must be a Topology, got {type(topology).__name__}; see Topology.from_adjacency")
        self._topology = topology
        self.lineage_: Lineage | None = None  # the changes that training made to the graph, if any
        self._dtype = checks.as_dtype(dtype)
        self._codes = checks.activation_codes(topology, activation, output_activation)
        self._ties = Ties(topology.n_edges, tied)
        self._engines = self._new_engines()
        self.ticks = topology.default_ticks(self.awake) if ticks is None else ticks
        self._values: Array | None = None
        self.weights = self.draw_weights(random_state) if weights is None else weights

    @classmethod
    def from_adjacency(
        cls,
        A: Any,
        n_inputs: int,
        n_outputs: int,
        bias: bool = False,
        *,
        ticks: int | None = None,
        activation: str | Sequence[str] = "relu",
        output_activation: str = "identity",
        dtype: Any = None,
    ) -> Self:
        """Return the mesh with the graph and the weights of a square matrix, dense or scipy.sparse.

        This is the inverse of `adjacency`. By default the dtype is float64 for a matrix of float64 (or wider), else
        float32.

        >>> import numpy as np
        >>> from meshnn import Mesh
        >>> Mesh.from_adjacency(np.array([[0, 2.0], [0, 0.5]]), n_inputs=1, n_outputs=1).weights
        array([2. , 0.5])
        """
        from meshnn.topology.convert import adjacency_entries

        topology = Topology.from_adjacency(A, n_inputs, n_outputs, bias=bias)
        values = adjacency_entries(A)[2]
        if dtype is None:
            dtype = "float64" if values.dtype.kind == "f" and values.dtype.itemsize >= 8 else "float32"
        return cls(topology, ticks, activation, output_activation, weights=values, dtype=dtype)

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        inputs: Sequence[Hashable] | None = None,
        outputs: Sequence[Hashable] | None = None,
        bias: Hashable | None = None,
        *,
        ticks: int | None = None,
        activation: str = "relu",
        output_activation: str = "identity",
    ) -> Self:
        """Return the mesh of a `networkx.DiGraph` whose edges have the attribute `weight`: inverse of `to_networkx`.

        Nodes are mapped to neurons as by `Topology.from_networkx`. Optional attributes are `activation` of nodes,
        `tied` of edges (as for `Mesh`, on all edges or none), and `ticks` and `dtype` of the graph.

        >>> from meshnn import Mesh, Topology
        >>> mesh = Mesh(Topology.cascade(2, 3, 1), activation="tanh", random_state=0)
        >>> bool((Mesh.from_networkx(mesh.to_networkx()).weights == mesh.weights).all())
        True
        """
        from meshnn.topology import convert

        topology = Topology.from_networkx(graph, inputs, outputs, bias)
        neurons, *_ = convert.networkx_nodes(graph, inputs, outputs, bias)
        edges = convert.networkx_edges(graph, neurons)
        order = np.lexsort((edges[:, 0], edges[:, 1]))
        found = [[d.get(name) for *_, d in graph.edges(data=True)] for name in ("weight", "tied")]
        weights, tied = ([values[e] for e in order] for values in found)
        if None in weights:
            raise MeshError(
                "every edge of the graph needs the attribute weight; for a graph without weights use "
                "Topology.from_networkx"
            )
        default = [activation] * topology.n_hidden + [output_activation] * topology.n_outputs
        free = list(neurons)[topology.n_clamped :]
        given = [graph.nodes[node].get("activation", name) for node, name in zip(free, default, strict=True)]
        mesh = cls(
            topology, weights=weights, dtype=graph.graph.get("dtype", "float32"),
            tied=None if None in tied else tied,
        )  # fmt: skip
        mesh.activations = given
        ticks = graph.graph.get("ticks") if ticks is None else ticks
        mesh.ticks = topology.default_ticks(mesh.awake) if ticks is None else ticks
        return mesh

    def to_networkx(self) -> Any:
        """Return a `networkx.DiGraph` with the attributes that `from_networkx` reads."""
        from meshnn.integrations.networkx import build_digraph

        t = self._topology
        edges = {"weight": self.weights.tolist(), "tied": self.tied.tolist()}
        ends = list(zip(t.src.tolist(), t.dst.tolist(), strict=True))
        nodes: dict[str, Sequence[Any]] = {"role": t.roles, "activation": [None] * t.n_clamped + self.activations}
        return build_digraph(nodes, ends, edges, ticks=self.ticks, dtype=self._dtype.name)

    # -- files ---------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the mesh atomically to a `.mesh` file, which `meshnn.load` reads."""
        self._checked()
        storage.write(path, self.to_tree() | {"kind": "mesh"})

    def to_tree(self) -> storage.Tree:
        """Return the mesh as plain values and arrays."""
        t = self._topology
        names = sorted(set(self.activations))
        # one byte per neuron, so that a small file cannot describe a mesh that fills the memory
        kinds = np.zeros(t.n_neurons, np.uint8)
        kinds[t.n_clamped :] = [names.index(name) for name in self.activations]
        tree = {"n_inputs": t.n_inputs, "n_hidden": t.n_hidden, "n_outputs": t.n_outputs, "bias": t.bias,
                "src": t.src.astype(np.int64), "dst": t.dst.astype(np.int64),
                "weights": self.weights.copy(), "dtype": self._dtype.name,
                "ticks": self.ticks, "activations": names, "kinds": kinds}  # fmt: skip
        if not self._ties.plain:
            tree["tied"] = self.tied
        if self.ticks_per_sample is not None:
            tree["ticks_per_sample"] = self.ticks_per_sample
        return tree if self.lineage_ is None else tree | {"lineage": self.lineage_.to_tree()}

    @classmethod
    def from_tree(cls, tree: storage.Tree) -> Self:
        """Return the mesh of a tree from `to_tree`; the tree is checked, because it may come from an unknown source."""
        names = ("n_inputs", "n_hidden", "n_outputs")
        n_inputs, n_hidden, n_outputs = (whole_number(name, tree[name], least=0) for name in names)
        bias, dtype = switch("bias", tree["bias"]), known("dtype", tree["dtype"], ("float32", "float64"))
        kinds, n_neurons = tree["kinds"], n_inputs + bias + n_hidden + n_outputs
        if kinds.shape != (n_neurons,) or kinds.dtype != np.uint8:
            raise MeshError(
                f"kinds must hold one uint8 activation for each of {n_neurons} neurons, got shape {kinds.shape} of "
                f"{kinds.dtype}"
            )
        edges = np.stack([tree["src"], tree["dst"]], axis=1)
        topology = Topology(n_inputs, n_hidden, n_outputs, edges, bias)
        if not np.array_equal(edges[:, 0], topology.src) or not np.array_equal(edges[:, 1], topology.dst):
            raise MeshError(
                "the edges are not sorted by destination and source, so the order of the weights is unknown"
            )
        mesh = cls(topology, whole_number("ticks", tree["ticks"]), weights=tree["weights"], dtype=dtype,
                   tied=tree.get("tied"))  # fmt: skip
        used = as_list("activations", tree["activations"])
        mesh.activations = [used[kind] for kind in kinds[topology.n_clamped :].tolist()]
        if "ticks_per_sample" in tree:
            mesh.ticks_per_sample = whole_number("ticks_per_sample", tree["ticks_per_sample"], most=10_000)
        if "lineage" in tree:
            mesh.lineage_ = Lineage.from_tree(tree["lineage"], topology)
        return mesh

    def blueprint(self) -> Blueprint:
        """Return the computation as plain values and arrays, from which exports are written."""
        self._checked()
        t = self._topology
        return Blueprint(
            t.n_inputs, t.n_hidden, t.n_outputs, t.bias, t.src.astype(np.int64), t.dst.astype(np.int64),
            self.weights.astype(np.float64), tuple(self.activations), self.ticks, self._dtype.name,
            title=repr(self),
        )  # fmt: skip

    # -- properties ----------------------------------------------------------------------------------------------

    @property
    def topology(self) -> Topology:
        """The graph; `rewire` changes it."""
        return self._topology

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""
        return self._dtype

    @property
    def ticks(self) -> int:
        """Number of state transitions; may be set."""
        return self._ticks

    @ticks.setter
    def ticks(self, ticks: int) -> None:
        ticks = whole_number("ticks", ticks, most=MOST_TICKS)
        self._topology.check_reachable(ticks)
        advice = "take fewer ticks"
        check_fits(float(ticks) * self._topology.n_neurons * 4, f"planning {ticks} ticks", advice)
        self._ticks = ticks

    @property
    def weights(self) -> Array:
        """The weights of the edges `(n_edges,)`, aligned with `topology.src` and `topology.dst`; may be set.

        The array may also be changed in place, unless edges are tied or fixed: then it is a read-only copy.
        """
        if self._ties.plain:
            return self.values
        weights = self.values[self._ties.number]
        weights.flags.writeable = False
        return weights

    @weights.setter
    def weights(self, weights: ArrayLike) -> None:
        values = self._ties.numbers(checks.as_weights(weights, self._topology.n_edges, self._dtype))
        if self._values is None or not self._values.flags.writeable or self._values.shape != values.shape:
            self._values = values
        else:
            self._values[:] = values  # in place, because a stream may train this array

    @property
    def parameters(self) -> Array:
        """The trained parameters `(n_parameters,)`; may be set or changed in place. Without ties, the weights."""
        return self.values[: self.n_parameters]

    @parameters.setter
    def parameters(self, parameters: ArrayLike) -> None:
        self.values[: self.n_parameters] = checks.as_weights(parameters, self.n_parameters, self._dtype, "parameter")

    @property
    def tied(self) -> IntArray:
        """The index of each edge's parameter `(n_edges,)`, -1 if its weight is fixed."""
        return self._ties.tied

    @property
    def n_parameters(self) -> int:
        """Number of trained parameters."""
        return self._ties.n_parameters

    @property
    def ties(self) -> Ties:
        """The map from edges to `values`."""
        return self._ties

    @property
    def values(self) -> Array:
        """All distinct weights `(ties.n_numbers,)`: the parameters, then the weights of fixed edges."""
        assert self._values is not None
        return self._values

    @property
    def activations(self) -> list[str]:
        """The activation of every neuron that is not clamped, hidden first, then outputs; may be set."""
        names = {code: name for name, code in ACTIVATIONS.items()}
        return [names[code] for code in self._codes[self._topology.n_clamped :].tolist()]

    @activations.setter
    def activations(self, names: Sequence[str]) -> None:
        codes = [ACTIVATIONS[known("activation", name, ACTIVATIONS)] for name in as_list("activations", names)]
        first = self._topology.n_clamped
        self.replace(self._topology, self.weights, np.append(self._codes[:first], codes), self._ties)

    @property
    def awake(self) -> BoolArray:
        """Mask of the neurons whose activation is not 0 at 0: their states are non-zero from the first tick on."""
        return self._engines.awake.copy()

    def dead_edges(self) -> BoolArray:
        """Return the mask of the edges that cannot influence any output with these ticks and activations.

        The gradient of a dead edge is 0.
        """
        return self._topology.dead_edges(self.ticks, self.awake)

    def live_parameters(self) -> IntArray:
        """Return the indices of the parameters that can influence an output: those with an edge that is not dead."""
        return np.flatnonzero(self._ties.total(~self.dead_edges()))

    def with_parameters(self, parameters: Array) -> Self:
        """Return a copy with these parameters; the graph is shared."""
        found = copy(self)
        found._values = np.concatenate([parameters, self.values[self.n_parameters :]])
        return found

    def adjacency(self) -> Any:
        """Return the weights as a `scipy.sparse.csr_array` `(n_neurons, n_neurons)`; edges of weight 0 stay stored."""
        from scipy import sparse

        t = self._topology
        return sparse.csr_array((self.weights.copy(), (t.src, t.dst)), shape=(t.n_neurons, t.n_neurons))

    def rewire(self, topology: Topology, weights: ArrayLike | None = None) -> None:
        """Replace the edges in place; the neurons stay the same.

        Edges that stay keep their parameter. Without `weights` they keep their weight, too, and new edges start at 0.
        """
        if not isinstance(topology, Topology):
            raise MeshError(f"topology must be a Topology, got {type(topology).__name__}; see Topology.from_adjacency")
        old = self._topology
        if topology._shape != old._shape:
            raise MeshError(f"rewire keeps the neurons of {old!r}, got {topology!r}; build a new Mesh instead")
        n = old.n_neurons
        before, after = (g.dst * np.int64(n) + g.src for g in (old, topology))
        _, kept_old, kept_new = np.intersect1d(before, after, assume_unique=True, return_indices=True)
        origin = np.full(topology.n_edges, -1)
        origin[kept_new] = kept_old
        if weights is None:
            weights = np.where(origin >= 0, self.weights[origin], 0.0)
        self.replace(topology, weights, self._codes, self._ties.edited(origin)[0])

    def replace(self, topology: Topology, weights: ArrayLike, codes: ArrayLike, ties: Ties | None = None) -> None:
        """Replace graph, weights, activations (see `codes`) and ties in place; an error leaves the mesh unchanged.

        The inputs, the bias and the ticks stay. Without `ties` every edge has its own parameter.
        """
        kinds = np.asarray(codes)
        if kinds.shape != (topology.n_neurons,) or not np.isin(kinds, list(ACTIVATIONS.values())).all():
            raise MeshError(f"codes must hold one activation for each of {topology.n_neurons} neurons")
        topology.check_reachable(self.ticks)
        ties = Ties(topology.n_edges) if ties is None else ties
        self._values = ties.numbers(checks.as_weights(weights, topology.n_edges, self._dtype))
        self._topology, self._ties, self._codes = topology, ties, kinds.astype(np.int64)
        self._engines = self._new_engines()

    @property
    def codes(self) -> IntArray:
        """The code of every neuron's activation `(n_neurons,)`, see `meshnn.codes`."""
        return self._codes.copy()

    def _checked(self) -> Array:
        checks.check_current_weights(self.values, self._ties.n_numbers)
        return self.values

    def _current(self) -> Array:
        """Return the values for an engine, which itself raises for values that are not finite."""
        assert self._values is not None
        if self._values.shape != (self._ties.n_numbers,):
            checks.check_current_weights(self._values, self._ties.n_numbers)
        return self._values

    def _new_engines(self) -> Engines:
        number = None if self._ties.plain else self._ties.number
        return Engines(self._topology, self._codes, self._dtype, number, self._ties.n_numbers)

    def draw_weights(self, random_state: Seed = None) -> Array:
        """Return random weights as a new mesh has them, without setting them. Fixed edges keep their weights.

        They are normal, scaled so that the variance of a neuron's sum is about 1 (2 into relu), and 0 on bias edges.
        """
        t, rng = self._topology, as_generator(random_state)
        bias = (t.src == t.n_inputs) if t.bias else np.zeros(t.n_edges, dtype=np.bool_)
        fan_in = np.maximum(counted(t.n_neurons, t.dst) - counted(t.n_neurons, t.dst[bias]), 1)
        gain = np.where(self._codes == ACTIVATIONS["relu"], np.sqrt(2.0), 1.0)
        scale = gain / np.sqrt(fan_in)
        weights: Array = rng.standard_normal(t.n_edges)
        for begin in range(0, t.n_edges, BLOCK):
            weights[begin : begin + BLOCK] *= scale[t.dst[begin : begin + BLOCK]]
        weights[bias] = 0.0
        if self._ties.plain:
            return weights
        weights = weights[self._ties.first][self._ties.number]
        return weights if self._values is None else np.where(self._ties.fixed, self.weights, weights)

    def __repr__(self) -> str:
        t = self._topology
        return (
            f"Mesh({t.n_inputs}-{t.n_hidden}-{t.n_outputs}{' + bias' if t.bias else ''}, {t.n_edges} edges, "
            f"{self.ticks} ticks, {self._dtype})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_engines"}  # plans are compiled again

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._engines = self._new_engines()
