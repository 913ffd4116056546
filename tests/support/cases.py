"""Random nets with data, drawn by Hypothesis, and independent implementations that they are compared with."""

from dataclasses import dataclass, replace

import numpy as np
import pandas
import torch
from hypothesis import strategies as st

import naive
from meshnn import Mesh, Topology
from meshnn.codes import ACTIVATIONS
from meshnn.losses import LOSSES, loss_named
from meshnn.plan import METHODS

# With small matrices, several threads of torch wait for each other and slow down the tests by half.
torch.set_num_threads(1)

ACTIVATION_NAMES = tuple(ACTIVATIONS)
LOSS_NAMES = tuple("quantile:0.9" if name == "quantile" else name for name in LOSSES)
ALL_METHODS = tuple(METHODS)


@dataclass
class Case:
    """A net and a batch, optionally with a loss at several ticks, a readout and initial states."""

    mesh: Mesh
    X: np.ndarray
    y: np.ndarray
    loss: str
    sample_weight: np.ndarray | None = None
    loss_ticks: np.ndarray | None = None  # (ticks, batch) mask
    readout: np.ndarray | None = None  # (ticks, batch)
    state: np.ndarray | None = None  # (batch, n_neurons)
    by_tick: bool = False  # whether there is a target for every tick

    @property
    def looks(self):
        """Return the options of `Mesh.growth_scores` and `Mesh.gradient` for the loss in time."""
        found = {"loss_ticks": self.loss_ticks, "readout": self.readout, "state": self.state}
        return {name: value for name, value in found.items() if value is not None}

    def gradient(self, method="auto", **options):
        """Return loss and gradient of the net."""
        given = {"sample_weight": self.sample_weight, **self.looks, **options}
        return self.mesh.gradient(self.X, self.y, self.loss, method, **given)

    @property
    def shares(self):
        """Return the normalised weight of each sample, (batch,)."""
        w = np.ones(self.X.shape[-2]) if self.sample_weight is None else self.sample_weight
        return w / w.sum()

    @property
    def shares_in_time(self):
        """Return the normalised weight of each sample at each tick, (ticks, batch)."""
        last = np.arange(self.mesh.ticks)[:, None] == self.mesh.ticks - 1
        found = self.shares * (last if self.loss_ticks is None else self.loss_ticks)
        return found / found.sum()

    def inputs(self):
        """Return the states of the clamped neurons at every tick, (ticks, batch, n_clamped)."""
        t = self.mesh.topology
        X = self.X if self.X.ndim == 3 else np.repeat(self.X[None], self.mesh.ticks, axis=0)
        ones = np.ones((*X.shape[:2], int(t.bias)))
        return np.concatenate([X, ones], axis=2)

    def dense(self):
        """Return the weights as a matrix."""
        return self.mesh.adjacency().toarray().astype(float)

    def names(self):
        return ["identity"] * self.mesh.topology.n_clamped + self.mesh.activations

    def in_float32(self):
        """Return the case in float32, and in float64 with the numbers rounded to float32."""
        t, names = self.mesh.topology, self.mesh.activations
        for dtype in ("float32", "float64"):
            weights = self.mesh.weights.astype(np.float32)
            mesh = Mesh(t, self.mesh.ticks, names[: t.n_hidden], names[-1], weights=weights, dtype=dtype)
            arrays = {k: v.astype(np.float32) for k, v in vars(self).items() if k in ("X", "y", "readout", "state")
                      and v is not None and v.dtype == np.float64}  # fmt: skip
            yield replace(self, mesh=mesh, **arrays)


def repair(n_inputs, n_hidden, n_outputs, bias, pairs, ticks):
    """Add an edge from an input to every output that no input reaches in time."""
    topology = Topology(n_inputs, n_hidden, n_outputs, pairs, bias=bias)
    late = topology.outputs[topology.birth_ticks()[topology.outputs] > ticks]
    extra = [(int(o) % n_inputs, int(o)) for o in late]
    return Topology(n_inputs, n_hidden, n_outputs, [*pairs, *extra], bias=bias)


