"""The nets, data and random numbers of the golden record; see `golden`.

Random numbers come from `Generator.random`, seeded by the name of the case, and are transformed by correctly rounded
operations only. So all cases are bit-identical on every machine and with every NumPy, and a new case does not change
the others.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any
from zlib import crc32

import numpy as np

from meshnn import Mesh, Topology

DTYPES = ("float64", "float32")
SMOOTH = ("tanh", "sin", "softplus", "gauss", "elu", "sigmoid")

# -- random numbers --------------------------------------------------------------------------------------------------


def generator(*names: object) -> np.random.Generator:
    """Return the generator of a name."""
    return np.random.default_rng(crc32("/".join(map(str, names)).encode()))


def uniform(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Draw numbers with mean 0 and variance of about 1."""
    return 3.5 * (rng.random(shape) - 0.5)


def integers(rng: np.random.Generator, most: int, *shape: int) -> np.ndarray:
    """Draw integers from 0 to `most - 1`."""
    return (rng.random(shape) * most).astype(np.int64)


# -- graphs ----------------------------------------------------------------------------------------------------------


def select_pairs(
    inputs: int, hidden: int, outputs: int, accept: Callable[[int, int], bool], bias: bool = True
) -> Topology:
    """Return the pairs that a function accepts, and one edge from an input to each output."""
    n, first = inputs + bias + hidden + outputs, inputs + bias + hidden
    pairs = [(i, j) for i in range(n) for j in range(n) if accept(i, j)]
    return Topology(inputs, hidden, outputs, sorted({*pairs, *((o % inputs, o) for o in range(first, n))}), bias=bias)


def mesh(inputs: int, hidden: int, outputs: int, density: float = 1.0, bias: bool = True) -> Topology:
    """Connect every neuron behind the inputs with all neurons, itself included, or with a random part of them."""
    rng, first = generator("mesh", inputs, hidden, outputs, density), inputs + bias
    taken = rng.random((first + hidden + outputs,) * 2) < density
    return select_pairs(
        inputs, hidden, outputs, lambda i, j: j >= first and (taken[i, j] or (bias and i == inputs)), bias
    )


def random_pairs(inputs: int, hidden: int, outputs: int, density: float) -> Topology:
    """Draw edges among all neurons, also into inputs and between neurons that reach no output."""
    taken = generator("any", inputs, hidden, outputs).random((inputs + 1 + hidden + outputs,) * 2) < density
    return select_pairs(inputs, hidden, outputs, lambda i, j: taken[i, j])


def patches() -> Topology:
    """Combine a dense part, a band, sparse rows and dense outputs, of which some fit into tiles."""
    taken = generator("patches").random((55, 55)) < 0.06

    def accept(i: int, j: int) -> bool:
        if j < 9:
            return False
        if j < 22:
            return i < 22
        if j < 40:
            return j - 12 <= i < j
        return bool(taken[i, j]) if j < 50 else 20 <= i < 47

    return select_pairs(8, 41, 5, accept)


def columns(inputs: int, hidden: int, outputs: int) -> Topology:
    """Return hidden neurons whose only cycles are self-loops."""
    first, last = inputs + 1, inputs + 1 + hidden
    return select_pairs(inputs, hidden, outputs, lambda i, j: (j >= first > i) or i == j >= first or j >= last > i)


GRAPHS = {
    "linear": Topology.layered([3, 2]),
    "layers": Topology.layered([3, 4, 3, 2]),
    "layers-no-bias": Topology.layered([3, 4, 2], bias=False),
    "wide-layers": Topology.layered([17, 24, 10]),
    "cascade": Topology.cascade(2, 5, 2),
    "cascade-no-bias": Topology.cascade(3, 4, 1, bias=False),
    "mesh": mesh(3, 5, 2),
    "mesh-no-bias": mesh(2, 6, 3, bias=False),
    "sparse": mesh(4, 12, 3, density=0.2),
    "any": random_pairs(2, 6, 2, density=0.45),
    "columns": columns(2, 5, 2),
    "dense": mesh(17, 24, 10),
    "large": mesh(33, 50, 10, density=0.2),
    "patches": patches(),
    "many-classes": Topology.layered([2, 3, 60]),
}

