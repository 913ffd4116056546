"""The policies `Prune`, `Regrow`, `Sparsify` and `Grow`, which change a graph during training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from meshnn.errors import MeshError
from meshnn.training.state import Count, Fraction, FromZero, Interval, Options, PositiveInt, Real
from meshnn.training.structure.choosing import importance, sample_of, strongest, weakest
from meshnn.training.structure.graph import Edit, View


class Policy:
    """Base class of policies. The state of a policy during a run is kept in a separate `memory`."""

    #: Factory of the memory: a dictionary of plain values, or a dataclass as in `meshnn.training.state`.
    new_memory: ClassVar[Any] = dict

    #: Whether training starts with all allowed edges.
    dense: bool = False
    #: L1 penalty that the policy needs.
    l1: float = 0.0
    #: Allowed edges, see `Allowed`; None derives them from the graph.
    allowed: Any = None
    #: Whether the policy adds edges or neurons; neurons without edges are then kept.
    adds: bool = False
    #: Reason why a fit with this policy is refused, or an empty text.
    refusal: str = ""

    def refusal_of(self, edges: int) -> str:
        """Return why the policy cannot work on a net with this number of edges, or an empty text."""
        return ""

    def busy(self, view: View, memory: Any) -> bool:
        """Return whether the policy may still change the graph."""
        raise NotImplementedError

    def propose(self, view: View, memory: Any) -> Edit | None:
        """Return the edit to make now, or None."""
        raise NotImplementedError

    def unmet(self, view: View, memory: Any) -> str:
        """Return a message if the target was missed at the end of training, else an empty text."""
        return ""


@dataclass
class PruneMemory:
    """The number of edges of the initial graph, and whether the schedule has ended."""

    first: Count | None = None
    done: bool = False


@dataclass
class Prune(Policy, Options):
    """Prune: remove edges on a schedule until `to` edges are left.

    Parameters
    ----------
    to : int or float
        Final number of edges, including those of the bias. A value below 1 is a fraction of the initial number.
    start : {"dense", "given"}, default="dense"
        "dense" starts with all allowed edges, "given" with those of the topology.
    begin, end : float, default=0.0 and 0.6
        Fractions of the training at which pruning begins and ends. The schedule is cubic: most edges are removed
        early.
    by : {"magnitude", "movement", "saliency"}, default="magnitude"
        Importance score; the edges with the smallest scores are removed. Dead edges are removed first.
    bias : bool, default=False
        Whether edges of the bias may be removed, too. Dead edges of the bias are always removed.

    Examples
    --------
    >>> from meshnn.training import structure
    >>> structure.Prune(to=1044)
    Prune(to=1044, start='dense', begin=0.0, end=0.6, by='magnitude', bias=False)
    """

    to: PositiveInt | Annotated[float, Interval(0, 1, "()")]
    start: Literal["dense", "given"] = "dense"
    begin: Fraction = 0.0
    end: Fraction = 0.6
    by: Literal["magnitude", "movement", "saliency"] = "magnitude"
    bias: bool = False
    new_memory = PruneMemory

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.begin < self.end:
            raise MeshError(f"begin must lie before end, got {self.begin} and {self.end}")

    @property
    def dense(self) -> bool:  # type: ignore[override]
        """Whether training starts with all allowed edges."""
        return self.start == "dense"

    def refusal_of(self, edges: int) -> str:
        """Return a message if more edges are asked for than the net has."""
        to = self._goal(edges)
        return f"Prune(to={self.to}) cannot end with {to} edges: the net begins with {edges}" if to > edges else ""

    def busy(self, view: View, memory: Any) -> bool:
        """Return whether the schedule has not ended yet."""
        return not memory.done

    def propose(self, view: View, memory: Any) -> Edit | None:
        """Return an edit that removes edges down to the number of the schedule."""
        count = view.mesh.topology.n_edges
        memory.first = first = count if memory.first is None else memory.first
        to = self._goal(first)
        if refusal := self.refusal_of(first):
            raise MeshError(refusal)
        ratio = min(max((view.progress - self.begin) / (self.end - self.begin), 0.0), 1.0)
        keep = to + round((first - to) * (1 - ratio) ** 3)
        if ratio >= 1.0:
            memory.done = True
        # Every edit compiles new plans: small ones are postponed, but not past the end, where a large one would hurt.
        if count <= keep or (ratio < 1.0 and count - keep < 0.05 * count):
            return None
        scores = importance(self.by, view.mesh, view.samples, view.rng)
        remove = weakest(view, scores, count - keep, self.bias, spare=keep - to)
        return Edit.removal(view, remove, f"pruned by {self.by}")

    def unmet(self, view: View, memory: Any) -> str:
        """Return a message if more edges are left than asked for, with the edges that must stay."""
        count, to = view.mesh.topology.n_edges, self._goal(memory.first or 0)
        if not memory.done or count <= to:
            return ""
        kept = ["a path from an input to every output"]
        kept += ["the edges of the bias"] * (not self.bias and bool(view.from_bias.any()))
        kept += ["fixed edges, and groups of tied ones"] * (not view.mesh.ties.plain)
        return f"Prune(to={self.to}) ends with {count:,} edges instead of {to:,}: it keeps {', '.join(kept)}"

    def _goal(self, first: int) -> int:
        return round(self.to * first) if self.to < 1 else int(self.to)


@dataclass
class RegrowMemory:
    """The epoch of the last swap."""

    last: Count = 0


@dataclass
class Regrow(Policy, Options):
    """Regrow: periodically replace weak edges by absent ones with a large gradient; the number of edges stays the same.

    Parameters
    ----------
    every : int, optional
        Epochs between two swaps. By default a twentieth of the training, or a fifth if it has less than 50 epochs.
    fraction : float, default=0.3
        Initial fraction of the edges (without those of the bias) that is swapped.
    grow : {"gradient", "random"}, default="gradient"
        Choice of the new edges: those with the largest gradient, or at random.
    decay : {"cosine", "constant"}, default="cosine"
        Schedule of the fraction until `end`.
    end : float, default=0.75
        Fraction of the training after which no edges are swapped.
    allowed : mask or Topology, optional
        Edges that may be added, as a Boolean matrix [from, to] or as the edges of a topology. By default all edges
        except kinds (from outputs, between outputs, self-loops) that the initial graph lacks.

    Examples
    --------
    >>> from meshnn.training import structure
    >>> structure.Regrow(fraction=0.2).grow
    'gradient'
    """

    every: PositiveInt | None = None
    fraction: Fraction = 0.3
    grow: Literal["gradient", "random"] = "gradient"
    decay: Literal["cosine", "constant"] = "cosine"
    end: Fraction = 0.75
    allowed: Any = None
    adds = True
    new_memory = RegrowMemory

    def busy(self, view: View, memory: Any) -> bool:
        """Return whether `end` has not been reached yet."""
        return view.progress < self.end

    def propose(self, view: View, memory: Any) -> Edit | None:
        """Return a swap if one is due."""
        every = self.every or max(1, view.max_epochs // 5 if view.max_epochs < 50 else view.max_epochs // 20)
        if view.progress >= self.end or view.epoch - memory.last < every:
            return None
        memory.last = view.epoch
        mesh = view.mesh
        share = self.fraction * (
            0.5 * (1 + math.cos(math.pi * view.progress / self.end)) if self.decay == "cosine" else 1
        )
        absent = view.absent()
        count = min(round(share * int((~view.from_bias).sum())), len(absent))
        if count == 0:
            return None
        remove = weakest(view, np.abs(mesh.weights.astype(np.float64)), count, bias=False)
        chosen = strongest(view, absent, int(remove.sum()), self.grow)
        kind = "large gradient" if self.grow == "gradient" else "random choice"
        return Edit(remove, absent[chosen], np.zeros(len(chosen)), f"swapped for edges of {kind}")


@dataclass
class Sparsify(Policy, Options):
    """Sparsify: drive weights to zero with an L1 penalty and remove their edges.

    Parameters
    ----------
    l1 : float, default=1e-3
        Strength of the penalty on the sum of absolute weights, which is added to the mean loss. Larger values leave
        fewer edges.
    threshold : float, default=0.0
        Largest absolute weight that counts as zero.
    begin : float, default=0.1
        Fraction of the training before which no edge is removed.

    Examples
    --------
    >>> from meshnn.training import structure
    >>> structure.Sparsify(l1=1e-3).threshold
    0.0
    """

    l1: FromZero = 1e-3
    threshold: FromZero = 0.0
    begin: Fraction = 0.1

    def busy(self, view: View, memory: Any) -> bool:
        """Return False: vanishing weights never prevent training from stopping."""
        return False

    def propose(self, view: View, memory: Any) -> Edit | None:
        """Return an edit that removes the edges whose weight has vanished."""
        if view.progress < self.begin:
            return None
        vanished = (np.abs(view.mesh.weights) <= self.threshold) & ~view.from_bias
        vanished &= ~view.protected(np.abs(view.mesh.weights.astype(np.float64)))
        vanished = view.mesh.ties.whole(vanished)
        if not vanished.any():
            return None
        if view.mesh.ties.plain and not view.growing:
            vanished = view.idle_without(vanished)[0]
        return Edit.removal(view, vanished, "weights vanished")


@dataclass
class GrowMemory:
    """Losses since the last growth, the first loss, the loss at the last growth, and the growths without gain."""

    losses: list[Real] = field(default_factory=list)
    first: Real | None = None
    before: Real | None = None
    idle: Count = 0
    done: bool = False


@dataclass
class Grow(Policy, Options):
    """Grow: add hidden neurons or edges whenever the loss falls slowly.

    A new neuron has random incoming weights from all neurons and outgoing weights of 0; a new edge has the weight 0.
    The outputs of the net are therefore unchanged. Several random neurons are tried, and the one whose outgoing edges
    have the largest gradient is added.

    Parameters
    ----------
    to : int
        Number of hidden neurons, or of edges, at which growth stops.
    neurons : bool, default=True
        Whether to add neurons; False adds edges.
    slow : float, default=0.05
        Relative fall of the loss within `wait` rows of the history below which the net grows.
    wait : int, default=8
        Least number of rows of the history between two growths.
    gain : float, default=0.005
        Growth stops after three growths in a row that lowered the loss by less than this fraction of the first loss.
    candidates : int, default=32
        Number of random neurons that are compared.
    allowed : mask or Topology, optional
        Edges that may be added, as in `Regrow`.

    Examples
    --------
    >>> from meshnn.training import structure
    >>> structure.Grow(to=20).neurons
    True
    """

    to: PositiveInt
    neurons: bool = True
    slow: Fraction = 0.05
    wait: PositiveInt = 8
    gain: Fraction = 0.005
    candidates: PositiveInt = 32
    allowed: Any = None
    adds = True
    new_memory = GrowMemory

    def busy(self, view: View, memory: Any) -> bool:
        """Return whether the net may still grow: `to` is not reached, and growth lowered the loss."""
        t = view.mesh.topology
        return not memory.done and (t.n_hidden if self.neurons else t.n_edges) < self.to

    def propose(self, view: View, memory: Any) -> Edit | None:
        """Return an edit that adds a neuron or edges if the loss falls slowly."""
        losses = memory.losses
        if math.isfinite(view.loss):
            losses.append(view.loss)
            memory.first = view.loss if memory.first is None else memory.first
        if not self.busy(view, memory) or len(losses) <= self.wait:
            return None
        if losses[-1 - self.wait] - losses[-1] > self.slow * abs(losses[-1 - self.wait]):
            return None
        if memory.before is not None and memory.before - losses[-1] < self.gain * memory.first:
            memory.idle += 1
            if memory.idle >= 3:  # one may be chance
                memory.done = True
                return None
        else:
            memory.idle = 0
        memory.before = losses[-1]
        losses.clear()
        return self._neuron(view) if self.neurons else self._edges(view)

    def _edges(self, view: View) -> Edit | None:
        absent = view.absent()
        count = min(self.to - view.mesh.topology.n_edges, max(1, view.mesh.topology.n_edges // 10), len(absent))
        if count == 0:
            return None
        chosen = strongest(view, absent, count, "gradient")
        keep = np.zeros(view.mesh.topology.n_edges, np.bool_)
        return Edit(keep, absent[chosen], np.zeros(count), "grown where the gradient is largest")

    def _neuron(self, view: View) -> Edit:
        """Return an edit that adds the random neuron whose outgoing edges have the largest gradient."""
        t, rng = view.mesh.topology, view.rng
        new = t.n_clamped + t.n_hidden  # number of the new neuron; outputs move up by one
        outputs = t.outputs + 1
        sources = np.concatenate([np.arange(new), outputs if view.allowed.from_outputs else []]).astype(np.int64)
        targets = np.concatenate([t.hidden, outputs])
        into = np.stack([sources, np.full(len(sources), new)], axis=1)
        out = np.stack([np.full(len(targets), new), targets], axis=1)
        pairs = np.concatenate([into, out, *([[[new, new]]] if view.allowed.self_loops else [])])
        gain = 1.0 / math.sqrt(max(len(sources), 1))
        best, chosen = -1.0, np.zeros(len(pairs))
        keep = np.zeros(t.n_edges, np.bool_)
        sample = sample_of(view.samples, rng)
        for _ in range(self.candidates):
            weights = np.zeros(len(pairs))
            # twice the usual scale, so that the neuron is nonlinear from the start
            weights[: len(into)] = 2.0 * gain * rng.standard_normal(len(into))
            score = view.score_of(Edit(keep, pairs, weights, "", neurons=1), sample)
            if score > best:
                best, chosen = score, weights
        return Edit(keep, pairs, chosen, "a neuron grown", neurons=1)