@st.composite
def topologies(draw, ticks, most_hidden=5):
    """Draw a graph with cycles, self-loops, dead edges, isolated neurons, edges into inputs; all outputs are live."""
    n_inputs = draw(st.integers(1, 3))
    n_hidden = draw(st.integers(0, most_hidden))
    n_outputs = draw(st.integers(1, 3))
    bias = draw(st.booleans())
    n = n_inputs + bias + n_hidden + n_outputs
    density = draw(st.sampled_from([0.05, 0.15, 0.3, 0.6, 1.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pairs = np.argwhere(rng.random((n, n)) < density).tolist()
    return repair(n_inputs, n_hidden, n_outputs, bias, pairs, ticks)


def targets_for(loss, rng, batch, n_outputs):
    if loss == "cross_entropy":
        return rng.integers(0, n_outputs, batch)
    if loss == "binary_cross_entropy":
        return rng.integers(0, 2, (batch, n_outputs)).astype(float)
    if loss == "poisson":
        return rng.poisson(2.0, (batch, n_outputs)).astype(float)
    return (3.0 if loss == "huber" else 1.0) * rng.standard_normal((batch, n_outputs))  # some beyond the width of huber


@st.composite
def cases(draw, dtype="float64", most_hidden=5, most_batch=70, activation=None, loss=None, ticks=None, streams=False):
    ticks = draw(st.integers(1, 8)) if ticks is None else ticks
    topology = draw(topologies(ticks, most_hidden))
    names = st.sampled_from(ACTIVATION_NAMES)
    hidden = activation or draw(
        st.one_of(names, st.lists(names, min_size=topology.n_hidden, max_size=topology.n_hidden))
    )
    output = draw(names)
    names = [name for name in LOSS_NAMES if loss_named(name).streams or not streams]
    loss = loss or draw(st.sampled_from(names))
    batch = draw(st.sampled_from([b for b in (1, 2, 5, 33, 64, 70) if b <= most_batch]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    fan_in = np.maximum(np.bincount(topology.dst, minlength=topology.n_neurons), 1)[topology.dst]
    weights = rng.standard_normal(topology.n_edges) * 1.2 / np.sqrt(fan_in)
    mesh = Mesh(topology, ticks, hidden, output, weights=weights, dtype=dtype)
    sequence = draw(st.booleans())
    X = rng.standard_normal((ticks, batch, topology.n_inputs) if sequence else (batch, topology.n_inputs))
    y = targets_for(loss, rng, batch, topology.n_outputs)
    weight = rng.uniform(0.1, 2.0, batch) if draw(st.booleans()) else None
    return Case(mesh, X, y, loss, weight)


@st.composite
def timed_cases(draw, reads=None, **options):
    """Draw a case with a loss at several ticks or a readout, and sometimes with initial states."""
    case = draw(cases(**options))
    t, ticks, batch = case.mesh.topology, case.mesh.ticks, case.X.shape[-2]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    state = rng.standard_normal((batch, t.n_neurons)) if draw(st.booleans()) else None
    reads = draw(st.booleans()) if reads is None else reads
    length = rng.integers(1, ticks + 1, batch)
    within = np.arange(ticks)[:, None] < length
    if reads:
        kind = draw(st.sampled_from(["end", "mean", "any"]))
        r = {"end": within & (np.arange(ticks)[:, None] == length - 1), "mean": within / length,
             "any": within * rng.uniform(-1.0, 1.0, (ticks, batch))}[kind]  # fmt: skip
        return replace(case, readout=r.astype(float), state=state)
    kind = draw(st.sampled_from(["all", "within", "any", "one"]))
    looks = {"all": np.ones((ticks, batch), bool), "within": within, "any": rng.random((ticks, batch)) < 0.4,
             "one": np.zeros((ticks, batch), bool)}[kind]  # fmt: skip
    looks[rng.integers(ticks), rng.integers(batch)] = True
    by_tick = draw(st.booleans())
    y = np.stack([targets_for(case.loss, rng, batch, t.n_outputs) for _ in range(ticks)]) if by_tick else case.y
    return replace(case, y=y, loss_ticks=looks, state=state, by_tick=by_tick)


@st.composite
def tied_cases(draw, **options):
    """Draw a case with random ties: some edges are fixed, the others share parameters."""
    case = draw(cases(**options))
    mesh, rng = case.mesh, np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    t, names, fixed = mesh.topology, mesh.activations, draw(st.sampled_from([0.0, 0.3, 0.9]))
    number = rng.integers(0, draw(st.integers(1, 8)), t.n_edges)
    number[rng.random(t.n_edges) < fixed] = -1
    number = np.where(number >= 0, np.searchsorted(np.unique(number[number >= 0]), number), -1)
    tied = Mesh(t, mesh.ticks, names[: t.n_hidden], names[-1], dtype="float64", random_state=rng, tied=number)
    tied.parameters = rng.standard_normal(tied.n_parameters) * 0.6
    return replace(case, mesh=tied)


# -- independent implementations -----------------------------------------------------------------------------------


def by_loops(case):
    """Return loss and gradient (n_edges,) of tests/support/naive.py."""
    t = case.mesh.topology
    inputs = case.inputs()
    ticks, size = inputs.shape[:2]
    y = case.y if case.by_tick else np.repeat(case.y[None], ticks, axis=0)
    state = np.zeros((size, t.n_neurons)) if case.state is None else case.state
    batch, targets = inputs.transpose(1, 0, 2).tolist(), [y[:, b].tolist() for b in range(size)]
    net = (case.dense().tolist(), t.n_clamped, t.n_outputs, case.names())
    value, grad = naive.gradient(*net, batch, targets, case.loss, case.shares_in_time.T.tolist(), state.tolist())
    return value, np.array(grad)[t.src, t.dst]


_TORCH = {
    "identity": lambda t: t,
    "relu": torch.relu,
    "leaky_relu": lambda t: torch.nn.functional.leaky_relu(t, 0.01),
    "elu": torch.nn.functional.elu,
    "softplus": lambda t: torch.logaddexp(t, torch.zeros_like(t)),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "sin": torch.sin,
    "gauss": lambda t: torch.exp(-t * t),
    "hardtanh": torch.nn.functional.hardtanh,
}


def torch_outputs(case, A, begin=None):
    """Return the outputs (batch, n_outputs) after the last tick, computed by torch from a dense float64 matrix."""
    return torch_states(case, A, begin)[-1][:, -case.mesh.topology.n_outputs :]


def torch_states(case, A, begin=None):
    """Return the states of all unclamped neurons after every tick; `state` (batch, n_neurons) or zeros is the start."""
    t = case.mesh.topology
    inputs = torch.tensor(case.inputs())
    names = case.names()[t.n_clamped :]
    # neurons with the same activation are computed together, because a call per neuron would be slow
    kinds = {name: [j for j, other in enumerate(names) if other == name] for name in names}
    back = np.argsort(np.concatenate(list(kinds.values()))).tolist()
    s = torch.zeros(inputs.shape[1], t.n_neurons - t.n_clamped, dtype=torch.float64)
    if begin is not None:
        s = torch.tensor(begin[:, t.n_clamped :])
    found = []
    for x in inputs:
        z = torch.cat([x, s], dim=1) @ A[:, t.n_clamped :]
        s = torch.cat([_TORCH[name](z[:, those]) for name, those in kinds.items()], dim=1)[:, back]
        found.append(s)
    return found


_F = torch.nn.functional


def _torch_quantile(level, width=0.05):
    """Return the smoothed pinball loss: Huber's loss instead of the absolute error, shifted to the minimum 0."""

    def loss(z, y):
        smooth = _F.huber_loss(z, y, reduction="none", delta=width) / (2 * width)
        return (smooth + (0.5 - level) * (z - y) + width * (level - 0.5) ** 2).sum(dim=1)

    return loss


_TORCH_LOSSES = {
    "cross_entropy": lambda z, y: _F.cross_entropy(z, y, reduction="none"),
    "binary_cross_entropy": lambda z, y: _F.binary_cross_entropy_with_logits(z, y, reduction="none").sum(dim=1),
    "squared_error": lambda z, y: 0.5 * ((z - y) ** 2).sum(dim=1),
    "huber": lambda z, y: _F.huber_loss(z, y, reduction="none", delta=1.0).sum(dim=1),
    # torch omits the terms without z, which half the deviance includes
    "poisson": lambda z, y: (_F.poisson_nll_loss(z, y, reduction="none") + torch.special.xlogy(y, y) - y).sum(dim=1),
} | {f"quantile:{level}": _torch_quantile(level) for level in (0.05, 0.5, 0.9)}


def torch_readouts(case, A):
    """Return the outputs of all losses: after every tick, or of the readout (1, batch, n_outputs)."""
    outputs = torch.stack(torch_states(case, A, case.state))[:, :, -case.mesh.topology.n_outputs :]
    return outputs if case.readout is None else (torch.tensor(case.readout)[:, :, None] * outputs).sum(dim=0)[None]


def torch_loss(case, A):
    """Return the loss of a batch."""
    at = torch.tensor(case.shares[None] if case.readout is not None else case.shares_in_time)
    y = torch.tensor(case.y)
    of = _TORCH_LOSSES[case.loss]
    each = [of(out, y[k] if case.by_tick else y) for k, out in enumerate(torch_readouts(case, A))]
    return torch.where(at > 0, at * torch.stack(each), 0.0).sum()  # masked terms may overflow


def by_autograd(case, pairs=None):
    """Return loss and gradient by torch autograd; `pairs` (src, dst) replace the edges of the graph."""
    t = case.mesh.topology
    A = torch.tensor(case.dense(), requires_grad=True)
    loss = torch_loss(case, A)
    loss.backward()
    src, dst = (t.src, t.dst) if pairs is None else pairs
    return loss.item(), A.grad.numpy()[src, dst]


def jacobian_by_autograd(case, begin=None):
    """Return the derivative of each output with respect to the weight of each edge."""
    t = case.mesh.topology
    A = torch.tensor(case.dense())
    return torch.autograd.functional.jacobian(lambda A: torch_outputs(case, A, begin), A).numpy()[:, :, t.src, t.dst]


def by_parameters(mesh, each):
    """Return the sums over the edges of each parameter, along the last axis."""
    found = np.zeros((*each.shape[:-1], mesh.n_parameters))
    np.add.at(found, (..., mesh.tied[mesh.tied >= 0]), each[..., mesh.tied >= 0])
    return found


def by_differences(case, step=1e-6):
    """Return the gradient by central differences of torch's loss."""
    t = case.mesh.topology
    grad = np.zeros(t.n_edges)
    for e in range(t.n_edges):
        values = []
        for sign in (1, -1):
            A = case.dense()
            A[t.src[e], t.dst[e]] += sign * step
            values.append(torch_loss(case, torch.tensor(A)).item())
        grad[e] = (values[0] - values[1]) / (2 * step)
    return grad


def terms(case):
    """Return the size of the terms of a gradient: the derivative of each output times the numbers in its error.

    A small residual y - target has the accuracy of y, not of its own size.
    """
    outputs = np.abs(case.mesh.forward(case.X))
    size = np.maximum(1.0, outputs if case.loss == "cross_entropy" else np.maximum(outputs, np.abs(case.y)))
    return np.einsum("b,bo,boe->e", case.shares, size, np.abs(case.mesh.jacobian(case.X))).max(initial=0.0)


def close(got, want, tolerance, scale=0.0):
    """Check the error relative to the largest entry (or a larger scale), since single entries may cancel."""
    got, want = np.asarray(got, dtype=np.float64), np.asarray(want, dtype=np.float64)
    scale = max(np.abs(want).max(initial=0.0), scale)
    error = np.abs(got - want).max(initial=0.0)
    assert error <= tolerance * scale + 1e-15, f"off by {error:.3g}, {error / max(scale, 1e-300):.3g} of the largest"


def rare_and_dated():
    """Return a table with more levels of text than features, with dates and missing values; and targets."""
    rng = np.random.default_rng(0)
    codes = np.array([f"c{k % 121 if k % 4 else 0}" for k in range(400)], dtype=object)
    days = pandas.Timestamp("2024-01-10") + pandas.to_timedelta(rng.integers(0, 300, 400), "D")
    frame = pandas.DataFrame({"code": codes, "day": days})
    y = 3.0 * (frame["code"] == "c0") + frame["day"].dt.month + 0.1 * rng.normal(size=400)
    frame.loc[::9, "day"], frame.loc[::7, "code"] = pandas.NaT, None
    return frame, y


def date_columns(days):
    """Return month, weekday and days since the first day, (n, 3)."""
    return np.c_[days.dt.month, days.dt.weekday, (days - days.min()).dt.days].astype(float)