# -- cases -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A network with data. The fields that differ from their default form the name."""

    graph: str
    ticks: int
    activation: str = "tanh"  # or "mixed": a different one per hidden neuron
    output: str = "identity"
    loss: str = "squared_error"
    batch: int = 5
    weighted: bool = False
    ties: str = ""  # "tied", "fixed" or "tied+fixed"
    sequence: int = 0  # number of ticks of the input sequence; 0 holds the inputs
    loss_ticks: str = ""  # "all", "mask", or "short" for sequences that end early
    per_tick: bool = False  # whether there is a target per tick
    readout: str = ""  # "end", "mean" or "any"
    state: bool = False  # whether the initial states are given

    @property
    def name(self) -> str:
        """Return a readable name, which is also the seed."""
        parts = [self.graph, f"ticks{self.ticks}", self.activation]
        for each in fields(self)[3:]:
            value = getattr(self, each.name)
            if value != each.default:
                parts.append(each.name if value is True else f"{each.name}={value}")
        return "-".join(parts)

    def mesh(self, dtype: str) -> Mesh:
        """Build the network with its weights."""
        return new_mesh(self.name, self.graph, self.ticks, self.activation, self.output, self.ties, dtype)

    dtypes = DTYPES  # the recorded dtypes

    @property
    def length(self) -> int:
        """Return the number of ticks of the run."""
        return self.sequence or self.ticks

    def inputs(self) -> np.ndarray:
        """Return constant inputs or a sequence."""
        shape = (self.sequence,) if self.sequence else ()
        X = uniform(generator(self.name, "X"), *shape, self.batch, GRAPHS[self.graph].n_inputs)
        if self.loss_ticks == "short":
            X[~self._valid_ticks()] = 0.0
        return X

    def targets(self) -> np.ndarray:
        """Return labels or values, optionally per tick; NaN after the end of a sequence."""
        shape = (self.length, self.batch) if self.per_tick else (self.batch,)
        y = targets_for(self.loss, generator(self.name, "y"), shape, GRAPHS[self.graph].n_outputs)
        if self.per_tick and self.loss_ticks == "short":
            y = y.astype(np.float64)
            y[~self._valid_ticks()] = np.nan
        return y

    def _valid_ticks(self) -> np.ndarray:
        """Return the mask (ticks, batch) of sequences of different lengths."""
        length = 1 + integers(generator(self.name, "length"), self.length, self.batch)
        return np.arange(self.length)[:, None] < length

    def weighting(self) -> dict[str, Any]:
        """Return the options of `gradient`, `growth_scores` and `train` that weight samples and ticks."""
        found: dict[str, Any] = {}
        within, rng = self._valid_ticks(), generator(self.name, "options")
        if self.weighted:
            found["sample_weight"] = 0.1 + 2.0 * rng.random(self.batch)
        if self.loss_ticks:
            mask = rng.random(within.shape) < 0.5
            mask[-1, 0] = True
            found["loss_ticks"] = {"all": "all", "mask": mask, "short": within}[self.loss_ticks]
        if self.readout:
            last = within & ~np.concatenate([within[1:], np.zeros((1, self.batch), np.bool_)])
            readouts = {
                "end": last * 1.0,
                "mean": within / within.sum(axis=0),
                "any": within * uniform(rng, *within.shape),
            }
            found["readout"] = readouts[self.readout]
        return found

    def initial_state(self) -> dict[str, Any]:
        """Return the option that sets the initial state."""
        n = GRAPHS[self.graph].n_neurons
        return {"state": uniform(generator(self.name, "state"), self.batch, n)} if self.state else {}


