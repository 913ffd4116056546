"""`Mesh`: a topology with ticks, activations and weights."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshnn import checks, storage
from meshnn.arguments import as_generator, as_list, known, switch, whole_number
from meshnn.arrays import Array, BoolArray, IntArray
from meshnn.codes import ACTIVATIONS
from meshnn.errors import MeshError
from meshnn.losses import Targets, loss_named
from meshnn.memory import check_fits
from meshnn.methods import Explanation
from meshnn.methods.prices import DEFAULT
from meshnn.parameters import Ties
from meshnn.program import Program, Programs
from meshnn.program.threads import thread_count
from meshnn.topology import Topology
from meshnn.topology.builders import Seed
from meshnn.topology.lineage import Lineage
from meshnn.topology.reach import BLOCK, counted

__all__ = ["Mesh"]

#: More than this and deciding how to run would take longer than anybody waits.
MOST_TICKS = 100_000


class Mesh:
    """A network: one weight per edge of a topology, run for a number of ticks.

    At every tick each neuron takes the weighted sum of the states its in-edges read one tick earlier and applies its
    activation; inputs are held at the sample. The outputs are read after the last tick. The paper's `n_t` counts
    states, so its n_t = 3 is `ticks=2` here.

    Parameters
    ----------
    topology : Topology
    ticks : int, optional
        By default `topology.default_ticks()`: enough that a layered graph is the feed-forward net and that in any other
        every edge that can count does.
    activation : str or sequence of str
        Of the hidden neurons: one name, or one per neuron. identity, relu, leaky_relu (slope 0.01), elu, softplus,
        sigmoid, tanh, sin, gauss (exp(-t^2)).
    output_activation : str
    weights : array_like (n_edges,), optional
        Aligned with `topology.src`, `topology.dst`. By default normal with variance 1 / fan-in (2 / fan-in into relu),
        and 0 on bias edges.
    dtype : "float32" or "float64"
    random_state : int, Generator, SeedSequence or None
        Source of the default weights.
    parameter : array_like of int (n_edges,), optional
        Which parameter each edge takes its weight from: edges with the same number are *tied* and learn one weight, -1
        is an edge whose weight is *fixed* and never learned. By default each edge has its own.

    Examples
    --------
    >>> import numpy as np
    >>> from meshnn import Mesh, Topology
    >>> m = Mesh(Topology.mesh(2, 5, 2), dtype="float64", random_state=0)
    >>> X, y = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0, 1])
    >>> m.forward(X).shape, m.ticks
    ((2, 2), 3)
    >>> loss, grad = m.gradient(X, y)
    >>> grad.shape
    (61,)
    """

    def __init__(
        self,
        topology: Topology,
        ticks: int | None = None,
        activation: str | Sequence[str] = "relu",
        output_activation: str = "identity",
        weights: ArrayLike | None = None,
        dtype: Any = "float32",
        random_state: Seed = None,
        parameter: ArrayLike | None = None,
    ) -> None:
        if not isinstance(topology, Topology):
            raise MeshError(f"topology must be a Topology, got {type(topology).__name__}; see Topology.from_adjacency")
        self._topology = topology
        self.lineage_: Lineage | None = None  # how training came to this graph, if it changed it
        self._dtype = checks.as_dtype(dtype)
        self._codes = checks.activation_codes(topology, activation, output_activation)
        self._ties = Ties(topology.n_edges, parameter)
        self._programs = self._new_programs()
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
    ) -> Mesh:
        """A mesh with the graph and the weights of a square matrix, dense or scipy.sparse: inverse of `adjacency`.

        Unless another is asked for, the dtype is float64 for a matrix of float64 (or wider), else float32.

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

    # -- files ---------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the mesh to a `.mesh` file, whole or not at all; `meshnn.load` reads it."""
        self._checked()
        storage.write(path, self.to_tree() | {"kind": "mesh"})

    def to_tree(self) -> storage.Tree:
        """The mesh as plain values and arrays."""
        t = self._topology
        names = sorted(set(self.activations))
        # a byte a neuron, though most are alike: a file is then never much smaller than what is made of it
        kinds = np.zeros(t.n_neurons, np.uint8)
        kinds[t.n_clamped :] = [names.index(name) for name in self.activations]
        tree = {"n_inputs": t.n_inputs, "n_hidden": t.n_hidden, "n_outputs": t.n_outputs, "bias": t.bias,
                "src": t.src.astype(np.int64), "dst": t.dst.astype(np.int64),
                "weights": self.weights.copy(), "dtype": self._dtype.name,
                "ticks": self.ticks, "activations": names, "kinds": kinds}  # fmt: skip
        if not self._ties.plain:
            tree["parameter"] = self.parameter
        return tree if self.lineage_ is None else tree | {"lineage": self.lineage_.to_tree()}

    @classmethod
    def from_tree(cls, tree: storage.Tree) -> Mesh:
        """The inverse of `to_tree`, for trees that may come from anywhere."""
        names = ("n_inputs", "n_hidden", "n_outputs")
        n_inputs, n_hidden, n_outputs = (whole_number(name, tree[name], least=0) for name in names)
        bias, dtype = switch("bias", tree["bias"]), known("dtype", tree["dtype"], ("float32", "float64"))
        kinds, n_neurons = tree["kinds"], n_inputs + bias + n_hidden + n_outputs
        if kinds.shape != (n_neurons,) or kinds.dtype != np.uint8:
            raise MeshError(f"there are {kinds.shape} {kinds.dtype} activations for {n_neurons} neurons")
        edges = np.stack([tree["src"], tree["dst"]], axis=1)
        topology = Topology(n_inputs, n_hidden, n_outputs, edges, bias)
        if not np.array_equal(edges[:, 0], topology.src) or not np.array_equal(edges[:, 1], topology.dst):
            raise MeshError("the edges are not sorted, so the weights cannot be told apart")
        mesh = cls(topology, whole_number("ticks", tree["ticks"]), weights=tree["weights"], dtype=dtype,
                   parameter=tree.get("parameter"))  # fmt: skip
        used = as_list("activations", tree["activations"])
        codes = np.array([ACTIVATIONS[known("activation", name, ACTIVATIONS)] for name in used], np.int64)
        free = np.arange(n_neurons) >= topology.n_clamped
        mesh.replace(topology, mesh.weights, np.where(free, codes[kinds], mesh.codes), mesh.ties)
        if "lineage" in tree:
            mesh.lineage_ = Lineage.from_tree(tree["lineage"], topology)
        return mesh

    # -- what it is ----------------------------------------------------------------------------------------------

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
        """What the edges carry `(n_edges,)`, aligned with `topology.src` and `topology.dst`; may be set.

        It may be changed in place, too, unless edges are tied or fixed: then it is a copy that cannot be written to.
        """
        if self._ties.plain:
            return self.values
        weights = self.values[self._ties.number]
        weights.flags.writeable = False
        return weights

    @weights.setter
    def weights(self, weights: ArrayLike) -> None:
        self._values = self._ties.numbers(checks.as_weights(weights, self._topology.n_edges, self._dtype))

    @property
    def parameters(self) -> Array:
        """What is learned `(n_parameters,)`; may be set or changed in place. Without ties, the weights."""
        return self.values[: self.n_parameters]

    @parameters.setter
    def parameters(self, parameters: ArrayLike) -> None:
        self.values[: self.n_parameters] = checks.as_weights(parameters, self.n_parameters, self._dtype, "parameter")

    @property
    def parameter(self) -> IntArray:
        """Of each edge its parameter, -1 if its weight is fixed."""
        return self._ties.parameter

    @property
    def n_parameters(self) -> int:
        """Numbers that are learned."""
        return self._ties.n_parameters

    @property
    def ties(self) -> Ties:
        """Which number each edge takes its weight from."""
        return self._ties

    @property
    def values(self) -> Array:
        """The numbers that edges take their weights from: the parameters, then the weights of fixed edges."""
        assert self._values is not None
        return self._values

    @property
    def activations(self) -> list[str]:
        """The activation of every neuron that is not clamped: hidden first, then outputs."""
        names = {code: name for name, code in ACTIVATIONS.items()}
        return [names[code] for code in self._codes[self._topology.n_clamped :].tolist()]

    @property
    def awake(self) -> BoolArray:
        """Neurons whose activation is not 0 at 0: they are non-zero from the first tick on."""
        return self._programs.awake.copy()

    def dead_edges(self) -> BoolArray:
        """Mask of the edges that cannot influence any output with these ticks and activations: zero gradient."""
        return self._topology.dead_edges(self.ticks, self.awake)

    def live_parameters(self) -> IntArray:
        """The parameters that can influence an output: those with an edge that is not dead."""
        return np.flatnonzero(self._ties.total(~self.dead_edges()))

    def weights_of(self, parameters: Array) -> Array:
        """What the edges would carry with these parameters."""
        return np.concatenate([parameters, self.values[self.n_parameters :]])[self._ties.number]

    def adjacency(self) -> Any:
        """The weights as a `scipy.sparse.csr_array` `(n_neurons, n_neurons)`; edges of weight 0 stay stored."""
        from scipy import sparse

        t = self._topology
        return sparse.csr_array((self.weights.copy(), (t.src, t.dst)), shape=(t.n_neurons, t.n_neurons))

    def rewire(self, topology: Topology, weights: ArrayLike | None = None) -> None:
        """Change the graph in place: same neurons, other edges.

        Without `weights`, edges that stay keep their weight and new ones start at 0. Edges that stay keep their
        parameter, too.
        """
        if not isinstance(topology, Topology):
            raise MeshError(f"rewire takes a Topology, got {type(topology).__name__}; see Topology.from_adjacency")
        old = self._topology
        if topology._shape != old._shape:
            raise MeshError(f"rewire keeps the neurons ({old!r}), got {topology!r}; build a new Mesh instead")
        n = old.n_neurons
        before, after = (g.dst * np.int64(n) + g.src for g in (old, topology))
        _, kept_old, kept_new = np.intersect1d(before, after, assume_unique=True, return_indices=True)
        origin = np.full(topology.n_edges, -1)
        origin[kept_new] = kept_old
        if weights is None:
            weights = np.where(origin >= 0, self.weights[origin], 0.0)
        self.replace(topology, weights, self._codes, self._ties.edited(origin)[0])

    def replace(self, topology: Topology, weights: ArrayLike, codes: ArrayLike, ties: Ties | None = None) -> None:
        """Change graph, weights, activations (see `codes`) and ties in place; if one is refused, nothing is changed.

        What the inputs are, the bias and the ticks stay. Without `ties` every edge has a parameter of its own.
        """
        kinds = np.asarray(codes)
        if kinds.shape != (topology.n_neurons,) or not np.isin(kinds, list(ACTIVATIONS.values())).all():
            raise MeshError(f"there must be an activation for each of {topology.n_neurons} neurons")
        topology.check_reachable(self.ticks)
        ties = Ties(topology.n_edges) if ties is None else ties
        self._values = ties.numbers(checks.as_weights(weights, topology.n_edges, self._dtype))
        self._topology, self._ties, self._codes = topology, ties, kinds.astype(np.int64)
        self._programs = self._new_programs()

    @property
    def codes(self) -> IntArray:
        """The activation of every neuron as a number, see `meshnn.codes`."""
        return self._codes.copy()

    # -- what it does --------------------------------------------------------------------------------------------

    def forward(self, X: ArrayLike, *, n_threads: int | None = None) -> Array:
        """Outputs after the last tick.

        Parameters
        ----------
        X : array_like (batch, n_inputs) or (ticks, batch, n_inputs)
            One sample a row, held during all ticks; or one input a tick.
        n_threads : int, optional
            By default as many as pay; -1 is all cores. The result does not depend on it.

        Returns
        -------
        array (batch, n_outputs)
        """
        X = checks.as_inputs(X, self._topology, self.ticks)
        needed = X.shape[1] * self._topology.n_outputs * self._dtype.itemsize
        check_fits(needed, "the outputs of this batch", "pass fewer samples at a time")
        return self._programs.outputs(self.ticks).predict(self._checked(), X, _threads(n_threads))

    def states(self, X: ArrayLike, *, n_threads: int | None = None) -> Array:
        """States `(ticks + 1, batch, n_neurons)`: before the first tick and after each one.

        The inputs of states[k] are those that tick k + 1 reads; of the last state, those of the last tick.
        """
        X = checks.as_inputs(X, self._topology, self.ticks)
        needed = (self.ticks + 1) * X.shape[1] * self._topology.n_neurons * self._dtype.itemsize
        check_fits(needed, "the states of this batch", "pass fewer samples at a time")
        return self._programs.states(self.ticks).states(self._checked(), X, _threads(n_threads))

    def gradient(
        self,
        X: ArrayLike,
        y: ArrayLike,
        loss: str = "cross_entropy",
        method: str = "auto",
        sample_weight: ArrayLike | None = None,
        *,
        n_threads: int | None = None,
    ) -> tuple[float, Array]:
        """The mean loss of a batch and its exact gradient by every parameter.

        Parameters
        ----------
        X : array_like (batch, n_inputs) or (ticks, batch, n_inputs)
        y : array_like
            Labels (batch,) from 0 for cross_entropy; values (batch, n_outputs) for the others.
        loss : "cross_entropy", "binary_cross_entropy", "squared_error", "huber" or "poisson"
            Of the softmax of the outputs; half the squared distance; the same up to errors of 1, beyond it by their
            size; half the deviance of counts whose rate is exp(output).
        method : str
            "auto", "forward", "factored", "blocks", "tensor" or "adjoint"; `explain` tells what they cost.
        sample_weight : array_like (batch,), optional
            The mean is weighted with it.

        Returns
        -------
        loss : float
        grad : array (n_parameters,)
        """
        X, targets = self._samples(X, y, loss, sample_weight)
        threads = _threads(n_threads)
        program = self.program("gradient", method, X.shape[1], n_threads=threads)
        found = program.gradient(self._checked(), X, targets, threads)
        return found.loss, found.grad[: self.n_parameters].astype(self._dtype, copy=False)

    def jacobian(self, X: ArrayLike, method: str = "auto", *, n_threads: int | None = None) -> Array:
        """Derivative of every output by every parameter for every sample, `(batch, n_outputs, n_parameters)`."""
        X = checks.as_inputs(X, self._topology, self.ticks)
        t = self._topology
        needed = X.shape[1] * t.n_outputs * t.n_edges * self._dtype.itemsize
        check_fits(needed, "the Jacobian of this batch", "pass fewer samples at a time")
        threads = _threads(n_threads)
        program = self.program("jacobian", method, X.shape[1], n_threads=threads)
        return program.jacobian(self._checked(), X, threads)[:, :, : self.n_parameters]

    def growth_scores(
        self,
        X: ArrayLike,
        y: ArrayLike,
        loss: str = "cross_entropy",
        src: ArrayLike = (),
        dst: ArrayLike = (),
        method: str = "auto",
        sample_weight: ArrayLike | None = None,
        *,
        n_threads: int | None = None,
    ) -> Array:
        """dE/dA for edges that need not exist: the gradient that each would have if it were added with weight 0.

        A neuron that nothing feeds yet sits at t = 0. There relu takes its left derivative, 0, so an edge into such a
        relu neuron scores 0 whatever it could do; with leaky_relu, tanh and the others it does not.

        Parameters
        ----------
        src, dst : array_like of int
            Sources and destinations of the edges in question; they are broadcast against each other.

        Returns
        -------
        array, in the shape of src and dst

        Examples
        --------
        >>> from meshnn import Mesh, Topology
        >>> m = Mesh(Topology.layered([2, 1]), random_state=0)             # neurons: 0, 1, bias 2, output 3
        >>> m.growth_scores([[1.0, 2.0]], [[0.0]], loss="squared_error", src=[3], dst=[3]).tolist()
        [0.0]
        """
        X, targets = self._samples(X, y, loss, sample_weight)
        sources, ends, shape = checks.as_pairs(src, dst, self._topology.n_neurons)
        threads = _threads(n_threads)
        program = self._programs.candidates(method, self.ticks, (sources, ends), X.shape[1], threads)
        return program.gradient(self._checked(), X, targets, threads).grad.astype(self._dtype).reshape(shape)

    def explain(self, batch_size: int = 64, *, jacobian: bool = False) -> Explanation:
        """What each method costs on this mesh, which one `auto` takes and why: print it.

        Milliseconds are those of this machine once `meshnn.calibration.calibrate` has timed it.
        """
        from meshnn.methods.machine import known_prices

        batch_size, prices = whole_number("batch_size", batch_size), known_prices()
        decision = self._programs.decide(self.ticks, batch_size, jacobian=jacobian)
        dead = int(self.dead_edges().sum())
        measured = prices is not None
        return Explanation(repr(self), batch_size, decision, self._topology.n_edges, dead, prices or DEFAULT, measured)

    def program(
        self, need: str = "outputs", method: str = "auto", batch: int = 64, *, n_threads: int | None = None,
        again: bool = False,
    ) -> Program:  # fmt: skip
        """The compiled program for a need, to be run on `values`: what training runs on.

        Parameters
        ----------
        need : "outputs", "gradient", "epochs", "jacobian" or "curvature"
        method : str
            As for `gradient`. With "auto" epochs run on a method that knows compiled ones, and curvature on one that
            gives it.
        batch : int
            Samples that it will see at a time.
        again : bool
            The method is known to do, for a graph that has changed a little since: nothing is priced again.
        """
        if need == "outputs":
            return self._programs.outputs(self.ticks)
        return self._programs.find(need, method, self.ticks, batch, n_threads, again)

    def _samples(self, X: Any, y: Any, loss: str, sample_weight: Any) -> tuple[Array, Targets]:
        X, t = checks.as_inputs(X, self._topology, self.ticks), self._topology
        return X, Targets.make(loss_named(loss), y, sample_weight, X.shape[1], t.n_outputs, self._dtype)

    def _checked(self) -> Array:
        checks.check_current_weights(self.values, self._ties.n_numbers)
        return self.values

    def _new_programs(self) -> Programs:
        number = None if self._ties.plain else self._ties.number
        return Programs(self._topology, self._codes, self._dtype, number, self._ties.n_numbers)

    def draw_weights(self, random_state: Seed = None) -> Array:
        """Fresh random weights, as a new mesh would have; they are returned, not set. Fixed edges keep theirs.

        Normal, scaled so that the variance of a neuron's sum is about 1 (2 into relu); 0 on bias edges.
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
        return {k: v for k, v in self.__dict__.items() if k != "_programs"}  # plans are compiled again

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._programs = self._new_programs()


def _threads(n_threads: int | None) -> int | None:
    return None if n_threads is None else thread_count("n_threads", n_threads)
