"""`Mesh`: a topology with ticks, activations and weights."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshnn import checks, engine, storage
from meshnn.arguments import as_generator, as_list, known, switch, whole_number
from meshnn.errors import MeshError
from meshnn.explanation import Explanation
from meshnn.kernels.codes import ACTIVATIONS
from meshnn.memory import check_fits
from meshnn.plan.cost import METHODS
from meshnn.planner import Planner
from meshnn.topology import Topology
from meshnn.topology.builders import Seed
from meshnn.topology.lineage import Lineage

__all__ = ["Mesh"]

Array = NDArray[Any]
_CHOICES = ("auto", "forward", *METHODS)
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
    ) -> None:
        if not isinstance(topology, Topology):
            raise MeshError(f"topology must be a Topology, got {type(topology).__name__}; see Topology.from_adjacency")
        self._topology = topology
        self.lineage_: Lineage | None = None  # how training came to this graph, if it changed it
        self._dtype = checks.as_dtype(dtype)
        self._codes = checks.activation_codes(topology, activation, output_activation)
        self._planner = Planner(topology, self._codes, self._dtype)
        self.ticks = topology.default_ticks(self.awake) if ticks is None else ticks
        if weights is None:
            weights = self.draw_weights(random_state)
        self.weights = weights

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
        self._checked_weights()
        storage.write(path, self.to_tree() | {"kind": "mesh"})

    def to_tree(self) -> storage.Tree:
        """The mesh as plain values and arrays."""
        t = self._topology
        names = sorted(set(self.activations))
        # a byte a neuron, though most are alike: a file is then never much smaller than what is made of it
        kinds = np.zeros(t.n_neurons, np.uint8)
        kinds[t.n_clamped :] = [names.index(name) for name in self.activations]
        tree = {"n_inputs": t.n_inputs, "n_hidden": t.n_hidden, "n_outputs": t.n_outputs, "bias": t.bias,
                "src": t.src, "dst": t.dst, "weights": self._weights.copy(), "dtype": self._dtype.name,
                "ticks": self.ticks, "activations": names, "kinds": kinds}  # fmt: skip
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
        mesh = cls(topology, whole_number("ticks", tree["ticks"]), weights=tree["weights"], dtype=dtype)
        used = as_list("activations", tree["activations"])
        codes = np.array([ACTIVATIONS[known("activation", name, ACTIVATIONS)] for name in used], np.int64)
        free = np.arange(n_neurons) >= topology.n_clamped
        mesh.replace(topology, mesh.weights, np.where(free, codes[kinds], mesh.codes))
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
        """Weights `(n_edges,)`, aligned with `topology.src` and `topology.dst`; may be set or changed in place."""
        return self._weights

    @weights.setter
    def weights(self, weights: ArrayLike) -> None:
        self._weights = checks.as_weights(weights, self._topology.n_edges, self._dtype)

    @property
    def activations(self) -> list[str]:
        """The activation of every neuron that is not clamped: hidden first, then outputs."""
        names = {code: name for name, code in ACTIVATIONS.items()}
        return [names[code] for code in self._codes[self._topology.n_clamped :].tolist()]

    @property
    def awake(self) -> NDArray[np.bool_]:
        """Neurons whose activation is not 0 at 0: they are non-zero from the first tick on."""
        return self._planner.awake.copy()

    def dead_edges(self) -> NDArray[np.bool_]:
        """Mask of the edges that cannot influence any output with these ticks and activations: zero gradient."""
        return self._topology.dead_edges(self.ticks, self.awake)

    def adjacency(self) -> Any:
        """The weights as a `scipy.sparse.csr_array` `(n_neurons, n_neurons)`; edges of weight 0 stay stored."""
        from scipy import sparse

        t = self._topology
        return sparse.csr_array((self._weights.copy(), (t.src, t.dst)), shape=(t.n_neurons, t.n_neurons))

    def rewire(self, topology: Topology, weights: ArrayLike | None = None) -> None:
        """Change the graph in place: same neurons, other edges.

        Without `weights`, edges that stay keep their weight and new ones start at 0.
        """
        if not isinstance(topology, Topology):
            raise MeshError(f"rewire takes a Topology, got {type(topology).__name__}; see Topology.from_adjacency")
        old = self._topology
        same = (old.n_inputs, old.n_hidden, old.n_outputs, old.bias)
        if (topology.n_inputs, topology.n_hidden, topology.n_outputs, topology.bias) != same:
            raise MeshError(f"rewire keeps the neurons ({old!r}), got {topology!r}; build a new Mesh instead")
        if weights is None:
            n = old.n_neurons
            before, after = old.dst * n + old.src, topology.dst * n + topology.src
            weights = np.zeros(topology.n_edges, dtype=self._dtype)
            _, kept_old, kept_new = np.intersect1d(before, after, assume_unique=True, return_indices=True)
            weights[kept_new] = self._weights[kept_old]
        self.replace(topology, weights, self._codes)

    def replace(self, topology: Topology, weights: ArrayLike, codes: ArrayLike) -> None:
        """Change graph, weights and activations (see `codes`) in place; nothing is changed if one of them is refused.

        What the inputs are, the bias and the ticks stay.
        """
        kinds = np.asarray(codes)
        if kinds.shape != (topology.n_neurons,) or not np.isin(kinds, list(ACTIVATIONS.values())).all():
            raise MeshError(f"there must be an activation for each of {topology.n_neurons} neurons")
        topology.check_reachable(self.ticks)
        self._weights = checks.as_weights(weights, topology.n_edges, self._dtype)
        self._topology, self._codes = topology, kinds.astype(np.int64)
        self._planner = Planner(topology, self._codes, self._dtype)

    @property
    def codes(self) -> NDArray[np.int64]:
        """The activation of every neuron as a number, see `kernels.codes`."""
        return self._codes.copy()

    # -- what it does --------------------------------------------------------------------------------------------

    def forward(self, X: ArrayLike, *, n_threads: int | None = None) -> Array:
        """Outputs after the last tick.

        Parameters
        ----------
        X : array_like (batch, n_inputs) or (ticks, batch, n_inputs)
            One sample a row, held during all ticks; or one input a tick.
        n_threads : int, optional
            By default as many as pay. The result does not depend on it.

        Returns
        -------
        array (batch, n_outputs)
        """
        X = checks.as_inputs(X, self._topology, self.ticks)
        needed = X.shape[1] * self._topology.n_outputs * self._dtype.itemsize
        check_fits(needed, "the outputs of this batch", "pass fewer samples at a time")
        threads = _threads(n_threads)
        return engine.predict(self._planner.program("forward_pass", self.ticks), self._checked_weights(), X, threads)

    def states(self, X: ArrayLike, *, n_threads: int | None = None) -> Array:
        """States `(ticks + 1, batch, n_neurons)`: before the first tick and after each one.

        The inputs of states[k] are those that tick k + 1 reads; of the last state, those of the last tick.
        """
        X = checks.as_inputs(X, self._topology, self.ticks)
        needed = (self.ticks + 1) * X.shape[1] * self._topology.n_neurons * self._dtype.itemsize
        check_fits(needed, "the states of this batch", "pass fewer samples at a time")
        threads = _threads(n_threads)
        return engine.states(self._planner.program("states", self.ticks), self._checked_weights(), X, threads)

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
        """The mean loss of a batch and its exact gradient by every weight.

        Parameters
        ----------
        X : array_like (batch, n_inputs) or (ticks, batch, n_inputs)
        y : array_like
            Labels (batch,) from 0 for cross_entropy (of the softmax of the outputs); values (batch, n_outputs) for
            squared_error (half the squared distance).
        loss : "cross_entropy" or "squared_error"
        method : str
            "auto", "forward", "factored", "blocks", "tensor" or "adjoint"; `explain` tells what they cost.
        sample_weight : array_like (batch,), optional
            The mean is weighted with it.

        Returns
        -------
        loss : float
        grad : array (n_edges,)
        """
        X = checks.as_inputs(X, self._topology, self.ticks)
        t = self._topology
        targets = checks.as_targets(y, loss, sample_weight, X.shape[1], t.n_outputs, self._dtype)
        threads = _threads(n_threads)
        chosen = self._resolve(method, X.shape[1], threads)
        weights = self._checked_weights()
        if chosen == "tensor":
            value, grad = engine.tensor_gradient(t, self.ticks, self._codes, weights, X, targets)
        else:
            found = engine.gradient(self._planner.program(chosen, self.ticks), weights, X, targets, threads)
            value, grad = found.loss, found.grad
        return value, grad.astype(self._dtype)

    def jacobian(self, X: ArrayLike, method: str = "auto", *, n_threads: int | None = None) -> Array:
        """Derivative of every output by every weight for every sample, `(batch, n_outputs, n_edges)`."""
        X = checks.as_inputs(X, self._topology, self.ticks)
        t = self._topology
        needed = X.shape[1] * t.n_outputs * t.n_edges * self._dtype.itemsize
        check_fits(needed, "the Jacobian of this batch", "pass fewer samples at a time")
        threads = _threads(n_threads)
        chosen = self._resolve(method, X.shape[1], threads, jacobian=True)
        weights = self._checked_weights()
        if chosen == "tensor":
            return engine.tensor_jacobian(t, self.ticks, self._codes, weights, X)
        return engine.jacobian(self._planner.program(chosen, self.ticks, jacobian=True), weights, X, threads)

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
        X = checks.as_inputs(X, self._topology, self.ticks)
        t = self._topology
        targets = checks.as_targets(y, loss, sample_weight, X.shape[1], t.n_outputs, self._dtype)
        sources, ends, shape = checks.as_pairs(src, dst, t.n_neurons)
        threads = _threads(n_threads)
        # a method that is named needs no price, and its plan is refused if it does not fit
        chosen = method if method in ("factored", "adjoint") else self._resolve(method, X.shape[1], threads)
        weights = self._checked_weights()
        pairs = (sources, ends)
        if chosen == "tensor":
            _, grad = engine.tensor_gradient(t, self.ticks, self._codes, weights, X, targets, pairs)
        else:
            program = self._planner.program_for(self.ticks, chosen, pairs)
            grad = engine.gradient(program, weights, X, targets, threads).grad
        return grad.astype(self._dtype).reshape(shape)

    def explain(self, batch_size: int = 64, *, jacobian: bool = False) -> Explanation:
        """What each method costs on this mesh, which one `auto` takes and why: print it."""
        batch_size = whole_number("batch_size", batch_size)
        decision = self._planner.decide(self.ticks, batch_size, None, jacobian)
        dead = int(self.dead_edges().sum())
        return Explanation(repr(self), batch_size, decision, self._topology.n_edges, dead)

    # -- what training runs on -----------------------------------------------------------------------------------

    def training_program(self, batch: int, method: str = "auto") -> engine.Program:
        """The compiled program of the gradient that training steps on a batch of this size run on."""
        if method in ("auto", "factored", "adjoint"):
            return self._planner.training_program(self.ticks, batch, method)
        return self._planner.program(self._resolve(method, batch, None), self.ticks)

    def recompiled_program(self, method: str) -> engine.Program:
        """The same for a graph that has changed since: the method stays, nothing is priced again."""
        return self._planner.recompiled(self.ticks, method)

    def jacobian_program(self, batch: int, method: str = "auto") -> engine.Program:
        """The same for the Jacobian: `factored`, or backprop from each output where that is much cheaper."""
        return self._planner.training_program(self.ticks, batch, method, jacobian=True)

    def forward_program(self) -> engine.Program:
        """The program that gives the outputs alone."""
        return self._planner.program("forward_pass", self.ticks)

    def _resolve(self, method: str, batch: int, threads: int | None, jacobian: bool = False) -> str:
        known("method", method, _CHOICES)
        return self._planner.resolve(method, self.ticks, batch, threads, jacobian)

    def _checked_weights(self) -> Array:
        checks.check_current_weights(self._weights, self._topology.n_edges)
        return self._weights

    def draw_weights(self, random_state: Seed = None) -> Array:
        """Fresh random weights, as a new mesh would have; they are returned, not set.

        Normal, scaled so that the variance of a neuron's sum is about 1 (2 into relu); 0 on bias edges.
        """
        t, rng = self._topology, as_generator(random_state)
        bias = (t.src == t.n_inputs) if t.bias else np.zeros(t.n_edges, dtype=np.bool_)
        fan_in = np.maximum(np.bincount(t.dst[~bias], minlength=t.n_neurons), 1)
        gain = np.where(self._codes == ACTIVATIONS["relu"], np.sqrt(2.0), 1.0)
        scale = (gain / np.sqrt(fan_in))[t.dst]
        return np.where(bias, 0.0, rng.standard_normal(t.n_edges) * scale)

    def __repr__(self) -> str:
        t = self._topology
        return (
            f"Mesh({t.n_inputs}-{t.n_hidden}-{t.n_outputs}{' + bias' if t.bias else ''}, {t.n_edges} edges, "
            f"{self.ticks} ticks, {self._dtype})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_planner"}  # plans are compiled again

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._planner = Planner(self._topology, self._codes, self._dtype)


def _threads(n_threads: int | None) -> int | None:
    return None if n_threads is None else whole_number("n_threads", n_threads)