def new_mesh(name: str, graph: str, ticks: int, activation: str, output: str, ties: str, dtype: str) -> Mesh:
    """Build a network with weights of variance about 1 / fan-in; optionally every third edge is tied or fixed."""
    t, rng = GRAPHS[graph], generator(name, "weights")
    names = [SMOOTH[k % len(SMOOTH)] for k in range(t.n_hidden)] if activation == "mixed" else activation
    fan_in = np.maximum(np.bincount(t.dst, minlength=t.n_neurons), 1)[t.dst]
    weights, options = uniform(rng, t.n_edges) / np.sqrt(fan_in), {}
    if ties:
        number = np.arange(t.n_edges)
        if "tied" in ties:
            number = np.where(number % 3 == 0, number % 4, number + t.n_edges)
        if "fixed" in ties:
            number[integers(rng, 3, t.n_edges) == 0] = -1
        learned = number >= 0
        number[learned] = np.unique(number[learned], return_inverse=True)[1]
        first = np.array([np.flatnonzero(number == p)[0] for p in range(number.max() + 1)])
        weights = np.where(learned, weights[first[np.maximum(number, 0)]], weights)
        options["tied"] = number
    return Mesh(t, ticks, names, output, weights=weights, dtype=dtype, **options)


def targets_for(loss: str, rng: np.random.Generator, shape: tuple[int, ...], n_outputs: int) -> np.ndarray:
    """Draw labels, 0 or 1, counts, or values, some of which are beyond the width of the Huber loss."""
    if loss == "cross_entropy":
        return integers(rng, n_outputs, *shape)
    if loss == "binary_cross_entropy":
        return integers(rng, 2, *shape, n_outputs).astype(np.float64)
    if loss == "poisson":
        return integers(rng, 5, *shape, n_outputs).astype(np.float64)
    return (2.0 if loss == "huber" else 1.0) * uniform(rng, *shape, n_outputs)


@dataclass(frozen=True)
class Training:
    """A short training run."""

    name: str
    case: Case
    settings: dict[str, Any]
    dtypes: tuple[str, ...] = DTYPES


@dataclass(frozen=True)
class StreamCase:
    """A network that learns from a stream of samples."""

    name: str
    graph: str
    learner: str = "adam"
    loss: str = "squared_error"
    activation: str = "tanh"
    ticks: int = 1  # per sample
    samples: int = 200
    n_streams: int = 1
    memory: str = "carry"
    influence: str = "exact"
    scale: bool = False
    delay: int = 0  # of the targets, in samples
    most_delay: int = 0  # maximum delay of the stream
    missing_targets: bool = False
    missing_inputs: bool = False
    ties: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # of the learner

    def mesh(self, dtype: str) -> Mesh:
        """Build the network with its weights."""
        return new_mesh(self.name, self.graph, self.ticks, self.activation, "identity", self.ties, dtype)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Return the dtypes that are recorded; the Kalman filter always computes in float64."""
        return DTYPES[:1] if self.learner == "ekf" else DTYPES

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Return samples and targets that depend on the last two samples."""
        t, rng = GRAPHS[self.graph], generator(self.name, "samples")
        X = uniform(rng, self.samples + 1, self.n_streams, t.n_inputs)
        now, product = X[1:], X[:-1, :, :1] * X[1:, :, -1:]
        value = 0.6 * now[:, :, np.arange(t.n_outputs) % t.n_inputs] + 0.4 * product
        value = value + 0.1 * uniform(rng, *value.shape)
        if self.loss == "cross_entropy":
            Y = np.argmax(value + 0.3 * uniform(rng, t.n_outputs), axis=2, keepdims=True).astype(np.float64)
        elif self.loss == "binary_cross_entropy":
            Y = (value > 0.0) * 1.0
        elif self.loss == "poisson":
            Y = np.floor(np.abs(2.0 * value))
        else:
            Y = 3.0 * value + 1.0 if self.scale else value
        X = 2.0 * now - 1.0 if self.scale else now.copy()
        if self.missing_targets:
            Y[rng.random(Y.shape) < 0.2] = np.nan
        if self.missing_inputs:
            X[rng.random(X.shape) < 0.1] = np.nan
        return (X, Y) if self.n_streams > 1 else (X[:, 0], Y[:, 0])
